#include "kvasir/engine/system_message.h"

#include <optional>
#include <string>

namespace kvasir {
namespace {

constexpr const char* kProbe = "a system message";

// What the template makes of a message by the user, with a system message before it if one is
// given; nullopt if it refuses that.
std::optional<std::string> Rendered(const ChatTemplateSet& chat, const char* system) {
  Json::Array messages;
  if (system != nullptr) messages.push_back(Json::Object{{"role", "system"}, {"content", system}});
  messages.push_back(Json::Object{{"role", "user"}, {"content", "a question"}});
  const Json variables = Json::Object{
      {"messages", std::move(messages)}, {"tools", nullptr}, {"add_generation_prompt", true}};
  RenderOptions options;
  options.local_seconds = 0;  // some write the date
  const auto text = chat.Render(variables, options);
  return text.ok() ? std::optional<std::string>(Concatenate(*text)) : std::nullopt;
}

}  // namespace

bool BeginsWithSystem(const Json& messages) {
  if (!messages.is_array() || messages.as_array().empty()) return false;
  const Json* const role = messages.as_array().front().Find("role");
  return role != nullptr && (*role == Json("system") || *role == Json("developer"));
}

bool TakesSystem(const ChatTemplateSet& chat) {
  const auto with = Rendered(chat, kProbe);
  if (with && with->find(kProbe) != std::string::npos) return true;
  // One that refuses this as well wants something else.
  return !Rendered(chat, nullptr);
}

Json SystemInFirstTurn(const Json& messages) {
  const Json::Array& all = messages.as_array();
  const Json* const system = all.front().Find("content");
  if (system == nullptr || !system->is_string()) return messages;
  Json::Array rest(all.begin() + 1, all.end());
  const Json* const role = rest.empty() ? nullptr : rest.front().Find("role");
  if (role == nullptr || *role != Json("user")) {
    rest.insert(rest.begin(), Json::Object{{"role", "user"}, {"content", *system}});
    return rest;
  }
  Json& content = rest.front().Set("content", *rest.front().Find("content"));
  const std::string text = system->as_string() + "\n\n";
  if (content.is_string()) {
    content = text + content.as_string();
  } else if (content.is_array()) {
    Json::Array& parts = content.as_array();
    parts.insert(parts.begin(), Json::Object{{"type", "text"}, {"text", text}});
  }
  return rest;
}

}  // namespace kvasir
