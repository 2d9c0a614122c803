#include "kvasir/server/messages_request.h"

#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/server/message_tools.h"
#include "kvasir/server/request_fields.h"

namespace kvasir {
namespace {

bool HasType(const Json& value, std::string_view type) {
  const Json* found = value.Find("type");
  return found != nullptr && found->is_string() && found->as_string() == type;
}

// Fields that mean something else in a chat request, or are set below.
constexpr std::array<std::string_view, 16> kNotTaken = {
    "stop_sequences", "messages",        "system",         "metadata", "thinking",
    "service_tier",   "tools",           "tool_choice",    "n",        "logprobs",
    "top_logprobs",   "response_format", "stream_options", "stop",     "output_config",
    "output_format"};

// A system message may also come later (ChatTurns).
bool IsRole(std::string_view name) {
  return name == "user" || name == "assistant" || name == "system";
}

Status MissingText(const std::string& field) {
  return FieldError(ErrorCode::kCorrupt, field, "must be a string");
}

// A system block that Claude Code writes for its own service before everything else, other words
// in every conversation: nothing behind it would ever be found in a cache.
bool IsBilling(const Json& block) {
  const Json* text = block.Find("text");
  return text != nullptr && text->is_string() &&
         text->as_string().starts_with("x-anthropic-billing-header:");
}

class BlockReader {
 public:
  explicit BlockReader(MessageTools* tools) : tools_(tools) {}

  // Text, or an array of blocks that can be read as text; others are refused by their name.
  Result<std::string> Text(const Json& content, const std::string& field) {
    if (content.is_string()) return content.as_string();
    if (!content.is_array()) return WrongType(field, "a string or an array of blocks", content);
    std::string text;
    for (size_t i = 0; i < content.as_array().size(); ++i) {
      const std::string name = field + "[" + std::to_string(i) + "]";
      KVASIR_TRY(const std::string piece, Block(content.as_array()[i], name));
      text += piece;
    }
    return text;
  }

  Result<std::string> Block(const Json& block, const std::string& field) {
    if (!block.is_object()) return WrongType(field, "an object", block);
    if (HasType(block, "tool_reference")) {
      KVASIR_TRY(const std::string tool, block.GetString("tool_name"));
      return tools_->Reference(tool);
    }
    if (HasType(block, "document")) return Document(block, field);
    if (HasType(block, "search_result")) {
      KVASIR_TRY(const std::string source, block.GetStringOr("source", ""));
      return Titled(block, source, FindSet(block, "content"), field + ".content");
    }
    if (!HasType(block, "text")) {
      return FieldError(ErrorCode::kUnsupported, field + ".type",
                        "must be \"text\" here: this server reads nothing else");
    }
    const Json* value = block.Find("text");
    if (value == nullptr || !value->is_string()) return MissingText(field + ".text").error();
    return value->as_string();
  }

 private:
  // {"source": {"type": "text", "data"} or {"type": "content", "content"}, "title", "context"}
  Result<std::string> Document(const Json& block, const std::string& field) {
    KVASIR_TRY(const std::string context, block.GetStringOr("context", ""));
    const Json* const source = FindSet(block, "source");
    const bool is_object = source != nullptr && source->is_object();
    if (is_object && HasType(*source, "text")) {
      return Titled(block, context, FindSet(*source, "data"), field + ".source.data");
    }
    if (is_object && HasType(*source, "content")) {
      return Titled(block, context, FindSet(*source, "content"), field + ".source.content");
    }
    return FieldError(ErrorCode::kUnsupported, field + ".source.type",
                      "must be \"text\" or \"content\": this server reads no files");
  }

  // What the block says of itself, a line each, then its text.
  Result<std::string> Titled(const Json& block, const std::string& about, const Json* content,
                             const std::string& field) {
    if (content == nullptr) return WrongType(field, "a string or an array of blocks", Json());
    KVASIR_TRY(std::string text, block.GetStringOr("title", ""));
    if (!text.empty()) text += "\n";
    if (!about.empty()) text += about + "\n";
    KVASIR_TRY(const std::string body, Text(*content, field));
    return text + body + "\n";
  }

  MessageTools* tools_;
};

// {"type": "tool_use", "id", "name", "input"} as a tool call of a chat message.
Result<Json> CallOf(const Json& block, const std::string& field) {
  const Json* name = FindSet(block, "name");
  if (name == nullptr || !name->is_string()) return MissingText(field + ".name").error();
  const Json* input = FindSet(block, "input");
  const Json* id = FindSet(block, "id");
  Json function = Json::Object{{"name", *name},
                               {"arguments", input == nullptr ? Json(Json::Object()) : *input}};
  return Json(Json::Object{{"id", id == nullptr ? Json("") : *id},
                           {"type", "function"},
                           {"function", std::move(function)}});
}

// A message of blocks as chat messages: results of tools first, each one of its own.
Status AppendBlocks(const Json& role, const Json& content, const std::string& field,
                    BlockReader* reader, Json::Array* messages) {
  std::string text;
  std::string thoughts;
  Json::Array calls;
  const bool is_assistant = role.as_string() == "assistant";
  const bool is_user = role.as_string() == "user";
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& block = content.as_array()[i];
    const std::string name = field + "[" + std::to_string(i) + "]";
    if (!block.is_object()) return WrongType(name, "an object", block);
    if (HasType(block, "redacted_thinking")) continue;
    if (HasType(block, "thinking")) {
      KVASIR_TRY(const std::string thought, block.GetStringOr("thinking", ""));
      thoughts = JoinThoughts(std::move(thoughts), thought);
    } else if (is_assistant && HasType(block, "tool_use")) {
      KVASIR_TRY(Json call, CallOf(block, name));
      calls.push_back(std::move(call));
    } else if (is_user && HasType(block, "tool_result")) {
      const Json* result = FindSet(block, "content");
      KVASIR_TRY(std::string result_text,
                 reader->Text(result == nullptr ? Json("") : *result, name + ".content"));
      const Json* id = FindSet(block, "tool_use_id");
      messages->push_back(Json::Object{{"role", "tool"},
                                       {"tool_call_id", id == nullptr ? Json("") : *id},
                                       {"content", std::move(result_text)}});
    } else {
      KVASIR_TRY(const std::string piece, reader->Block(block, name));
      text += piece;
    }
  }
  const bool is_only_results = is_user && text.empty() && !messages->empty();
  if (is_only_results && messages->back().Find("role")->as_string() == "tool") return {};
  Json message = Json::Object{{"role", role}, {"content", std::move(text)}};
  if (!thoughts.empty()) message.Set("reasoning_content", std::move(thoughts));
  if (!calls.empty()) message.Set("tool_calls", std::move(calls));
  messages->push_back(std::move(message));
  return {};
}

Status SetThinking(const Json& thinking, Json* chat) {
  if (HasType(thinking, "adaptive")) return {};
  const bool is_on = HasType(thinking, "enabled");
  if (!is_on && !HasType(thinking, "disabled")) {
    return FieldError(ErrorCode::kInvalidArgument, "thinking.type",
                      "must be \"enabled\", \"disabled\" or \"adaptive\"");
  }
  chat->Set("enable_thinking", is_on);
  return {};
}

// {"format": {"type": "json_schema", "schema"}, "effort"}; the format stood in output_format once.
Status SetOutput(const Json& body, Json* chat) {
  const Json* config = FindSet(body, "output_config");
  const Json* format = FindSet(body, "output_format");
  std::string field = "output_format";
  if (config != nullptr) {
    if (!config->is_object()) return WrongType("output_config", "an object", *config);
    if (const Json* effort = FindSet(*config, "effort")) {
      if (!effort->is_string()) return WrongType("output_config.effort", "a string", *effort);
      chat->Set("reasoning_effort", *effort);
    }
    if (FindSet(*config, "format") != nullptr) {
      format = config->Find("format");
      field = "output_config.format";
    }
  }
  if (format == nullptr) return {};
  if (!format->is_object()) return WrongType(field, "an object", *format);
  const Json* schema = FindSet(*format, "schema");
  if (!HasType(*format, "json_schema") || schema == nullptr) {
    return FieldError(ErrorCode::kInvalidArgument, field,
                      "must be {\"type\": \"json_schema\", \"schema\": ...}");
  }
  if (!schema->is_object() && !schema->is_bool()) {
    return WrongType(field + ".schema", "a JSON schema", *schema);
  }
  chat->Set("response_format", Json::Object{{"type", "json_schema"},
                                            {"json_schema", Json::Object{{"schema", *schema}}}});
  return {};
}

Result<Json> MessagesOf(const Json& body, BlockReader* reader) {
  Json::Array messages;
  if (const Json* given_system = FindSet(body, "system")) {
    Json system = *given_system;
    if (system.is_array()) std::erase_if(system.as_array(), IsBilling);
    KVASIR_TRY(std::string text, reader->Text(system, "system"));
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
    if (role == nullptr || !role->is_string() || !IsRole(role->as_string())) {
      return FieldError(ErrorCode::kInvalidArgument, field + ".role",
                        "must be \"user\", \"assistant\" or \"system\"");
    }
    const Json* content = FindSet(message, "content");
    const std::string content_field = field + ".content";
    if (content != nullptr && content->is_array()) {
      KVASIR_TRY_OK(AppendBlocks(*role, *content, content_field, reader, &messages));
      continue;
    }
    KVASIR_TRY(std::string text,
               reader->Text(content == nullptr ? Json() : *content, content_field));
    messages.push_back(Json::Object{{"role", *role}, {"content", std::move(text)}});
  }
  return Json(std::move(messages));
}

}  // namespace

Result<Json> ChatBodyOfMessages(const Json& body, MaxTokensRule rule) {
  KVASIR_TRY_OK(RequireObject(body));
  if (rule == MaxTokensRule::kRequired) {
    KVASIR_TRY(const int64_t tokens, body.GetInt("max_tokens"));
    if (tokens < 1) {
      return FieldError(ErrorCode::kInvalidArgument, "max_tokens", "must be at least 1");
    }
  }
  KVASIR_TRY(MessageTools tools, MessageTools::Parse(FindSet(body, "tools")));
  BlockReader reader(&tools);
  KVASIR_TRY(Json messages, MessagesOf(body, &reader));
  Json chat = FieldsBut(kNotTaken, body);
  if (const Json* stops = FindSet(body, "stop_sequences")) {
    if (!stops->is_array()) return WrongType("stop_sequences", "an array of strings", *stops);
    for (const Json& stop : stops->as_array()) {
      if (!stop.is_string()) return WrongType("stop_sequences", "an array of strings", stop);
    }
    chat.Set("stop", *stops);
  }
  if (FindSet(body, "tools") != nullptr) chat.Set("tools", tools.ChatTools());
  if (const Json* choice = FindSet(body, "tool_choice")) {
    KVASIR_TRY_OK(SetToolChoice(*choice, &chat));
  }
  if (const Json* thinking = FindSet(body, "thinking")) {
    KVASIR_TRY_OK(SetThinking(*thinking, &chat));
  }
  KVASIR_TRY_OK(SetOutput(body, &chat));
  chat.Set("messages", std::move(messages));
  return chat;
}

}  // namespace kvasir
