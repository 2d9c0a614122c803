#include "kvasir/server/responses_request.h"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/server/request_fields.h"

namespace kvasir {
namespace {

// text.format as a chat request's response_format: the same, but for where the schema stands.
Result<Json> ResponseFormatOf(const Json& text) {
  if (!text.is_object()) return WrongType("text", "an object", text);
  const Json* format = FindSet(text, "format");
  if (format == nullptr) return Json();
  if (!format->is_object()) return WrongType("text.format", "an object", *format);
  KVASIR_TRY(const std::string type, format->GetStringOr("type", "text"));
  if (type != "json_schema") return *format;
  return Json(Json::Object{{"type", type}, {"json_schema", *format}});
}

constexpr std::array kUnsupported = {
    UnsupportedField{"previous_response_id", [](const Json&) { return false; },
                     "is not supported: this server stores no responses; send the whole input"},
    UnsupportedField{"conversation", [](const Json&) { return false; },
                     "is not supported: this server stores no responses; send the whole input"},
    UnsupportedField{"background", [](const Json& v) { return v.is_bool() && !v.as_bool(); },
                     "is not supported: this server stores no responses"},
};

// Fields that mean something else in a chat request, or are set below.
constexpr std::array<std::string_view, 20> kNotTaken = {
    "input",      "instructions", "metadata",      "store",           "include",
    "truncation", "reasoning",    "text",          "tools",           "tool_choice",
    "n",          "logprobs",     "top_logprobs",  "response_format", "stream_options",
    "messages",   "functions",    "function_call", "modalities",      "audio"};

// Tools that the client or its service runs, which this model never heard of. Agents offer them
// all.
constexpr std::array<std::string_view, 13> kToolsOfOthers = {"web_search",
                                                             "file_search",
                                                             "code_interpreter",
                                                             "image_generation",
                                                             "computer",
                                                             "mcp",
                                                             "local_shell",
                                                             "shell",
                                                             "apply_patch",
                                                             "custom",
                                                             "namespace",
                                                             "tool_search",
                                                             "programmatic_tool_calling"};

// Also in versions: "web_search_2025_08_26".
bool IsNameOfOthers(std::string_view type) {
  return std::ranges::any_of(kToolsOfOthers, [&](std::string_view name) {
    return type == name || type.starts_with(std::string(name) + "_");
  });
}

bool IsOfOthers(const Json& tool) {
  const Json* type = FindSet(tool, "type");
  return type != nullptr && type->is_string() && IsNameOfOthers(type->as_string());
}

// `include` asks for log-probabilities by this name, or top_logprobs does.
Status SetLogprobs(const Json& body, Json* chat) {
  const Json* include = FindSet(body, "include");
  const Json* top = FindSet(body, "top_logprobs");
  if (include != nullptr && !include->is_array()) return WrongType("include", "an array", *include);
  const bool is_included =
      include != nullptr &&
      std::ranges::find(include->as_array(), Json("message.output_text.logprobs")) !=
          include->as_array().end();
  if (top != nullptr) chat->Set("top_logprobs", *top);
  const bool is_wanted = is_included || (top != nullptr && *top != Json(0));
  if (is_wanted) chat->Set("logprobs", true);
  return {};
}

Result<std::string> TextOf(const Json& content, const std::string& field) {
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) return WrongType(field, "a string or an array of parts", content);
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& part = content.as_array()[i];
    const std::string name = field + "[" + std::to_string(i) + "]";
    if (!part.is_object()) return WrongType(name, "an object", part);
    KVASIR_TRY(const std::string type, part.GetStringOr("type", ""));
    const bool is_refusal = type == "refusal";
    if (!is_refusal && type != "input_text" && type != "output_text" && type != "text") {
      return FieldError(ErrorCode::kUnsupported, name + ".type",
                        "must be \"input_text\" or \"output_text\": this server reads no images "
                        "and files");
    }
    const char* const member = is_refusal ? "refusal" : "text";
    const Json* value = part.Find(member);
    if (value == nullptr || !value->is_string()) {
      return FieldError(ErrorCode::kCorrupt, name + "." + member, "must be a string");
    }
    text += value->as_string();
  }
  return text;
}

// The assistant's message that thoughts, text and calls standing side by side belong to.
Json& AssistantOf(Json::Array* messages) {
  const bool goes_on =
      !messages->empty() && messages->back().Find("role")->as_string() == "assistant";
  if (!goes_on) messages->push_back(Json::Object{{"role", "assistant"}, {"content", ""}});
  return messages->back();
}

Status AppendCall(const Json& item, const std::string& field, Json::Array* messages) {
  const Json* name = FindSet(item, "name");
  if (name == nullptr || !name->is_string()) {
    return FieldError(ErrorCode::kCorrupt, field + ".name", "must be a string");
  }
  const Json* id = FindSet(item, "call_id");
  Json arguments = "{}";
  if (const Json* given = FindSet(item, "arguments")) arguments = *given;
  // A tool of free text has it as its input.
  if (const Json* input = FindSet(item, "input")) arguments = Json::Object{{"input", *input}};
  Json function = Json::Object{{"name", *name}, {"arguments", std::move(arguments)}};
  Json& message = AssistantOf(messages);
  Json* calls = message.Find("tool_calls");
  if (calls == nullptr) calls = &message.Set("tool_calls", Json::Array());
  calls->Append(Json::Object{{"id", id == nullptr ? Json("") : *id},
                             {"type", "function"},
                             {"function", std::move(function)}});
  return {};
}

Status AppendThought(const Json& item, const std::string& field, Json::Array* messages) {
  const Json* content = FindSet(item, "content");
  if (content == nullptr || !content->is_array() || content->as_array().empty()) return {};
  std::string text;
  for (const Json& part : content->as_array()) {
    if (!part.is_object()) return WrongType(field + ".content", "an array of objects", part);
    KVASIR_TRY(const std::string piece, part.GetStringOr("text", ""));
    text += piece;
  }
  // Joined when all are there: a text that is copied for every item would take quadratic time.
  Json& message = AssistantOf(messages);
  Json* thoughts = message.Find("reasoning_content");
  if (thoughts == nullptr) thoughts = &message.Set("reasoning_content", Json::Array());
  thoughts->Append(std::move(text));
  return {};
}

Status AppendMessage(const Json& item, const std::string& field, Json::Array* messages) {
  const Json* role = item.Find("role");
  if (role == nullptr || !role->is_string()) {
    return FieldError(ErrorCode::kCorrupt, field + ".role", "must be a string");
  }
  const Json* content = item.Find("content");
  KVASIR_TRY(std::string text, TextOf(content == nullptr ? Json() : *content, field + ".content"));
  const bool is_thought_of = role->as_string() == "assistant" && !messages->empty() &&
                             messages->back().Find("reasoning_content") != nullptr &&
                             messages->back().Find("content")->as_string().empty();
  if (is_thought_of) {
    messages->back().Set("content", std::move(text));
  } else {
    messages->push_back(Json::Object{{"role", *role}, {"content", std::move(text)}});
  }
  return {};
}

// What tools of others did, which this model never heard of either.
bool IsLeftOut(std::string_view type) {
  constexpr std::array<std::string_view, 4> kLeftOut = {"compaction", "additional_tools",
                                                        "mcp_list_tools", "mcp_approval_request"};
  if (std::ranges::find(kLeftOut, type) != kLeftOut.end()) return true;
  for (const std::string_view end : {"_call", "_call_output", "_output"}) {
    if (!type.ends_with(end)) continue;
    const std::string_view tool = type.substr(0, type.size() - end.size());
    return tool != "function" && IsNameOfOthers(tool);
  }
  return false;
}

Status AppendItem(const Json& item, const std::string& field, Json::Array* messages) {
  if (!item.is_object()) return WrongType(field, "an object", item);
  KVASIR_TRY(const std::string type, item.GetStringOr("type", "message"));
  if (type == "message") return AppendMessage(item, field, messages);
  if (type == "reasoning") return AppendThought(item, field, messages);
  if (type == "function_call" || type == "custom_tool_call") {
    return AppendCall(item, field, messages);
  }
  const bool is_result = type == "function_call_output" || type == "custom_tool_call_output";
  if (!is_result && IsLeftOut(type)) return {};
  if (!is_result) {
    return FieldError(ErrorCode::kUnsupported, field + ".type",
                      "must be \"message\", \"reasoning\", \"function_call\" or "
                      "\"function_call_output\": this server runs no tools and stores nothing");
  }
  const Json* output = FindSet(item, "output");
  KVASIR_TRY(std::string text, TextOf(output == nullptr ? Json("") : *output, field + ".output"));
  const Json* id = FindSet(item, "call_id");
  messages->push_back(Json::Object{{"role", "tool"},
                                   {"tool_call_id", id == nullptr ? Json("") : *id},
                                   {"content", std::move(text)}});
  return {};
}

// The flat functions of this API as a chat request's tools; those of others are left out.
Result<Json> ToolsOf(const Json& tools) {
  if (!tools.is_array()) return WrongType("tools", "an array", tools);
  Json::Array chat;
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const Json& tool = tools.as_array()[i];
    const std::string field = "tools[" + std::to_string(i) + "]";
    if (!tool.is_object()) return WrongType(field, "an object", tool);
    if (IsOfOthers(tool)) continue;
    Json function = Json::Object();
    for (const std::string_view name : {"name", "description", "parameters", "strict"}) {
      if (const Json* value = FindSet(tool, name)) function.Set(name, *value);
    }
    const Json* type = FindSet(tool, "type");
    chat.push_back(Json::Object{{"type", type == nullptr ? Json() : *type},
                                {"function", std::move(function)}});
  }
  return Json(std::move(chat));
}

// A named function stands flat here, too.
Json NamedFunction(const Json& named) {
  const Json* name = named.Find("name");
  if (name == nullptr) return named;
  return Json::Object{{"type", "function"}, {"function", Json::Object{{"name", *name}}}};
}

// In the chat's form "allowed_tools" is an object of its own.
Json ToolChoiceOf(const Json& choice) {
  const Json* type = choice.Find("type");
  const Json* tools = choice.Find("tools");
  const bool is_list = type != nullptr && type->is_string() &&
                       type->as_string() == "allowed_tools" && tools != nullptr &&
                       tools->is_array();
  if (!is_list) return NamedFunction(choice);
  Json allowed = choice;
  Json::Array& named = allowed.Find("tools")->as_array();
  std::erase_if(named, IsOfOthers);
  for (Json& tool : named) tool = NamedFunction(tool);
  return Json::Object{{"type", "allowed_tools"}, {"allowed_tools", std::move(allowed)}};
}

Result<Json> MessagesOf(const Json& body) {
  Json::Array messages;
  KVASIR_TRY(std::string instructions, body.GetStringOr("instructions", ""));
  if (!instructions.empty()) {
    messages.push_back(Json::Object{{"role", "system"}, {"content", std::move(instructions)}});
  }
  const Json* input = FindSet(body, "input");
  if (input == nullptr) {
    return FieldError(ErrorCode::kCorrupt, "input", "is missing; give a string or an array");
  }
  if (input->is_string()) {
    messages.push_back(Json::Object{{"role", "user"}, {"content", *input}});
    return Json(std::move(messages));
  }
  if (!input->is_array()) return WrongType("input", "a string or an array of items", *input);
  for (size_t i = 0; i < input->as_array().size(); ++i) {
    const std::string field = "input[" + std::to_string(i) + "]";
    KVASIR_TRY_OK(AppendItem(input->as_array()[i], field, &messages));
  }
  if (messages.empty()) {
    return FieldError(ErrorCode::kInvalidArgument, "input", "must hold at least one message");
  }
  for (Json& message : messages) {
    Json* const thoughts = message.Find("reasoning_content");
    if (thoughts == nullptr) continue;
    std::string joined;
    for (const Json& thought : thoughts->as_array()) {
      joined = JoinThoughts(std::move(joined), thought.as_string());
    }
    *thoughts = std::move(joined);
  }
  return Json(std::move(messages));
}

}  // namespace

Result<Json> ChatBodyOfResponses(const Json& body) {
  KVASIR_TRY_OK(RequireObject(body));
  KVASIR_TRY_OK(RefuseUnsupported(body, kUnsupported));
  KVASIR_TRY(Json messages, MessagesOf(body));
  Json chat = FieldsBut(kNotTaken, body);
  if (const Json* tools = FindSet(body, "tools")) {
    KVASIR_TRY(Json chat_tools, ToolsOf(*tools));
    chat.Set("tools", std::move(chat_tools));
  }
  if (const Json* choice = FindSet(body, "tool_choice")) {
    chat.Set("tool_choice", ToolChoiceOf(*choice));
  }
  if (const Json* reasoning = FindSet(body, "reasoning")) {
    if (const Json* effort = reasoning->Find("effort")) chat.Set("reasoning_effort", *effort);
  }
  if (const Json* text = FindSet(body, "text")) {
    KVASIR_TRY(Json format, ResponseFormatOf(*text));
    chat.Set("response_format", std::move(format));
  }
  KVASIR_TRY_OK(SetLogprobs(body, &chat));
  KVASIR_TRY(const int64_t max_tokens, body.GetIntOr("max_output_tokens", -1));
  if (max_tokens != -1 && max_tokens < 1) {
    return FieldError(ErrorCode::kInvalidArgument, "max_output_tokens", "must be at least 1");
  }
  chat.Set("max_tokens", max_tokens);
  chat.Set("max_completion_tokens", nullptr);
  chat.Set("messages", std::move(messages));
  return chat;
}

}  // namespace kvasir
