// GgufSpecialTokens: the tokens that a GGUF file's metadata gives a role.
// Deliberately separate from the tokenizer: a model without one still has tokens to stop at.
#ifndef KVASIR_FORMATS_GGUF_SPECIAL_TOKENS_H_
#define KVASIR_FORMATS_GGUF_SPECIAL_TOKENS_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/formats/gguf_metadata.h"

namespace kvasir {

// tokenizer.ggml.token_type
enum class GgufTokenKind { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// A token's kind. Converters have left Gemma's marks among the normal tokens; split into pieces,
// they would mean nothing to the model.
GgufTokenKind GgufKindOf(std::string_view text, int64_t kind, std::string_view architecture);

struct GgufSpecialTokens {
  std::optional<Token> bos, eos, unknown, pad;
  // eos, end of turn and of message, then control tokens that are written like one of these: files
  // name only one, and models use several. None twice.
  std::vector<Token> stops;

  // All absent in a file without a tokenizer. Ids of unknown and pad outside the vocabulary count
  // as absent. ERRORS: kCorrupt for others there, naming the key, and for more than 1,024 stops.
  static Result<GgufSpecialTokens> Read(const GgufMetadata& metadata);

  // {"bos_token": text, ...}, as chat templates want them. `tokens` is tokenizer.ggml.tokens.
  Json Texts(const std::vector<std::string_view>& tokens) const;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_SPECIAL_TOKENS_H_
