// Messages as templates take them: calls and results as turns, as text or with ids as a family has
// them, and tools where it looks for them.
// Deliberately not the order of turns, which chat_turns.h asks the template for.
#ifndef KVASIR_SERVER_DIALECT_MESSAGES_H_
#define KVASIR_SERVER_DIALECT_MESSAGES_H_

#include "kvasir/base/json.h"
#include "kvasir/chat/chat_dialect.h"
#include "kvasir/server/chat_request.h"
#include "kvasir/server/server_context.h"
#include "kvasir/server/tool_request.h"

namespace kvasir {

// The request's messages for the model's template. Where HasCallMarks
// (call_marks.h), the prompt needs them still.
Json MessagesFor(const ServerContext& context, const ChatRequest& request);

// The messages for a template that knows no tools: offers, calls and results as text, in the form
// that ToolSyntax::kHermes reads.
Json ToolsAsText(const Json& messages, const ToolRequest& tools);

// Mistral's have nine letters and digits.
bool HasShortCallIds(const ChatDialect& dialect);

}  // namespace kvasir

#endif  // KVASIR_SERVER_DIALECT_MESSAGES_H_
