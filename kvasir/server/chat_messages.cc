#include "kvasir/server/chat_messages.h"

#include <algorithm>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/chat/message_roles.h"
#include "kvasir/server/request_fields.h"

namespace kvasir {
namespace {

// Appends the text of one content part.
Status AppendPart(const Json& part, const std::string& field, std::string* text) {
  if (!part.is_object()) return WrongType(field, "an object", part);
  const Json* type = part.Find("type");
  if (type == nullptr || !type->is_string()) {
    return FieldError(ErrorCode::kCorrupt, field + ".type", "must be a string");
  }
  const std::string& kind = type->as_string();
  if (kind != "text" && kind != "refusal") {
    return FieldError(ErrorCode::kUnsupported, field + ".type",
                      "must be \"text\": this server reads no images, audio or files");
  }
  const Json* value = part.Find(kind);
  if (value == nullptr || !value->is_string()) {
    return FieldError(ErrorCode::kCorrupt, field + "." + kind, "must be a string");
  }
  *text += value->as_string();
  return {};
}

// The text of a message's content. An assistant that only called tools may have none.
Result<std::string> ContentText(const Json* content, const std::string& field,
                                const std::string& role) {
  if (content == nullptr || content->is_null()) {
    if (role == "assistant") return std::string();
    return FieldError(ErrorCode::kCorrupt, field, "is missing; give a string");
  }
  if (content->is_string()) return content->as_string();
  if (!content->is_array()) return WrongType(field, "a string or an array of parts", *content);
  std::string text;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    KVASIR_TRY_OK(AppendPart(content->as_array()[i], field + "[" + std::to_string(i) + "]", &text));
  }
  return text;
}

// [{"id", "type", "function": {"name", "arguments"}}]. Templates want the arguments as an object;
// a text that is none, one that was cut off say, stays a text.
Status NormalizeCalls(const std::string& field, Json* calls) {
  if (!calls->is_array()) return WrongType(field, "an array", *calls);
  for (size_t i = 0; i < calls->as_array().size(); ++i) {
    const std::string name = field + "[" + std::to_string(i) + "].function";
    Json& call = calls->as_array()[i];
    const Json* given = FindSet(call, "function");
    if (given == nullptr || !given->is_object()) {
      return FieldError(ErrorCode::kCorrupt, name, "must be an object");
    }
    Json function = *given;
    const Json* called = FindSet(function, "name");
    if (called == nullptr || !called->is_string()) {
      return FieldError(ErrorCode::kCorrupt, name + ".name", "must be a string");
    }
    const Json* given_arguments = FindSet(function, "arguments");
    Json arguments = given_arguments == nullptr ? Json(Json::Object()) : *given_arguments;
    if (arguments.is_string()) {
      auto parsed = Json::Parse(arguments.as_string());
      if (arguments.as_string().empty()) arguments = Json::Object();
      if (parsed.ok() && parsed->is_object()) arguments = *std::move(parsed);
    }
    function.Set("arguments", std::move(arguments));
    call.Set("function", std::move(function));
  }
  return {};
}

// Functions called so far, by the call's id; where calls share one, of the latest.
using CalledFunctions = std::map<std::string, std::string, std::less<>>;

void KeepCalls(const Json& message, CalledFunctions* functions) {
  const Json* calls = message.Find("tool_calls");
  if (calls == nullptr) return;
  for (const Json& call : calls->as_array()) {
    const Json* id = call.Find("id");
    if (id == nullptr || !id->is_string()) continue;
    (*functions)[id->as_string()] = call.Find("function")->Find("name")->as_string();
  }
}

// Some templates want to know which function a result is of.
void NameResult(const CalledFunctions& functions, Json* message) {
  const Json* id = message->Find("tool_call_id");
  if (id == nullptr || !id->is_string() || message->Find("name") != nullptr) return;
  const auto called = functions.find(id->as_string());
  if (called != functions.end()) message->Set("name", called->second);
}

Status NormalizeMessage(const std::string& field, Json* message) {
  if (!message->is_object()) return WrongType(field, "an object", *message);
  const Json* role = message->Find("role");
  if (role == nullptr || !role->is_string()) {
    return FieldError(ErrorCode::kCorrupt, field + ".role", "must be a string");
  }
  const std::string name = role->as_string();
  if (!IsRequestRole(name)) {
    return FieldError(ErrorCode::kInvalidArgument, field + ".role",
                      "must be system, developer, user, assistant, tool or function");
  }
  KVASIR_TRY(std::string text, ContentText(message->Find("content"), field + ".content", name));
  message->Set("content", std::move(text));
  if (name == "developer") message->Set("role", "system");
  const Json* calls = message->Find("tool_calls");
  if (calls != nullptr && (calls->is_null() || name != "assistant")) {
    std::erase_if(message->as_object(),
                  [](const auto& member) { return member.first == "tool_calls"; });
  } else if (calls != nullptr) {
    Json normal = *calls;
    KVASIR_TRY_OK(NormalizeCalls(field + ".tool_calls", &normal));
    message->Set("tool_calls", std::move(normal));
  }
  return {};
}

}  // namespace

Result<Json> NormalizeMessages(Json messages) {
  if (!messages.is_array()) return WrongType("messages", "an array", messages);
  if (messages.as_array().empty()) {
    return FieldError(ErrorCode::kInvalidArgument, "messages", "must hold at least one message");
  }
  CalledFunctions functions;
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    Json& message = messages.as_array()[i];
    KVASIR_TRY_OK(NormalizeMessage("messages[" + std::to_string(i) + "]", &message));
    NameResult(functions, &message);
    KeepCalls(message, &functions);
  }
  return messages;
}

}  // namespace kvasir
