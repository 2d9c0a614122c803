// System messages for templates that have none, as Gemma 2's and the first Mistral's, or none but
// at the beginning, as Qwen3.5's.
// Deliberately by asking the template: what it does with such a message no name of a model says.
#ifndef KVASIR_ENGINE_SYSTEM_MESSAGE_H_
#define KVASIR_ENGINE_SYSTEM_MESSAGE_H_

#include "kvasir/base/json.h"
#include "kvasir/chat/template_loader.h"

namespace kvasir {

// A conversation begins with a system message; some templates call it developer's.
bool BeginsWithSystem(const Json& messages);

// Whether a template writes such a message, instead of refusing it or leaving it out.
bool TakesSystem(const ChatTemplateSet& chat);

// Whether a template writes system messages that come later, too.
bool TakesLateSystem(const ChatTemplateSet& chat);

// The messages with later system messages as texts of the user, in one turn with those of the user
// that stand beside them, and those at the beginning in one message; two line ends between texts.
// What was said before stays as it was, and with it what is cached.
Json LateSystemInTurns(const Json& messages);

// The messages with the system's text at the beginning of the user's first turn, two line ends
// between them. REQUIRES: BeginsWithSystem.
Json SystemInFirstTurn(const Json& messages);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SYSTEM_MESSAGE_H_
