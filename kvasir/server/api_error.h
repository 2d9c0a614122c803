// ApiError: an error in the forms that clients of OpenAI's and Anthropic's APIs read.
// Deliberately the one place that turns error codes into HTTP statuses.
#ifndef KVASIR_SERVER_API_ERROR_H_
#define KVASIR_SERVER_API_ERROR_H_

#include <string>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/server/http_message.h"

namespace kvasir {

struct ApiError {
  int status = 500;
  std::string message;
  std::string param;  // the field that is wrong, e.g. "messages[0].content"; empty: none
  std::string code;   // e.g. "context_length_exceeded"; empty: none
};

// Whose form an error has.
enum class ErrorStyle { kOpenAi, kAnthropic };

// What is wrong with a request is 400, a full budget 503, everything else 500. A message that
// begins with "field 'x'" makes x the param.
ApiError ToApiError(const Error& error);

// {"error": {"message", "type", "param", "code"}}, or Anthropic's {"type": "error", "error":
// {"type", "message"}}; the type follows from the status.
Json ErrorJson(const ApiError& error, ErrorStyle style = ErrorStyle::kOpenAi);

// The whole response; a 503 says when to come back, a 401 what is missing.
HttpResponse ErrorResponse(const ApiError& error, ErrorStyle style = ErrorStyle::kOpenAi);

}  // namespace kvasir

#endif  // KVASIR_SERVER_API_ERROR_H_
