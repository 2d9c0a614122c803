#include "kvasir/server/text_request.h"

#include <array>
#include <utility>

namespace kvasir {
namespace {

constexpr std::array kUnsupported = {
    UnsupportedField{"suffix", [](const Json& v) { return v.is_string() && v.as_string().empty(); },
                     "is not supported: this server writes on at the end of a text only"},
};

constexpr std::string_view kPromptTypes =
    "a string, an array of strings, an array of token ids or an array of such arrays";

Result<std::vector<Token>> ParseTokens(const Json& value, const std::string& field,
                                       int64_t vocab_size) {
  std::vector<Token> tokens;
  tokens.reserve(value.as_array().size());
  for (const Json& id : value.as_array()) {
    if (!id.is_int()) return WrongType(field, kPromptTypes, id);
    if (id.as_int() < 0 || id.as_int() >= vocab_size) {
      return FieldError(
          ErrorCode::kInvalidArgument, field,
          "has a token id outside the vocabulary, which ends at " + std::to_string(vocab_size - 1));
    }
    tokens.push_back(static_cast<Token>(id.as_int()));
  }
  return tokens;
}

bool IsTokens(const Json& value) {
  return value.is_array() && !value.as_array().empty() && value.as_array().front().is_number();
}

Result<TextPrompt> ParsePrompt(const Json& value, const std::string& field, int64_t vocab_size) {
  if (value.is_string()) return TextPrompt(value.as_string());
  if (!IsTokens(value)) return WrongType(field, kPromptTypes, value);
  KVASIR_TRY(std::vector<Token> tokens, ParseTokens(value, field, vocab_size));
  return TextPrompt(std::move(tokens));
}

// The number of alternatives; some clients write the chat API's boolean.
Result<std::optional<int64_t>> ParseLogprobs(const Json& body) {
  const Json* value = FindSet(body, "logprobs");
  if (value == nullptr || (value->is_bool() && !value->as_bool())) {
    return std::optional<int64_t>();
  }
  if (value->is_bool()) return std::optional<int64_t>(0);
  KVASIR_TRY(const int64_t top, body.GetInt("logprobs"));
  if (top < 0 || top > kMaxTopLogprobs) {
    return FieldError(ErrorCode::kInvalidArgument, "logprobs", "must be 0 to 20");
  }
  return std::optional<int64_t>(top);
}

}  // namespace

Result<std::vector<TextPrompt>> ParseTextPrompts(const Json& body, const std::string& field,
                                                 int64_t vocab_size) {
  const Json* value = FindSet(body, field);
  if (value == nullptr) {
    return FieldError(ErrorCode::kCorrupt, field, "is missing; give a string");
  }
  std::vector<TextPrompt> prompts;
  if (!value->is_array() || IsTokens(*value)) {
    KVASIR_TRY(TextPrompt one, ParsePrompt(*value, field, vocab_size));
    prompts.push_back(std::move(one));
    return prompts;
  }
  for (const Json& entry : value->as_array()) {
    const std::string name = field + "[" + std::to_string(prompts.size()) + "]";
    KVASIR_TRY(TextPrompt one, ParsePrompt(entry, name, vocab_size));
    prompts.push_back(std::move(one));
  }
  if (prompts.empty()) {
    return FieldError(ErrorCode::kInvalidArgument, field, "must hold at least one " + field);
  }
  return prompts;
}

Result<TextRequest> ParseTextRequest(const Json& body, const ChatDefaults& defaults) {
  KVASIR_TRY_OK(RequireObject(body));
  KVASIR_TRY_OK(RefuseUnsupported(body, kUnsupported));
  TextRequest request;
  KVASIR_TRY(const int64_t best_of, body.GetIntOr("best_of", 1));
  KVASIR_TRY(const int64_t choices, body.GetIntOr("n", 1));
  if (best_of != 1 && best_of != choices) {
    return FieldError(ErrorCode::kUnsupported, "best_of",
                      "must be as n: this server returns every answer it generates");
  }
  KVASIR_TRY(request.echoes_prompt, body.GetBoolOr("echo", false));
  // No new token at all makes sense where the prompt comes back.
  KVASIR_TRY(static_cast<GenerationFields&>(request),
             ParseGenerationFields(body, defaults, request.echoes_prompt ? 0 : 1));
  if (FindSet(body, "max_tokens") == nullptr && FindSet(body, "max_completion_tokens") == nullptr) {
    request.max_tokens = kDefaultTextTokens;
  }
  KVASIR_TRY(request.top_logprobs, ParseLogprobs(body));
  if (request.echoes_prompt && request.top_logprobs && request.is_stream) {
    return FieldError(ErrorCode::kUnsupported, "echo",
                      "with logprobs cannot be streamed; leave out stream");
  }
  KVASIR_TRY(request.prompts, ParseTextPrompts(body, "prompt", defaults.vocab_size));
  if (static_cast<int64_t>(request.prompts.size()) * request.choices > kMaxChoices) {
    return FieldError(ErrorCode::kInvalidArgument, "prompt",
                      "asks for more than 128 answers, n for each prompt; send several requests");
  }
  return request;
}

}  // namespace kvasir
