#include "kvasir/server/api_error.h"

#include <utility>

namespace kvasir {
namespace {

int StatusOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
    case ErrorCode::kCorrupt:
    case ErrorCode::kUnsupported:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kResourceExhausted:
    case ErrorCode::kCancelled:
      return 503;
    case ErrorCode::kFailedPrecondition:
    case ErrorCode::kIo:
      return 500;
  }
  return 500;
}

std::string_view TypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 500:
      return "server_error";
    case 501:
      return "not_supported_error";
    case 503:
      return "unavailable_error";
  }
  return "invalid_request_error";
}

std::string_view AnthropicTypeOf(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 500:
      return "api_error";
    case 503:
      return "overloaded_error";
  }
  return "invalid_request_error";
}

std::string ParamOf(std::string_view message) {
  constexpr std::string_view kField = "field '";
  if (!message.starts_with(kField)) return {};
  message.remove_prefix(kField.size());
  const size_t end = message.find('\'');
  return end == std::string_view::npos ? std::string() : std::string(message.substr(0, end));
}

Json StringOrNull(const std::string& text) { return text.empty() ? Json() : Json(text); }

}  // namespace

ApiError ToApiError(const Error& error) {
  return {StatusOf(error.code), error.message, ParamOf(error.message), ""};
}

ApiError WithFieldNames(ApiError error, std::span<const FieldName> names) {
  const std::string quoted = "field '" + error.param + "'";
  const bool is_named = !error.param.empty() && error.message.starts_with(quoted);
  for (const FieldName& name : names) {
    const size_t at = name.from.starts_with('.') ? error.param.find(name.from) : 0;
    if (at == error.param.npos) continue;
    if (!std::string_view(error.param).substr(at).starts_with(name.from)) continue;
    error.param.replace(at, name.from.size(), name.to);
  }
  if (is_named) error.message.replace(0, quoted.size(), "field '" + error.param + "'");
  return error;
}

Json ErrorJson(const ApiError& error, ErrorStyle style) {
  if (style == ErrorStyle::kAnthropic) {
    Json inner = Json::Object{{"type", AnthropicTypeOf(error.status)}, {"message", error.message}};
    return Json::Object{{"type", "error"}, {"error", std::move(inner)}};
  }
  return Json::Object{{"error", Json::Object{{"message", error.message},
                                             {"type", TypeOf(error.status)},
                                             {"param", StringOrNull(error.param)},
                                             {"code", StringOrNull(error.code)}}}};
}

HttpResponse ErrorResponse(const ApiError& error, ErrorStyle style) {
  HttpResponse response{.status = error.status, .body = ErrorJson(error, style).Dump()};
  if (error.status == 503) response.headers.push_back({"Retry-After", "1"});
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  return response;
}

}  // namespace kvasir
