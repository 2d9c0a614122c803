// ApiError: an error in the forms that clients of OpenAI's and Anthropic's APIs read.
// Deliberately the one place that turns error codes into HTTP statuses.
#ifndef KVASIR_SERVER_API_ERROR_H_
#define KVASIR_SERVER_API_ERROR_H_

#include <span>
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

// What is wrong with a request is 400, what is not there 404, a full budget and what was cancelled
// (a time limit, a server that stops) 503, everything else 500. A message that begins with
// "field 'x'" makes x the param.
ApiError ToApiError(const Error& error);

// A field of a chat request as another API, whose body became that request, calls it: a field that
// begins with `from`, or, where that begins with a dot, has it within.
struct FieldName {
  std::string_view from;
  std::string_view to;
};
// The error with that API's names.
ApiError WithFieldNames(ApiError error, std::span<const FieldName> names);

// {"error": {"message", "type", "param", "code"}}, or Anthropic's {"type": "error", "error":
// {"type", "message"}}; the type follows from the status.
Json ErrorJson(const ApiError& error, ErrorStyle style = ErrorStyle::kOpenAi);

// The whole response; a 503 says when to come back, a 401 what is missing.
HttpResponse ErrorResponse(const ApiError& error, ErrorStyle style = ErrorStyle::kOpenAi);

}  // namespace kvasir

#endif  // KVASIR_SERVER_API_ERROR_H_
