#include "kvasir/server/dialect_messages.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/chat/message_roles.h"

namespace kvasir {
namespace {

// Noncharacters, which no text is to have.
constexpr std::string_view kOpeningPlace = "\uFDD0";
constexpr std::string_view kClosingPlace = "\uFDD1";
static_assert(kOpeningPlace.size() == kClosingPlace.size());

std::string WithoutPlaces(const std::string& text) {
  std::string rest;
  for (size_t at = 0; at < text.size(); ++at) {
    const std::string_view here = std::string_view(text).substr(at, kOpeningPlace.size());
    if (here == kOpeningPlace || here == kClosingPlace) {
      at += here.size() - 1;
    } else {
      rest += text[at];
    }
  }
  return rest;
}

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

// Calls as this family writes them.
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
  if (syntax == ToolSyntax::kPhi4Mini) return "functools[" + text + "]";
  std::string marked(kOpeningPlace);
  if (syntax == ToolSyntax::kLfm2) {
    marked.append("[").append(text).append("]");
  } else {
    marked.append(text);
  }
  return marked.append(kClosingPlace);
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
    if (!text.empty()) text += "\n";
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

bool HasCallMarks(const ChatDialect& dialect) {
  return dialect.has_tools && !dialect.has_calls &&
         (dialect.tools == ToolSyntax::kLfm2 || dialect.tools == ToolSyntax::kOlmo3);
}

// Recursion is bounded by Json::kMaxDepth.
Json WithoutCallMarks(Json value) {
  if (value.is_string()) return WithoutPlaces(value.as_string());
  if (value.is_array()) {
    for (Json& element : value.as_array()) element = WithoutCallMarks(std::move(element));
  } else if (value.is_object()) {
    for (auto& [key, member] : value.as_object()) {
      key = WithoutPlaces(key);
      member = WithoutCallMarks(std::move(member));
    }
  }
  return value;
}

TextSegments WithCallMarks(const TextSegments& prompt, const ChatDialect& dialect) {
  KVASIR_CHECK(HasCallMarks(dialect));
  const bool is_lfm2 = dialect.tools == ToolSyntax::kLfm2;
  const std::string_view opening = CallOpening(dialect.tools);
  const std::string_view closing = is_lfm2 ? "<|tool_call_end|>" : "</function_calls>";
  TextSegments marked;
  const auto add = [&](std::string_view text, bool trusted) {
    if (text.empty()) return;
    if (marked.empty() || marked.back().trusted != trusted) marked.push_back({"", trusted});
    marked.back().text += text;
  };
  for (const TextSegment& segment : prompt) {
    std::string_view rest = segment.text;
    for (;;) {
      const size_t at = std::min(rest.find(kOpeningPlace), rest.find(kClosingPlace));
      if (segment.trusted || at == rest.npos) break;
      add(rest.substr(0, at), false);
      add(rest.substr(at).starts_with(kOpeningPlace) ? opening : closing, true);
      rest.remove_prefix(at + kOpeningPlace.size());
    }
    add(rest, segment.trusted);
  }
  return marked;
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
