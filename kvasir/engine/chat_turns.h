// ChatTurns: conversations as a chat template takes them. Some have no system message (Gemma 2, the
// first Mistral), some none but at the beginning (Qwen3.5, Gemma 4), some no user who speaks behind
// the results of tools (Mistral). Agents send all of it.
// Deliberately by asking the template: what it does with such messages no name of a model says.
#ifndef KVASIR_ENGINE_CHAT_TURNS_H_
#define KVASIR_ENGINE_CHAT_TURNS_H_

#include "kvasir/base/json.h"
#include "kvasir/chat/template_loader.h"

namespace kvasir {

// A conversation begins with a system message; some templates call it developer's.
bool BeginsWithSystem(const Json& messages);

// What a template writes, in its place, instead of refusing it, leaving it out or moving it.
struct ChatTurns {
  bool takes_system = true;
  bool takes_late_system = true;  // behind other messages
  bool takes_user_behind_result = true;
  bool takes_neighbours = true;    // two turns of the user, or of the assistant
  bool takes_system_alone = true;  // without anybody who asks

  static ChatTurns Of(const ChatTemplateSet& chat);

  // The messages (an array of {role, content}) as the template takes them, two line ends between
  // texts that are joined. Late system messages become texts of the user, in one turn with those
  // of the user beside them, and never between calls and their results; what the user says behind
  // a result belongs to it; several system messages at the beginning are one; and without system
  // messages that one is the beginning of the user's first turn; neighbours who are one and the
  // same speak in one turn. What was said before stays as it was, and with it what is cached.
  Json Apply(const Json& messages) const;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_CHAT_TURNS_H_
