#include "kvasir/server/dialect_messages.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/chat/message_roles.h"

namespace kvasir {
namespace {

void Drop(std::string_view key, Json* message) {
  std::erase_if(message->as_object(),
                [&](const Json::Member& member) { return member.first == key; });
}

bool HasRole(const Json& message, std::string_view role) {
  return *message.Find("role") == Json(role);
}

// As a literal of Python. Recursion is bounded by Json::kMaxDepth.
std::string PythonText(const Json& value) {
  if (value.is_null()) return "None";
  if (value.is_bool()) return value.as_bool() ? "True" : "False";
  std::string text;
  if (value.is_array()) {
    for (const Json& element : value.as_array()) {
      text.append(text.empty() ? "[" : ", ").append(PythonText(element));
    }
    return text.empty() ? "[]" : text + "]";
  }
  if (value.is_object()) {
    for (const auto& [key, member] : value.as_object()) {
      text.append(text.empty() ? "{" : ", ").append(Json(key).Dump());
      text.append(": ").append(PythonText(member));
    }
    return text.empty() ? "{}" : text + "}";
  }
  return value.Dump();
}

std::string PythonCall(const Json& function, ToolSyntax syntax) {
  std::string text = function.Find("name")->as_string() + "(";
  const Json& arguments = *function.Find("arguments");
  if (!arguments.is_object()) return text + arguments.Dump() + ")";  // one that was cut off
  bool is_first = true;
  for (const auto& [key, value] : arguments.as_object()) {
    text.append(is_first ? "" : ", ").append(key).append("=");
    text.append(syntax == ToolSyntax::kLfm2 ? PythonText(value) : value.Dump());
    is_first = false;
  }
  return text + ")";
}

// The system's message with the functions as a text, which its template writes between marks.
void AddToolsToSystem(const Json& tools, Json::Array* messages) {
  Json::Array functions;
  for (const Json& tool : tools.as_array()) functions.push_back(*tool.Find("function"));
  if (messages->empty() || !HasRole(messages->front(), "system")) {
    messages->insert(messages->begin(),
                     Json::Object{{"role", "system"}, {"content", "You may call functions."}});
  }
  messages->front().Set("tools", Json(std::move(functions)).Dump());
}

Json AsTaken(Json message, const ChatDialect& dialect) {
  const Json* const calls = message.Find("tool_calls");
  const bool is_empty = calls != nullptr && calls->is_array() && calls->as_array().empty();
  if (calls != nullptr && !is_empty && !dialect.has_calls) {
    const Json* const content = message.Find("content");
    std::string text = content != nullptr && content->is_string() ? content->as_string() : "";
    text.append(CallsAsText(*calls, dialect.tools));
    message.Set("content", std::move(text));
  }
  // Templates write an empty list of calls as one.
  if (is_empty || !dialect.has_calls) Drop("tool_calls", &message);
  // LFM2.5's name for thoughts.
  const Json* const thought = message.Find("reasoning_content");
  const bool has_thought = thought != nullptr && thought->is_string() &&
                           !thought->as_string().empty() && message.Find("thinking") == nullptr;
  if (dialect.tools == ToolSyntax::kLfm2 && has_thought) message.Set("thinking", Json(*thought));
  // Its template makes marks of roles, and <|tool|> stands before tools, not before results.
  if (dialect.takes_tools_from_system &&
      (HasRole(message, "tool") || HasRole(message, "function"))) {
    message.Set("role", std::string(kToolResponseRole));
  }
  return message;
}

}  // namespace

std::string CallsAsText(const Json& calls, ToolSyntax syntax) {
  std::string text;
  for (const Json& call : calls.as_array()) {
    const Json& function = *call.Find("function");
    const bool is_json = syntax == ToolSyntax::kPhi4Mini;
    const std::string_view between = syntax == ToolSyntax::kOlmo3 ? "\n" : ", ";
    if (!text.empty()) text += between;
    text += is_json ? Json(Json::Object{{"name", *function.Find("name")},
                                        {"arguments", *function.Find("arguments")}})
                          .Dump()
                    : PythonCall(function, syntax);
  }
  switch (syntax) {
    case ToolSyntax::kLfm2:
      return "<|tool_call_start|>[" + text + "]<|tool_call_end|>";
    case ToolSyntax::kOlmo3:
      return "<function_calls>" + text + "</function_calls>";
    default:
      KVASIR_CHECK(syntax == ToolSyntax::kPhi4Mini);
      return "functools[" + text + "]";
  }
}

Json WithDialect(const Json& messages, const ToolRequest& tools, const ChatDialect& dialect) {
  const bool is_known = dialect.tools == ToolSyntax::kLfm2 || dialect.tools == ToolSyntax::kOlmo3 ||
                        dialect.tools == ToolSyntax::kPhi4Mini;
  if (!is_known) return messages;
  Json::Array taken;
  for (const Json& message : messages.as_array()) taken.push_back(AsTaken(message, dialect));
  if (dialect.takes_tools_from_system && tools.is_on()) AddToolsToSystem(tools.Shown(), &taken);
  return taken;
}

}  // namespace kvasir
