#include "kvasir/server/message_tools.h"

#include <string_view>
#include <utility>

#include "kvasir/server/request_fields.h"

namespace kvasir {
namespace {

// Those that are found count as others do; there may be more that nobody has found yet.
constexpr size_t kMostMessageTools = 10'000;

// {"type": "function", "function": ...}
Json ChatTool(const Json& function) {
  return Json::Object{{"type", "function"}, {"function", function}};
}

Json FunctionOf(const Json& tool) {
  Json function = Json::Object();
  for (const auto& [from, to] : {std::pair{"name", "name"},
                                 {"description", "description"},
                                 {"strict", "strict"},
                                 {"input_schema", "parameters"}}) {
    if (const Json* value = FindSet(tool, from)) function.Set(to, *value);
  }
  return function;
}

}  // namespace

Result<MessageTools> MessageTools::Parse(const Json* tools) {
  MessageTools parsed;
  if (tools == nullptr) return parsed;
  if (!tools->is_array()) return WrongType("tools", "an array", *tools);
  if (tools->as_array().size() > kMostMessageTools) {
    return FieldError(ErrorCode::kInvalidArgument, "tools",
                      "must hold at most " + std::to_string(kMostMessageTools) + " of them");
  }
  bool shows_all = false;
  for (size_t i = 0; i < tools->as_array().size(); ++i) {
    const Json& tool = tools->as_array()[i];
    const std::string field = "tools[" + std::to_string(i) + "]";
    if (!tool.is_object()) return WrongType(field, "an object", tool);
    const Json* type = FindSet(tool, "type");
    const std::string name = type != nullptr && type->is_string() ? type->as_string() : "";
    if (name.starts_with("tool_search_tool_")) {
      shows_all = true;
      continue;
    }
    if (type != nullptr && name != "custom") {
      return FieldError(ErrorCode::kUnsupported, field + ".type",
                        "must be \"custom\": this server runs no tools of its own");
    }
    bool is_deferred = false;
    if (const Json* given = FindSet(tool, "defer_loading")) {
      if (!given->is_bool()) return WrongType(field + ".defer_loading", "true or false", *given);
      is_deferred = given->as_bool();
    }
    if (const Json* own = FindSet(tool, "name"); own != nullptr && own->is_string()) {
      parsed.by_name_.try_emplace(own->as_string(), parsed.tools_.size());
    }
    parsed.tools_.push_back({.function = FunctionOf(tool), .is_deferred = is_deferred});
  }
  if (shows_all) {
    for (Tool& tool : parsed.tools_) tool.is_deferred = false;
  }
  return parsed;
}

std::string MessageTools::Reference(const std::string& name) {
  const auto known = by_name_.find(name);
  Tool* const tool = known == by_name_.end() ? nullptr : &tools_[known->second];
  if (tool == nullptr || !tool->is_deferred || std::exchange(tool->is_found, true)) {
    return "(the tool " + name + ")";
  }
  return "The tool " + name + " can be called from now on:\n" + ChatTool(tool->function).Dump() +
         "\n";
}

Json MessageTools::ChatTools() const {
  Json::Array chat;
  for (const Tool& tool : tools_) {
    if (tool.is_deferred && !tool.is_found) continue;
    Json shown = ChatTool(tool.function);
    if (tool.is_deferred) shown.Set("defer_loading", true);
    chat.push_back(std::move(shown));
  }
  return chat;
}

Status SetToolChoice(const Json& choice, Json* chat) {
  if (!choice.is_object()) return WrongType("tool_choice", "an object", choice);
  const Json* type = choice.Find("type");
  const std::string kind = type != nullptr && type->is_string() ? type->as_string() : "";
  if (FindSet(choice, "disable_parallel_tool_use") != nullptr) {
    KVASIR_TRY(const bool is_single, choice.GetBool("disable_parallel_tool_use"));
    chat->Set("parallel_tool_calls", !is_single);
  }
  if (kind == "auto" || kind == "none") {
    chat->Set("tool_choice", kind);
  } else if (kind == "any") {
    chat->Set("tool_choice", "required");
  } else if (kind == "tool") {
    const Json* name = FindSet(choice, "name");
    if (name == nullptr || !name->is_string()) {
      return FieldError(ErrorCode::kCorrupt, "tool_choice.name", "must be a string");
    }
    Json function = Json::Object{{"name", *name}};
    chat->Set("tool_choice", Json::Object{{"type", "function"}, {"function", std::move(function)}});
  } else {
    return FieldError(ErrorCode::kInvalidArgument, "tool_choice.type",
                      "must be \"auto\", \"any\", \"tool\" or \"none\"");
  }
  return {};
}

}  // namespace kvasir
