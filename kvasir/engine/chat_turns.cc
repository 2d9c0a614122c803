#include "kvasir/engine/chat_turns.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

namespace kvasir {
namespace {

constexpr std::string_view kBetween = "\n\n";

Json Message(const char* role, std::string content) {
  return Json::Object{{"role", role}, {"content", std::move(content)}};
}

bool IsOf(const Json& message, std::string_view role) {
  const Json* const found = message.Find("role");
  return found != nullptr && found->is_string() && found->as_string() == role;
}

bool IsSystem(const Json& message) { return IsOf(message, "system") || IsOf(message, "developer"); }
bool IsResult(const Json& message) { return IsOf(message, "tool") || IsOf(message, "function"); }

// Null where it is no text.
const std::string* TextOf(const Json& message, std::string_view member = "content") {
  const Json* const content = message.Find(member);
  return content != nullptr && content->is_string() ? &content->as_string() : nullptr;
}

// Asks a template.
class Probe {
 public:
  explicit Probe(const ChatTemplateSet& chat) : chat_(chat) {
    if (Rendered({Message("user", "a question")})) return;
    // Some refuse every chat without tools (Hermes 2 Pro's for tools).
    const Json parameters = Json::Object{
        {"type", "object"}, {"properties", Json::Object()}, {"required", Json::Array()}};
    tools_ = Json::Array{Json::Object{
        {"type", "function"},
        {"function",
         Json::Object{{"name", "look"}, {"description", "Looks."}, {"parameters", parameters}}}}};
  }

  // What the template makes of these; nullopt if it refuses them.
  std::optional<std::string> Rendered(Json::Array messages) const {
    const Json variables = Json::Object{
        {"messages", std::move(messages)}, {"tools", tools_}, {"add_generation_prompt", true}};
    RenderOptions options;
    options.local_seconds = 0;  // some write the date
    const auto text = chat_.Render(variables, options);
    return text.ok() ? std::optional<std::string>(Concatenate(*text)) : std::nullopt;
  }

  // Whether it writes the text of each of them, one behind the other.
  bool Writes(const Json::Array& messages) const {
    const auto text = Rendered(messages);
    if (!text) return false;
    size_t at = 0;
    for (const Json& message : messages) {
      const std::string& content = *TextOf(message);
      at = text->find(content, at);
      if (at == text->npos) return false;
      at += content.size();
    }
    return true;
  }

 private:
  const ChatTemplateSet& chat_;
  Json tools_;
};

bool TakesSystem(const Probe& probe) {
  const Json user = Message("user", "a question");
  if (probe.Writes({Message("system", "a system message"), user})) return true;
  // One that refuses this as well wants something else.
  return !probe.Rendered({user});
}

bool TakesLateSystem(const Probe& probe, bool takes_system) {
  const Json system = Message("system", "a late system message");
  const Json user = Message("user", "a question");
  const Json next = Message("user", "one more question");
  return probe.Writes({user, system}) && probe.Writes({user, system, next}) &&
         probe.Writes({user, Message("assistant", "an answer"), system, next}) &&
         (!takes_system || probe.Writes({Message("system", "the first one"), user, system, next}));
}

bool TakesUserBehindResult(const Probe& probe) {
  Json call = Message("assistant", "");
  call.Set("tool_calls",
           Json::Array{Json::Object{
               {"id", "abcdefghi"},  // Mistral's have nine characters
               {"type", "function"},
               {"function", Json::Object{{"name", "look"}, {"arguments", Json::Object()}}}}});
  Json result = Message("tool", "the result");
  result.Set("tool_call_id", "abcdefghi");
  result.Set("name", "look");
  Json::Array messages = {Message("user", "a question"), std::move(call), std::move(result)};
  if (!probe.Writes(messages)) return true;  // it has no tools
  messages.push_back(Message("user", "one more question"));
  return probe.Writes(messages);
}

bool TakesNeighbours(const Probe& probe) {
  const Json user = Message("user", "a question");
  const Json next = Message("user", "one more question");
  const Json answer = Message("assistant", "an answer");
  if (!probe.Writes({user, answer, next})) return true;  // it wants something else
  return probe.Writes({user, next}) &&
         probe.Writes({user, answer, Message("assistant", "more of it"), next});
}

// System messages between calls and their results come behind them.
Json::Array WithResultsAtTheirCalls(const Json::Array& messages) {
  Json::Array ordered;
  Json::Array held;
  const auto release = [&] {
    ordered.insert(ordered.end(), held.begin(), held.end());
    held.clear();
  };
  for (const Json& message : messages) {
    const bool is_behind_call = !ordered.empty() && (ordered.back().Find("tool_calls") != nullptr ||
                                                     (IsResult(ordered.back()) && !held.empty()));
    if (IsSystem(message) && is_behind_call) {
      held.push_back(message);
      continue;
    }
    if (!IsResult(message)) release();
    ordered.push_back(message);
  }
  release();
  return ordered;
}

void Append(const std::string& text, std::string* joined) {
  if (!joined->empty() && !text.empty()) *joined += kBetween;
  *joined += text;
}

// Messages side by side whose texts become one.
struct Joined {
  size_t end;
  std::string text;
};
template <typename Joins>
Joined JoinedFrom(size_t begin, const Json::Array& messages, const Joins& joins) {
  Joined joined = {begin, ""};
  for (size_t& end = joined.end; end < messages.size() && joins(messages[end]); ++end) {
    Append(*TextOf(messages[end]), &joined.text);
  }
  return joined;
}

// The first system messages are one, later ones are the user's.
Json::Array LateSystemInTurns(const Json::Array& all) {
  Json::Array turns;
  for (size_t begin = 0; begin < all.size();) {
    // Messages that become one: the first system messages, or of user and system.
    const bool is_front = begin == 0 && IsSystem(all[0]);
    const auto joins = [&](const Json& message) {
      return TextOf(message) != nullptr &&
             (IsSystem(message) || (!is_front && IsOf(message, "user")));
    };
    auto [end, text] = JoinedFrom(begin, all, joins);
    const std::span<const Json> run =
        std::span(all).subspan(begin, std::max(end - begin, size_t{1}));
    if (end > begin && std::ranges::any_of(run, IsSystem)) {
      Json turn = is_front ? all[begin] : Message("user", "");
      turn.Set("content", std::move(text));
      turns.push_back(std::move(turn));
    } else {
      turns.insert(turns.end(), run.begin(), run.end());
      end = begin + run.size();
    }
    begin = end;
  }
  return turns;
}

// What the user says behind a result becomes its end.
Json::Array UsersInResults(const Json::Array& messages) {
  Json::Array turns;
  std::string text;  // of the last of `turns`, a result, and what was said to it
  bool is_more = false;
  const auto finish = [&] {
    if (std::exchange(is_more, false)) turns.back().Set("content", std::move(text));
    text.clear();
  };
  for (const Json& message : messages) {
    const std::string* const said = TextOf(message);
    const bool is_behind = !turns.empty() && IsResult(turns.back()) &&
                           TextOf(turns.back()) != nullptr && IsOf(message, "user");
    if (is_behind && said != nullptr) {
      if (!std::exchange(is_more, true)) text = *TextOf(turns.back());
      text.append(kBetween).append(*said);
      continue;
    }
    finish();
    turns.push_back(message);
  }
  finish();
  return turns;
}

// Turns of the user, and of the assistant without calls, that stand side by side become one, and
// the assistant's thoughts.
Json::Array NeighboursJoined(const Json::Array& messages) {
  Json::Array turns;
  for (size_t begin = 0; begin < messages.size();) {
    const Json& first = messages[begin];
    const auto joins = [&](const Json& message) {
      const bool is_same = (IsOf(first, "user") && IsOf(message, "user")) ||
                           (IsOf(first, "assistant") && IsOf(message, "assistant"));
      return is_same && TextOf(message) != nullptr && message.Find("tool_calls") == nullptr;
    };
    auto [end, text] = JoinedFrom(begin, messages, joins);
    Json turn = first;
    if (end > begin + 1) {
      turn.Set("content", std::move(text));
      std::string thoughts;
      for (size_t i = begin; i < end; ++i) {
        const std::string* const thought = TextOf(messages[i], "reasoning_content");
        if (thought != nullptr) Append(*thought, &thoughts);
      }
      if (!thoughts.empty()) turn.Set("reasoning_content", std::move(thoughts));
    }
    turns.push_back(std::move(turn));
    begin = std::max(end, begin + 1);
  }
  return turns;
}

// The system's text at the beginning of the user's first turn.
Json::Array SystemInFirstTurn(const Json::Array& all) {
  const std::string* const system = TextOf(all.front());
  if (system == nullptr) return all;
  Json::Array rest(all.begin() + 1, all.end());
  if (system->empty() && !rest.empty()) return rest;
  if (rest.empty() || !IsOf(rest.front(), "user") || rest.front().Find("content") == nullptr) {
    rest.insert(rest.begin(), Message("user", *system));
    return rest;
  }
  Json& content = rest.front().Set("content", *rest.front().Find("content"));
  const std::string text = *system + std::string(kBetween);
  if (content.is_string()) {
    content = text + content.as_string();
  } else if (content.is_array()) {
    Json::Array& parts = content.as_array();
    parts.insert(parts.begin(), Json::Object{{"type", "text"}, {"text", text}});
  }
  return rest;
}

}  // namespace

bool BeginsWithSystem(const Json& messages) {
  return messages.is_array() && !messages.as_array().empty() &&
         IsSystem(messages.as_array().front());
}

ChatTurns ChatTurns::Of(const ChatTemplateSet& chat) {
  const Probe probe(chat);
  ChatTurns turns;
  turns.takes_system = TakesSystem(probe);
  turns.takes_late_system = TakesLateSystem(probe, turns.takes_system);
  turns.takes_user_behind_result = TakesUserBehindResult(probe);
  turns.takes_neighbours = TakesNeighbours(probe);
  turns.takes_system_alone = probe.Writes({Message("system", "a system message")});
  return turns;
}

Json ChatTurns::Apply(const Json& messages) const {
  if (!messages.is_array()) return messages;
  Json conversation = WithResultsAtTheirCalls(messages.as_array());
  if (!takes_late_system) conversation = LateSystemInTurns(conversation.as_array());
  if (!takes_user_behind_result) conversation = UsersInResults(conversation.as_array());
  const bool is_alone = conversation.as_array().size() == 1;
  if ((!takes_system || (is_alone && !takes_system_alone)) && BeginsWithSystem(conversation)) {
    conversation = SystemInFirstTurn(conversation.as_array());
  }
  if (!takes_neighbours) conversation = NeighboursJoined(conversation.as_array());
  return conversation;
}

}  // namespace kvasir
