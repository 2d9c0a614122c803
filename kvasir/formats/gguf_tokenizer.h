// From a GGUF file's metadata to the tokenizer.json that Hugging Face would ship for the model.
// Deliberately not a second tokenizer: kvasir/tokenizer runs what this writes.
#ifndef KVASIR_FORMATS_GGUF_TOKENIZER_H_
#define KVASIR_FORMATS_GGUF_TOKENIZER_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/gguf_metadata.h"

namespace kvasir {

// The template for requests with tools, if it is another one.
inline constexpr std::string_view kGgufToolTemplate = "tokenizer.chat_template.tool_use";

// Models "gpt2" (byte-level BPE, cut by a known pre-tokenizer), "gemma4" and "llama" (SentencePiece
// scores, which become merges). ERRORS: kNotFound when the file has no tokenizer; kUnsupported for
// other models and pre-tokenizers; kCorrupt. The message names the key.
Result<Json> GgufTokenizerJson(const GgufMetadata& metadata);

// Makes the merges of what GgufTokenizerJson returns pairs of texts if one is: other readers take
// texts ("a b") or pairs, but not both. REQUIRES: such a tokenizer.
void MakeMergesAlike(Json* tokenizer);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_TOKENIZER_H_
