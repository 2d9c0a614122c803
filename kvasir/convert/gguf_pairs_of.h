// The metadata of a GGUF file for a model: what its config.json and tokenizer.json say.
// Deliberately refuses tokenizers whose way of cutting text has no name in GGUF.
#ifndef KVASIR_CONVERT_GGUF_PAIRS_OF_H_
#define KVASIR_CONVERT_GGUF_PAIRS_OF_H_

#include "kvasir/base/result.h"
#include "kvasir/convert/model_source.h"
#include "kvasir/formats/gguf_writer.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// The architectures of docs/formats/gguf.md; the tokenizer (byte-level BPE, cut by a pattern that
// llama.cpp has a name for) and chat template if the model has them. ERRORS: kUnsupported,
// kCorrupt, naming the file and the field. `draft_layers`: those that are written (MtpHead).
Result<GgufPairs> GgufPairsOf(const ModelSource& source, const ModelConfig& config,
                              int draft_layers = 0);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_GGUF_PAIRS_OF_H_
