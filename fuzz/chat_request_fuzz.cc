// Fuzzes the body of POST /v1/chat/completions: any text.
// Deliberately checks what the engine relies on: an accepted request can be run as it is.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvasir/base/check.h"
#include "kvasir/base/json.h"
#include "kvasir/server/api_error.h"
#include "kvasir/server/chat_request.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr int64_t kVocabulary = 256;
  auto json = kvasir::Json::Parse(std::string_view(reinterpret_cast<const char*>(data), size));
  if (!json.ok()) return 0;
  const auto request = kvasir::ParseChatRequest(*std::move(json), {.vocab_size = kVocabulary});
  if (!request.ok()) {
    const kvasir::ApiError error = kvasir::ToApiError(request.error());
    KVASIR_CHECK(error.status == 400 && !error.message.empty());
    KVASIR_CHECK(kvasir::Json::Parse(kvasir::ErrorResponse(error).body).ok());
    return 0;
  }
  KVASIR_CHECK(request->sampling.Validate(kVocabulary).ok());
  KVASIR_CHECK(!request->messages.as_array().empty());
  for (const kvasir::Json& message : request->messages.as_array()) {
    KVASIR_CHECK(message.GetString("role").ok() && message.GetString("content").ok());
  }
  KVASIR_CHECK(request->max_tokens.value_or(1) >= 1);
  KVASIR_CHECK(request->stop_strings.size() <= kvasir::kMaxStopStrings);
  KVASIR_CHECK(request->template_variables.is_null() || request->template_variables.is_object());
  return 0;
}
