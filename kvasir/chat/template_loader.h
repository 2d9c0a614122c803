// ChatTemplateSet: the chat templates and special tokens of a model folder.
// Deliberately not the tokenizer: the tokens are only texts here.
#ifndef KVASIR_CHAT_TEMPLATE_LOADER_H_
#define KVASIR_CHAT_TEMPLATE_LOADER_H_

#include <memory>
#include <string>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/text_segment.h"
#include "kvasir/chat/chat_template.h"

namespace kvasir {

class ChatTemplateSet {
 public:
  // Reads `folder`/chat_template.jinja, else chat_template.json, else the field chat_template of
  // tokenizer_config.json (one template, or a list of {name, template}); the template named
  // "tool_use" may also stand in additional_chat_templates/tool_use.jinja. Special tokens come from
  // tokenizer_config.json, what is missing there from special_tokens_map.json.
  // ERRORS: kNotFound when there is no template; kCorrupt, kIo, kUnsupported. The message names the
  // file and the field.
  static Result<ChatTemplateSet> Load(const std::string& folder);

  // One template that lies elsewhere, in a GGUF file say; `origin` is what errors call it.
  // `special_tokens` is an object as special_tokens() gives it. ERRORS: as ChatTemplate::Parse.
  static Result<ChatTemplateSet> FromSource(const std::string& source, const std::string& origin,
                                            Json special_tokens);

  // The one for requests with tools, likewise.
  Status AddToolUse(const std::string& source, const std::string& origin) {
    return Add("tool_use", source, origin);
  }

  // The template for these variables: "tool_use" when there is one and `tools` is given, else the
  // default one.
  const ChatTemplate& For(const Json& variables) const;

  // The text of all its templates.
  const std::string& source() const { return source_; }

  // An object of those special tokens that the folder defines: bos_token, eos_token, ... as
  // strings.
  const Json& special_tokens() const { return special_tokens_; }

  // For(variables).Render() with the special tokens of the folder. Members of `variables` that have
  // the name of a trusted variable are dropped: a request cannot bring its own special tokens.
  // ERRORS: as ChatTemplate::Render.
  Result<TextSegments> Render(const Json& variables, const RenderOptions& options = {}) const;

 private:
  ChatTemplateSet() = default;

  Status Add(const std::string& name, const std::string& source, const std::string& origin);
  Status ReadTemplates(const std::string& folder, const Json& config);
  Status ReadField(const std::string& path, const Json& field);
  Status ReadSpecialTokens(const std::string& path, const Json& config);

  std::unique_ptr<const ChatTemplate> default_;
  std::unique_ptr<const ChatTemplate> tool_use_;
  std::string source_;
  Json special_tokens_{Json::Object{}};
};

}  // namespace kvasir

#endif  // KVASIR_CHAT_TEMPLATE_LOADER_H_
