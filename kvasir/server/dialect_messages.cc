#include "kvasir/server/dialect_messages.h"

#include <algorithm>
#include <cctype>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "kvasir/base/text_hash.h"
#include "kvasir/chat/harmony_parser.h"
#include "kvasir/chat/message_roles.h"
#include "kvasir/chat/python_call.h"
#include "kvasir/server/call_marks.h"

namespace kvasir {
namespace {

Json::Array CallsOf(const Json& message) {
  const Json* const calls = message.Find("tool_calls");
  return calls != nullptr && calls->is_array() ? calls->as_array() : Json::Array();
}

std::string TextOf(const Json& message, std::string_view field) {
  const Json* const text = message.Find(field);
  return text != nullptr && text->is_string() ? text->as_string() : std::string();
}

Json Without(std::string_view key, Json message) {
  std::erase_if(message.as_object(),
                [&](const Json::Member& member) { return member.first == key; });
  return message;
}

void AppendText(std::string_view text, Json* message) {
  std::string all = TextOf(*message, "content");
  if (!all.empty()) all += "\n";
  message->Set("content", all.append(text));
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

// Whether an argument has a name that a call in Python cannot have: then the list of calls is one
// of JSON, as what is generated is (CallsExpr).
bool IsForJson(const Json& call) {
  const Json& arguments = *call.Find("function")->Find("arguments");
  return arguments.is_object() &&
         !std::ranges::all_of(arguments.as_object(), [](const Json::Member& argument) {
           return IsPythonKeyword(argument.first);
         });
}

// Calls as this family writes them.
std::string CallsAsText(const Json& calls, ToolSyntax syntax) {
  const bool is_json =
      syntax == ToolSyntax::kPhi4Mini || std::ranges::any_of(calls.as_array(), IsForJson);
  std::string text;
  for (const Json& call : calls.as_array()) {
    const Json& function = *call.Find("function");
    const std::string_view between = syntax == ToolSyntax::kOlmo3 ? "\n" : ", ";
    if (!text.empty()) text += between;
    text += is_json ? Json(Json::Object{{"name", *function.Find("name")},
                                        {"arguments", *function.Find("arguments")}})
                          .Dump()
                    : PythonCall(function, syntax);
  }
  if (syntax == ToolSyntax::kPhi4Mini) return "functools[" + text + "]";
  std::string marked(kCallOpeningPlace);
  if (syntax == ToolSyntax::kLfm2) {
    marked.append("[").append(text).append("]");
  } else {
    marked.append(text);
  }
  return marked.append(kCallClosingPlace);
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
  const Json::Array calls = CallsOf(message);
  if (!calls.empty() && !dialect.has_calls) {
    AppendText(CallsAsText(calls, dialect.tools), &message);
  }
  // Templates write an empty list of calls as one.
  if (calls.empty() || !dialect.has_calls) message = Without("tool_calls", std::move(message));
  // LFM2.5's name for thoughts.
  const std::string thought = TextOf(message, "reasoning_content");
  const bool has_thought = !thought.empty() && message.Find("thinking") == nullptr;
  if (dialect.tools == ToolSyntax::kLfm2 && has_thought) message.Set("thinking", thought);
  // Its template makes marks of roles, and <|tool|> stands before tools, not before results.
  if (dialect.takes_tools_from_system &&
      (HasRole(message, "tool") || HasRole(message, "function"))) {
    message.Set("role", std::string(kToolResponseRole));
  }
  return message;
}

// `request`'s in the order that the template takes, which is found by their calls and results.
Json WithDialect(const ServerContext& context, const ChatRequest& request) {
  const ChatDialect& dialect = context.dialect;
  const Json given =
      HasCallMarks(dialect) ? WithoutCallMarks(request.messages) : Json(request.messages);
  const Json turns = context.bundle->InTurns(given);
  Json::Array taken;
  for (const Json& message : turns.as_array()) taken.push_back(AsTaken(message, dialect));
  if (dialect.takes_tools_from_system && request.tools.is_on()) {
    AddToolsToSystem(request.tools.Shown(), &taken);
  }
  return taken;
}

// What was answered with reasoning_format "none" comes back with its marks, which the template
// refuses.
Json WithMessagesApart(Json message) {
  HarmonyParser parser({});
  AnswerParts parts = parser.Push(TextOf(message, "content"));
  for (AnswerPart& part : parser.Finish()) parts.push_back(std::move(part));
  std::string text;
  std::string thought;
  for (const AnswerPart& part : parts) {
    (part.kind == AnswerPart::Kind::kReasoning ? thought : text) += part.text;
  }
  message.Set("content", std::move(text));
  if (!thought.empty()) message.Set("reasoning_content", std::move(thought));
  return message;
}

// gpt-oss's template calls thoughts otherwise, and writes them beside a call only without a text.
Json WithHarmonyThought(Json message) {
  if (CallsOf(message).empty()) message = Without("tool_calls", std::move(message));
  const std::string content = TextOf(message, "content");
  if (TextOf(message, "role") == "assistant" && content.find("<|message|>") != content.npos) {
    message = WithMessagesApart(std::move(message));
  }
  std::string thought = TextOf(message, "reasoning_content");
  if (thought.empty()) thought = TextOf(message, "thinking");
  if (thought.empty()) return message;
  const std::string text = TextOf(message, "content");
  if (!text.empty() && !CallsOf(message).empty()) {
    thought.append("\n\n").append(text);
    message.Set("content", "");
  }
  message.Set("thinking", std::move(thought));
  return message;
}

// It also writes one call of a message only: each becomes a message of its own, with its result
// behind it, which is known by its id, or by its place.
Json WithHarmonyTurns(const Json& messages) {
  Json::Array out;
  const Json::Array& all = messages.as_array();
  for (size_t i = 0; i < all.size(); ++i) {
    const Json message = WithHarmonyThought(all[i]);
    const Json::Array calls = CallsOf(message);
    if (calls.size() < 2) {
      out.push_back(message);
      continue;
    }
    std::unordered_map<std::string, const Json*, TextHash> results;
    std::vector<const Json*> others;  // without an id that is a call's
    std::unordered_set<std::string, TextHash> ids;
    for (const Json& call : calls) ids.insert(TextOf(call, "id"));
    for (; i + 1 < all.size() && *all[i + 1].Find("role") == Json("tool"); ++i) {
      const std::string id = TextOf(all[i + 1], "tool_call_id");
      const bool is_a_calls = ids.contains(id) && results.try_emplace(id, &all[i + 1]).second;
      if (!is_a_calls) others.push_back(&all[i + 1]);
    }
    size_t next = 0;  // of the others
    for (size_t k = 0; k < calls.size(); ++k) {
      Json one = k == 0 ? message : Json::Object{{"role", "assistant"}, {"content", ""}};
      one.Set("tool_calls", Json::Array{calls[k]});
      out.push_back(std::move(one));
      const auto result = results.find(TextOf(calls[k], "id"));
      if (result != results.end()) {
        out.push_back(*result->second);
      } else if (next < others.size()) {
        out.push_back(*others[next++]);
      }
    }
    for (; next < others.size(); ++next) out.push_back(*others[next]);
  }
  return out;
}

// Mistral's templates take ids of nine letters and digits alone; others number theirs here.
Json WithShortCallIds(const Json& messages) {
  constexpr size_t kSize = 9;
  std::unordered_map<std::string, std::string, TextHash> known;
  const auto shorten = [&](Json* id) {
    if (id == nullptr || !id->is_string()) return;
    const std::string& text = id->as_string();
    const bool is_short = text.size() == kSize && std::ranges::all_of(text, [](unsigned char c) {
                            return c < 0x80 && std::isalnum(c) != 0;
                          });
    if (is_short) return;
    const std::string number = std::to_string(known.size());
    const auto [found, is_new] = known.try_emplace(
        text, "call" + std::string(kSize - 4 - std::min(kSize - 4, number.size()), '0') + number);
    *id = found->second;
  };
  Json::Array out = messages.as_array();
  for (Json& message : out) {
    Json* const calls = message.Find("tool_calls");
    if (calls != nullptr && calls->is_array()) {
      for (Json& call : calls->as_array()) shorten(call.Find("id"));
    }
    shorten(message.Find("tool_call_id"));
  }
  return out;
}

// GLM's template goes through the arguments, which those of a call that was cut off have none.
Json WithArgumentsAsObjects(const Json& messages) {
  Json::Array out = messages.as_array();
  for (Json& message : out) {
    Json* const calls = message.Find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (Json& call : calls->as_array()) {
      Json& arguments = *call.Find("function")->Find("arguments");
      if (!arguments.is_object()) arguments = Json::Object();
    }
  }
  return out;
}

std::string OfferText(const Json& tools) {
  std::string text = "You can call functions that messages describe.";
  if (!tools.as_array().empty()) {
    text = "You can call these functions, each described by one line of JSON:\n<tools>\n";
    for (const Json& tool : tools.as_array()) text += tool.Find("function")->Dump() + "\n";
    text += "</tools>";
  }
  return text +
         "\nTo call one, write its name and arguments as a JSON object between tags:\n"
         "<tool_call>\n{\"name\": \"function\", \"arguments\": {}}\n</tool_call>";
}

std::string CallTexts(const Json& calls) {
  std::string text;
  for (const Json& call : calls.as_array()) {
    const Json& function = *call.Find("function");
    const Json* arguments = function.Find("arguments");
    const Json line = Json::Object{{"name", *function.Find("name")},
                                   {"arguments", arguments == nullptr ? Json() : *arguments}};
    if (!text.empty()) text += "\n";
    text.append("<tool_call>\n").append(line.Dump()).append("\n</tool_call>");
  }
  return text;
}

}  // namespace

bool HasShortCallIds(const ChatDialect& dialect) {
  return CallOpening(dialect.tools) == "[TOOL_CALLS]";
}

Json ToolsAsText(const Json& messages, const ToolRequest& tools) {
  Json::Array texts;
  if (tools.is_on()) {
    texts.push_back(Json::Object{{"role", "system"}, {"content", OfferText(tools.Shown())}});
  }
  bool is_result = false;  // the last of `texts` holds one
  std::string joined;      // to the last of `texts`; once, however many there are
  const auto join = [&] {
    if (!joined.empty()) AppendText(std::exchange(joined, {}), &texts.back());
  };
  for (const Json& message : messages.as_array()) {
    const std::string& role = message.Find("role")->as_string();
    Json text = message;
    if (const Json* calls = message.Find("tool_calls"); calls != nullptr && calls->is_array()) {
      AppendText(CallTexts(*calls), &text);
      // A template that writes calls of its own would write it once more.
      text = Without("tool_calls", text);
    }
    // "function": as a tool's results were called once.
    const bool is_tool = role == "tool" || role == "function";
    if (is_tool) {
      const std::string result = message.Find("content")->as_string();
      text = Json::Object{
          {"role", "user"},
          {"content",
           std::string("<tool_response>\n").append(result).append("\n</tool_response>")}};
    }
    // Many templates want roles to alternate. What tools there are stands in one message with the
    // system's.
    const std::string last = texts.empty() ? "" : texts.back().Find("role")->as_string();
    const std::string next = text.Find("role")->as_string();
    const bool joins =
        last == next && (is_tool || is_result || (tools.is_on() && texts.size() == 1));
    is_result = is_tool || (is_result && joins);
    if (joins) {
      if (!joined.empty()) joined += "\n";
      joined += text.Find("content")->as_string();
    } else {
      join();
      texts.push_back(std::move(text));
    }
  }
  join();
  return texts;
}

Json MessagesFor(const ServerContext& context, const ChatRequest& request) {
  const ChatDialect& dialect = context.dialect;
  if (!dialect.has_tools) {
    return ToolsAsText(context.bundle->WithSystem(request.messages), request.tools);
  }
  if (dialect.is_harmony()) return WithHarmonyTurns(request.messages);
  if (HasShortCallIds(dialect)) return WithShortCallIds(request.messages);
  switch (dialect.tools) {
    case ToolSyntax::kLfm2:
    case ToolSyntax::kOlmo3:
    case ToolSyntax::kPhi4Mini:
      return WithDialect(context, request);
    case ToolSyntax::kGlm:
      return WithArgumentsAsObjects(request.messages);
    default:
      return request.messages;
  }
}

}  // namespace kvasir
