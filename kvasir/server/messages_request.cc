#include "kvasir/server/messages_request.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/server/request_fields.h"

namespace kvasir {
namespace {

bool HasType(const Json& value, std::string_view type) {
  const Json* found = value.Find("type");
  return found != nullptr && found->is_string() && found->as_string() == type;
}

constexpr std::array kUnsupported = {
    UnsupportedField{"tools", [](const Json& v) { return v.is_array() && v.as_array().empty(); },
                     "is not supported by this server yet; leave it out"},
    UnsupportedField{"tool_choice",
                     [](const Json& v) { return HasType(v, "none") || HasType(v, "auto"); },
                     "is not supported by this server yet; leave it out"},
    UnsupportedField{"thinking",
                     [](const Json& v) { return HasType(v, "disabled") || HasType(v, "adaptive"); },
                     "is not supported by this server yet; leave it out"},
};

// Fields that mean something else in a chat request, or are set below.
constexpr std::array<std::string_view, 14> kNotTaken = {
    "stop_sequences", "messages",        "system",         "metadata", "thinking",
    "service_tier",   "tools",           "tool_choice",    "n",        "logprobs",
    "top_logprobs",   "response_format", "stream_options", "stop"};

// Text, or an array of text blocks; other blocks are refused by their name.
Result<std::string> TextOf(const Json& content, const std::string& field) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) return WrongType(field, "a string or an array of blocks", content);
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& block = content.as_array()[i];
    const std::string name = field + "[" + std::to_string(i) + "]";
    if (!block.is_object()) return WrongType(name, "an object", block);
    KVASIR_TRY(const std::string type, block.GetStringOr("type", ""));
    // What a model thought in earlier turns is not shown to it again.
    if (type == "thinking" || type == "redacted_thinking") continue;
    if (type != "text") {
      return FieldError(ErrorCode::kUnsupported, name + ".type",
                        "must be \"text\": this server reads no images, files or tools yet");
    }
    const Json* value = block.Find("text");
    if (value == nullptr || !value->is_string()) {
      return FieldError(ErrorCode::kCorrupt, name + ".text", "must be a string");
    }
    text += value->as_string();
  }
  return text;
}

Result<Json> MessagesOf(const Json& body) {
  Json::Array messages;
  if (const Json* system = FindSet(body, "system")) {
    KVASIR_TRY(std::string text, TextOf(*system, "system"));
    if (!text.empty()) {
      messages.push_back(Json::Object{{"role", "system"}, {"content", std::move(text)}});
    }
  }
  const Json* given = FindSet(body, "messages");
  if (given == nullptr) {
    return FieldError(ErrorCode::kCorrupt, "messages", "is missing; give an array of messages");
  }
  if (!given->is_array()) return WrongType("messages", "an array", *given);
  if (given->as_array().empty()) {
    return FieldError(ErrorCode::kInvalidArgument, "messages", "must hold at least one message");
  }
  for (size_t i = 0; i < given->as_array().size(); ++i) {
    const Json& message = given->as_array()[i];
    const std::string field = "messages[" + std::to_string(i) + "]";
    if (!message.is_object()) return WrongType(field, "an object", message);
    const Json* role = message.Find("role");
    if (role == nullptr || !role->is_string() ||
        (role->as_string() != "user" && role->as_string() != "assistant")) {
      return FieldError(ErrorCode::kInvalidArgument, field + ".role",
                        "must be \"user\" or \"assistant\"");
    }
    const Json* content = message.Find("content");
    KVASIR_TRY(std::string text,
               TextOf(content == nullptr ? Json() : *content, field + ".content"));
    messages.push_back(Json::Object{{"role", *role}, {"content", std::move(text)}});
  }
  return Json(std::move(messages));
}

}  // namespace

Result<Json> ChatBodyOfMessages(const Json& body, MaxTokensRule rule) {
  KVASIR_TRY_OK(RequireObject(body));
  KVASIR_TRY_OK(RefuseUnsupported(body, kUnsupported));
  if (rule == MaxTokensRule::kRequired) {
    KVASIR_TRY(const int64_t tokens, body.GetInt("max_tokens"));
    if (tokens < 1) {
      return FieldError(ErrorCode::kInvalidArgument, "max_tokens", "must be at least 1");
    }
  }
  KVASIR_TRY(Json messages, MessagesOf(body));
  Json chat = Json::Object();
  for (const auto& [name, value] : body.as_object()) {
    bool is_other = false;
    for (const std::string_view other : kNotTaken) is_other = is_other || name == other;
    if (!is_other) chat.Set(name, value);
  }
  if (const Json* stops = FindSet(body, "stop_sequences")) {
    if (!stops->is_array()) return WrongType("stop_sequences", "an array of strings", *stops);
    for (const Json& stop : stops->as_array()) {
      if (!stop.is_string()) return WrongType("stop_sequences", "an array of strings", stop);
    }
    chat.Set("stop", *stops);
  }
  chat.Set("messages", std::move(messages));
  return chat;
}

}  // namespace kvasir
