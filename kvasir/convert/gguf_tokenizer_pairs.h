// A model's tokenizer and chat template as the metadata of a GGUF file.
// Deliberately reads back what it wrote: a file whose tokens would differ is never made.
#ifndef KVASIR_CONVERT_GGUF_TOKENIZER_PAIRS_H_
#define KVASIR_CONVERT_GGUF_TOKENIZER_PAIRS_H_

#include "kvasir/base/result.h"
#include "kvasir/convert/model_source.h"
#include "kvasir/formats/gguf_writer.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// Only the ids of special tokens for a model without tokenizer.json. Byte-level BPE, cut by a
// pattern that llama.cpp has a name for, and BPE of pieces with byte fallback, as SentencePiece's
// become. ERRORS: kUnsupported for others, and where ordinary text would become other tokens;
// kCorrupt, naming the field.
Status AddGgufTokenizer(const ModelSource& source, const ModelConfig& config, GgufPairs* pairs);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_GGUF_TOKENIZER_PAIRS_H_
