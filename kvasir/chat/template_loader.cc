// Finding the templates of a model folder, in the order that transformers looks.
// Deliberately without directory listings: the names of the files are fixed.
#include "kvasir/chat/template_loader.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

constexpr const char* kSpecialTokenNames[] = {"bos_token", "eos_token", "pad_token", "unk_token",
                                              "sep_token", "cls_token", "mask_token"};

Result<Json> ReadObjectIfPresent(const std::string& path) {
  if (!FileExists(path)) return Json(Json::Object{});
  KVASIR_TRY(Json json, Json::ParseFile(path, kMostTextBytes));
  if (json.is_object()) return json;
  return Error{ErrorCode::kCorrupt,
               path + ": must hold a JSON object, not " + std::string(json.type_name())};
}

}  // namespace

Status ChatTemplateSet::Add(const std::string& name, const std::string& source,
                            const std::string& origin) {
  if (name != "default" && name != "tool_use") return Status();
  KVASIR_TRY(auto parsed, ChatTemplate::Parse(source, origin));
  (name == "default" ? default_ : tool_use_) = std::move(parsed);
  source_ += source;
  return Status();
}

// A template, or a list of named ones.
Status ChatTemplateSet::ReadField(const std::string& path, const Json& field) {
  const std::string place = path + ": field 'chat_template'";
  if (field.is_string()) return Add("default", field.as_string(), path + ":chat_template");
  if (!field.is_array()) {
    return Error{ErrorCode::kCorrupt,
                 place + " must be a string or a list, not " + std::string(field.type_name())};
  }
  for (const Json& entry : field.as_array()) {
    const auto name = entry.GetString("name");
    const auto source = entry.GetString("template");
    if (!name.ok()) return WithContext(name.error(), place);
    if (!source.ok()) return WithContext(source.error(), place);
    KVASIR_TRY_OK(Add(*name, *source, path + ":chat_template[" + *name + "]"));
  }
  if (default_ != nullptr) return Status();
  return Error{ErrorCode::kCorrupt, place + " has no template named 'default'"};
}

Status ChatTemplateSet::ReadTemplates(const std::string& folder, const Json& config) {
  const std::string tool_use_path = folder + "/additional_chat_templates/tool_use.jinja";
  const std::string jinja_path = folder + "/chat_template.jinja";
  const std::string json_path = folder + "/chat_template.json";
  if (FileExists(jinja_path)) {
    KVASIR_TRY(const std::string source, ReadFile(jinja_path, kMostTextBytes));
    KVASIR_TRY_OK(Add("default", source, jinja_path));
  } else {
    KVASIR_TRY(const Json json, ReadObjectIfPresent(json_path));
    const std::string config_path = folder + "/tokenizer_config.json";
    const Json* field = json.Find("chat_template");
    const bool in_json = field != nullptr && !field->is_null();
    if (!in_json) field = config.Find("chat_template");
    if (field != nullptr && !field->is_null()) {
      KVASIR_TRY_OK(ReadField(in_json ? json_path : config_path, *field));
    }
  }
  if (FileExists(tool_use_path)) {
    KVASIR_TRY(const std::string source, ReadFile(tool_use_path, kMostTextBytes));
    KVASIR_TRY_OK(Add("tool_use", source, tool_use_path));
  }
  if (default_ != nullptr) return Status();
  return Error{ErrorCode::kNotFound,
               folder +
                   ": no chat template; put one into chat_template.jinja, or use plain "
                   "completions with this model"};
}

// A token is a string or an object {"content": string}; null is none.
Status ChatTemplateSet::ReadSpecialTokens(const std::string& path, const Json& config) {
  for (const char* name : kSpecialTokenNames) {
    const Json* token = config.Find(name);
    if (token == nullptr || token->is_null() || special_tokens_.Find(name) != nullptr) continue;
    const Json* content = token->is_object() ? token->Find("content") : token;
    if (content == nullptr || !content->is_string()) {
      return Error{ErrorCode::kCorrupt,
                   path + ": field '" + name + "' must be a string or an object with a 'content'"};
    }
    special_tokens_.Set(name, *content);
  }
  return Status();
}

Result<ChatTemplateSet> ChatTemplateSet::Load(const std::string& folder) {
  const std::string config_path = folder + "/tokenizer_config.json";
  const std::string map_path = folder + "/special_tokens_map.json";
  ChatTemplateSet set;
  KVASIR_TRY(const Json config, ReadObjectIfPresent(config_path));
  KVASIR_TRY(const Json map, ReadObjectIfPresent(map_path));
  KVASIR_TRY_OK(set.ReadTemplates(folder, config));
  KVASIR_TRY_OK(set.ReadSpecialTokens(config_path, config));
  KVASIR_TRY_OK(set.ReadSpecialTokens(map_path, map));
  return set;
}

Result<ChatTemplateSet> ChatTemplateSet::FromSource(const std::string& source,
                                                    const std::string& origin,
                                                    Json special_tokens) {
  ChatTemplateSet set;
  KVASIR_TRY_OK(set.Add("default", source, origin));
  set.special_tokens_ = std::move(special_tokens);
  return set;
}

const ChatTemplate& ChatTemplateSet::For(const Json& variables) const {
  const Json* tools = variables.Find("tools");
  const bool has_tools = tools != nullptr && !tools->is_null();
  return has_tools && tool_use_ != nullptr ? *tool_use_ : *default_;
}

Result<TextSegments> ChatTemplateSet::Render(const Json& variables,
                                             const RenderOptions& options) const {
  if (!variables.is_object()) return default_->Render(variables, options);
  const auto& trusted = options.trusted_variables;
  Json all = special_tokens_;
  for (const auto& [name, value] : variables.as_object()) {
    if (std::find(trusted.begin(), trusted.end(), name) == trusted.end()) all.Set(name, value);
  }
  return For(variables).Render(all, options);
}

}  // namespace kvasir
