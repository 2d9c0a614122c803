// TextRequest: the body of POST /v1/completions, checked and resolved.
// Deliberately without a tokenizer: prompts stay as they came, texts or tokens.
#ifndef KVASIR_SERVER_TEXT_REQUEST_H_
#define KVASIR_SERVER_TEXT_REQUEST_H_

#include <string>
#include <variant>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/server/request_fields.h"

namespace kvasir {

using TextPrompt = std::variant<std::string, std::vector<Token>>;

struct TextRequest : GenerationFields {
  std::vector<TextPrompt> prompts;  // at least one; tokens are in the vocabulary
  bool echoes_prompt = false;
};

// The prompts in `field` of `body`: a string, an array of strings, an array of token ids or an
// array of such arrays. ERRORS: as ParseChatRequest.
Result<std::vector<TextPrompt>> ParseTextPrompts(const Json& body, const std::string& field,
                                                 int64_t vocab_size);

// Tokens per choice of a request without max_tokens: as OpenAI.
inline constexpr int64_t kDefaultTextTokens = 16;

// `body` may have fields nobody knows. ERRORS: as ParseChatRequest.
Result<TextRequest> ParseTextRequest(const Json& body, const ChatDefaults& defaults);

}  // namespace kvasir

#endif  // KVASIR_SERVER_TEXT_REQUEST_H_
