// The public face of the template engine.
// Deliberately thin: parse, define the variables, run, cut into segments.
#include "kvasir/chat/chat_template.h"

#include <algorithm>
#include <utility>

#include "kvasir/chat/builtins.h"
#include "kvasir/chat/interpreter.h"
#include "kvasir/chat/message_roles.h"
#include "kvasir/chat/parser.h"

namespace kvasir {

using chat::Interpreter;
using chat::Origin;
using chat::Text;
using chat::Value;

// The largest published template has about 20 KB; a syntax tree takes up to 200 times its source.
constexpr size_t kMaxSourceBytes = size_t{512} << 10;

namespace {

// A message whose role, if it is a known one, is a word of the template's own: some make marks of
// it, "<|" + role + "|>" (Phi-4-mini, Zephyr).
Result<Value> MessageFromJson(const Json& message, chat::Runtime* runtime) {
  if (!message.is_object()) return runtime->FromJson(message, Origin::kInput);
  chat::Dict dict;
  for (const auto& [key, json] : message.as_object()) {
    const bool is_known = key == "role" && json.is_string() && IsMessageRole(json.as_string());
    KVASIR_TRY(Value value, runtime->FromJson(json, is_known ? Origin::kTemplate : Origin::kInput));
    dict.Set(runtime->String(key, Origin::kInput), std::move(value));
  }
  return runtime->DictValue(std::move(dict));
}

Result<Value> MessagesFromJson(const Json& messages, chat::Runtime* runtime) {
  if (!messages.is_array()) return runtime->FromJson(messages, Origin::kInput);
  std::vector<Value> values;
  values.reserve(messages.as_array().size());
  for (const Json& message : messages.as_array()) {
    KVASIR_TRY(Value value, MessageFromJson(message, runtime));
    values.push_back(std::move(value));
  }
  return runtime->List(std::move(values));
}

}  // namespace

struct ChatTemplate::Tree {
  chat::Body body;
};

ChatTemplate::ChatTemplate(std::string name, std::unique_ptr<const Tree> tree)
    : name_(std::move(name)), tree_(std::move(tree)) {}

ChatTemplate::~ChatTemplate() = default;

Result<std::unique_ptr<const ChatTemplate>> ChatTemplate::Parse(std::string_view source,
                                                                std::string name) {
  if (source.size() > kMaxSourceBytes) {
    return Error{ErrorCode::kResourceExhausted, name + ": a chat template of more than " +
                                                    std::to_string(kMaxSourceBytes) +
                                                    " bytes is refused"};
  }
  auto body = chat::ParseTemplate(source);
  if (!body.ok()) return Error{body.error().code, name + ":" + body.error().message};
  auto tree = std::make_unique<Tree>();
  tree->body = std::move(body).value();
  return std::unique_ptr<const ChatTemplate>(new ChatTemplate(std::move(name), std::move(tree)));
}

Result<TextSegments> ChatTemplate::Render(const Json& variables,
                                          const RenderOptions& options) const {
  if (!variables.is_object()) {
    return Error{ErrorCode::kInvalidArgument,
                 name_ + ": the variables of a chat template must be an object, not " +
                     std::string(variables.type_name())};
  }
  Interpreter interpreter(options.limits);
  chat::DefineBuiltins(&interpreter, options.local_seconds);
  const auto& trusted = options.trusted_variables;
  for (const auto& [name, json] : variables.as_object()) {
    const bool is_trusted = std::find(trusted.begin(), trusted.end(), name) != trusted.end();
    auto value = is_trusted           ? interpreter.FromJson(json, Origin::kTemplate)
                 : name == "messages" ? MessagesFromJson(json, &interpreter)
                                      : interpreter.FromJson(json, Origin::kInput);
    if (!value.ok()) return WithContext(value.error(), name_ + ": variable '" + name + "'");
    interpreter.Define(name, std::move(value).value());
  }
  auto text = interpreter.Run(tree_->body);
  if (!text.ok()) return Error{text.error().code, name_ + ":" + text.error().message};
  TextSegments segments;
  size_t begin = 0;
  for (const Text::Run& run : text->runs()) {
    segments.push_back(
        {text->bytes().substr(begin, run.end_bytes - begin), run.origin == Origin::kTemplate});
    begin = run.end_bytes;
  }
  return segments;
}

std::string Concatenate(const TextSegments& segments) {
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

}  // namespace kvasir
