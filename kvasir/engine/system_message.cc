#include "kvasir/engine/system_message.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace kvasir {
namespace {

constexpr const char* kProbe = "a system message";

constexpr std::string_view kBetween = "\n\n";

Json Message(const char* role, std::string content) {
  return Json::Object{{"role", role}, {"content", std::move(content)}};
}

bool IsOf(const Json& message, std::string_view role) {
  const Json* const found = message.Find("role");
  return found != nullptr && found->is_string() && found->as_string() == role;
}

bool IsSystem(const Json& message) { return IsOf(message, "system") || IsOf(message, "developer"); }

// What the template makes of these; nullopt if it refuses them.
std::optional<std::string> Rendered(const ChatTemplateSet& chat, Json::Array messages) {
  const Json variables = Json::Object{
      {"messages", std::move(messages)}, {"tools", nullptr}, {"add_generation_prompt", true}};
  RenderOptions options;
  options.local_seconds = 0;  // some write the date
  const auto text = chat.Render(variables, options);
  return text.ok() ? std::optional<std::string>(Concatenate(*text)) : std::nullopt;
}

bool Writes(const ChatTemplateSet& chat, Json::Array messages) {
  const auto text = Rendered(chat, std::move(messages));
  return text && text->find(kProbe) != std::string::npos;
}

}  // namespace

bool BeginsWithSystem(const Json& messages) {
  return messages.is_array() && !messages.as_array().empty() &&
         IsSystem(messages.as_array().front());
}

bool TakesSystem(const ChatTemplateSet& chat) {
  if (Writes(chat, {Message("system", kProbe), Message("user", "a question")})) return true;
  // One that refuses this as well wants something else.
  return !Rendered(chat, {Message("user", "a question")});
}

bool TakesLateSystem(const ChatTemplateSet& chat) {
  const Json system = Message("system", kProbe);
  const Json user = Message("user", "a question");
  return Writes(chat, {user, system}) && Writes(chat, {user, system, user}) &&
         Writes(chat, {user, Message("assistant", "an answer"), system, user});
}

Json LateSystemInTurns(const Json& messages) {
  if (!messages.is_array()) return messages;
  const Json::Array& all = messages.as_array();
  Json::Array turns;
  for (size_t begin = 0; begin < all.size();) {
    // Messages that become one: the first system messages, or of user and system.
    const bool is_front = begin == 0 && IsSystem(all[0]);
    const auto joins = [&](const Json& message) {
      const Json* const content = message.Find("content");
      const bool is_text = content != nullptr && content->is_string();
      return is_text && (IsSystem(message) || (!is_front && IsOf(message, "user")));
    };
    size_t end = begin;
    bool has_system = false;
    std::string text;
    for (; end < all.size() && joins(all[end]); ++end) {
      has_system = has_system || IsSystem(all[end]);
      if (end > begin) text += kBetween;
      text += all[end].Find("content")->as_string();
    }
    if (has_system && (is_front || end > begin)) {
      Json turn = is_front ? all[begin] : Message("user", "");
      turn.Set("content", std::move(text));
      turns.push_back(std::move(turn));
    } else {
      end = std::max(end, begin + 1);
      turns.insert(turns.end(), all.begin() + static_cast<std::ptrdiff_t>(begin),
                   all.begin() + static_cast<std::ptrdiff_t>(end));
    }
    begin = end;
  }
  return turns;
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
