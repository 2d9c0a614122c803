#include "kvasir/convert/package_chat.h"

#include <optional>

#include "kvasir/chat/template_loader.h"

namespace kvasir {
namespace {

constexpr std::string_view kAsJinja = " (templates are Jinja, as in chat_template.jinja)";

// Nothing when there is none.
Result<std::optional<ChatTemplateSet>> TemplateOf(const ModelSource& source,
                                                  const std::string& chat_template) {
  std::optional<ChatTemplateSet> none;
  if (!chat_template.empty()) {
    Json special = Json::Object();
    for (const std::string& name : RenderOptions().trusted_variables) special.Set(name, "");
    auto given = ChatTemplateSet::FromSource(chat_template, "TEMPLATE", std::move(special));
    if (!given.ok())
      return Error{given.error().code, given.error().message + std::string(kAsJinja)};
    return std::optional(*std::move(given));
  }
  if (source.checkpoint() == nullptr) {  // a GGUF file: its metadata as the files of a folder
    const SourceFile* const file = source.FindFile("tokenizer_config.json");
    if (file == nullptr) return none;
    KVASIR_TRY(Json config, Json::Parse(file->contents));
    const Json* const found = config.Find("chat_template");
    if (found == nullptr || !found->is_string()) return none;
    const std::string text = found->as_string();
    auto given = ChatTemplateSet::FromSource(text, source.path() + ":tokenizer.chat_template",
                                             std::move(config));
    if (!given.ok()) return given.error();
    return std::optional(*std::move(given));
  }
  auto own = ChatTemplateSet::Load(source.path());
  if (own.ok()) return std::optional(*std::move(own));
  if (own.error().code == ErrorCode::kNotFound) return none;
  return own.error();
}

}  // namespace

Result<std::string> PackageTemplate(const ModelSource& source, const std::string& chat_template) {
  KVASIR_TRY(const auto chat, TemplateOf(source, chat_template));
  return chat ? chat->source() : std::string();
}

Status CheckPackageChat(const ModelSource& source, const std::string& chat_template,
                        const std::string& system) {
  if (chat_template.empty() && system.empty()) return {};  // nothing that could be at odds
  KVASIR_TRY(const auto chat, TemplateOf(source, chat_template));
  if (!chat) return {};
  constexpr const char* kSaid = "Hello";
  Json messages = Json::Array();
  if (!system.empty()) {
    messages.Append(Json::Object{{"role", "system"}, {"content", system}});
  }
  messages.Append(Json::Object{{"role", "user"}, {"content", kSaid}});
  RenderOptions options;
  options.local_seconds = 0;
  const auto rendered = chat->Render(
      Json::Object{
          {"messages", std::move(messages)}, {"tools", nullptr}, {"add_generation_prompt", true}},
      options);
  if (!rendered.ok()) {
    return {ErrorCode::kInvalidArgument,
            (chat_template.empty() ? "SYSTEM does not go with the model's chat template: " : "") +
                rendered.error().message +
                (chat_template.empty() ? "; leave SYSTEM out, or give a TEMPLATE that shows it"
                                       : std::string(kAsJinja))};
  }
  if (Concatenate(*rendered).find(kSaid) != std::string::npos) return {};
  return {ErrorCode::kInvalidArgument,
          "TEMPLATE does not show what a user says" + std::string(kAsJinja)};
}

}  // namespace kvasir
