// Fuzzes the bodies of the routes that are not chat completions: any text.
// Deliberately checks what the engine relies on: an accepted request can be run as it is.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvasir/base/check.h"
#include "kvasir/base/json.h"
#include "kvasir/server/api_error.h"
#include "kvasir/server/chat_request.h"
#include "kvasir/server/embedding_request.h"
#include "kvasir/server/messages_request.h"
#include "kvasir/server/responses_request.h"
#include "kvasir/server/text_request.h"

namespace {

constexpr int64_t kVocabulary = 256;
const kvasir::ChatDefaults kDefaults = {.vocab_size = kVocabulary};

void CheckError(const kvasir::Error& error) {
  const kvasir::ApiError answer = kvasir::ToApiError(error);
  KVASIR_CHECK(answer.status == 400 && !answer.message.empty());
}

// Of the other APIs responses alone have log-probabilities.
void CheckChat(const kvasir::Result<kvasir::Json>& body, bool has_logprobs = false) {
  if (!body.ok()) return CheckError(body.error());
  const auto chat = kvasir::ParseChatRequest(*body, kDefaults);
  if (!chat.ok()) return CheckError(chat.error());
  KVASIR_CHECK(chat->choices == 1 && (has_logprobs || !chat->top_logprobs));
  KVASIR_CHECK(chat->max_tokens.value_or(1) >= 1);
  KVASIR_CHECK(!chat->messages.as_array().empty());
}

void CheckPrompts(const std::vector<kvasir::TextPrompt>& prompts) {
  KVASIR_CHECK(!prompts.empty());
  for (const kvasir::TextPrompt& prompt : prompts) {
    const auto* tokens = std::get_if<std::vector<kvasir::Token>>(&prompt);
    if (tokens == nullptr) continue;
    for (const kvasir::Token token : *tokens) KVASIR_CHECK(token >= 0 && token < kVocabulary);
  }
}

void CheckText(const kvasir::Json& body) {
  const auto text = kvasir::ParseTextRequest(body, kDefaults);
  if (!text.ok()) return CheckError(text.error());
  KVASIR_CHECK(text->sampling.Validate(kVocabulary).ok());
  KVASIR_CHECK(static_cast<int64_t>(text->prompts.size()) * text->choices <= kvasir::kMaxChoices);
  CheckPrompts(text->prompts);
}

void CheckEmbedding(const kvasir::Json& body) {
  constexpr int64_t kHiddenSize = 64;
  const auto embedding = kvasir::ParseEmbeddingRequest(body, kDefaults, kHiddenSize);
  if (!embedding.ok()) return CheckError(embedding.error());
  KVASIR_CHECK(embedding->inputs.size() <= kvasir::kMaxEmbeddingInputs);
  const int64_t dimensions = embedding->dimensions.value_or(kHiddenSize);
  KVASIR_CHECK(dimensions >= 1 && dimensions <= kHiddenSize);
  CheckPrompts(embedding->inputs);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto json =
      kvasir::Json::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  CheckChat(kvasir::ChatBodyOfMessages(*json, kvasir::MaxTokensRule::kRequired));
  CheckChat(kvasir::ChatBodyOfMessages(*json, kvasir::MaxTokensRule::kOptional));
  CheckChat(kvasir::ChatBodyOfResponses(*json), true);
  CheckText(*json);
  CheckEmbedding(*json);
  return 0;
}
