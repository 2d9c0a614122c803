// Messages as the templates of LFM2, OLMo 3 and Phi-4-mini take them: calls as text where a
// template leaves them out, and tools where it looks for them. Deliberately not gpt-oss's, whose
// calls are turns (chat_job.cc), nor the order of turns, which chat_turns.h asks the template for.
#ifndef KVASIR_SERVER_DIALECT_MESSAGES_H_
#define KVASIR_SERVER_DIALECT_MESSAGES_H_

#include "kvasir/base/json.h"
#include "kvasir/base/text_segment.h"
#include "kvasir/chat/chat_dialect.h"
#include "kvasir/server/tool_request.h"

namespace kvasir {

// REQUIRES: normal messages (chat_messages.h), in the order that the template takes (ChatTurns),
// and without marks where HasCallMarks; the dialect's template has tools.
Json WithDialect(const Json& messages, const ToolRequest& tools, const ChatDialect& dialect);

// Whether it writes calls as text between marks that should be what a template would write: single
// tokens, unlike all else of a message. Until the prompt is there, characters stand for them that
// are none (U+FDD0, U+FDD1).
bool HasCallMarks(const ChatDialect& dialect);
// What a request brings, without those characters.
Json WithoutCallMarks(Json value);
// The prompt with the marks in their places, trusted. REQUIRES: HasCallMarks.
TextSegments WithCallMarks(const TextSegments& prompt, const ChatDialect& dialect);

}  // namespace kvasir

#endif  // KVASIR_SERVER_DIALECT_MESSAGES_H_
