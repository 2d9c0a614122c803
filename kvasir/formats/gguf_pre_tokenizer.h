// The pre-tokenizers that GGUF files name: how text is cut before byte-pair encoding.
// Deliberately a closed list: a wrong guess would give wrong tokens without an error.
#ifndef KVASIR_FORMATS_GGUF_PRE_TOKENIZER_H_
#define KVASIR_FORMATS_GGUF_PRE_TOKENIZER_H_

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/gguf_metadata.h"

namespace kvasir {

struct GgufPreTokenizer {
  // Regular expressions, each cutting the pieces of the one before; matches and gaps are pieces.
  std::vector<std::string_view> patterns;
  bool ignores_merges = false;  // a word in the vocabulary is one token
  bool adds_bos = false;        // unless the file says otherwise
  bool normalizes = false;      // to NFC
};

// What tokenizer.ggml.pre says, or what all models of a file's architecture have where that says
// nothing of use; empty: not known. ERRORS: kCorrupt.
Result<std::string> GgufPreTokenizerName(const GgufMetadata& metadata);

// What such a name stands for; null for an unknown name.
const GgufPreTokenizer* FindGgufPreTokenizer(std::string_view name);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_PRE_TOKENIZER_H_
