// Messages as the templates of LFM2, OLMo 3 and Phi-4-mini take them: calls as text where a
// template leaves them out, and tools where it looks for them. Deliberately not gpt-oss's, whose
// calls are turns (chat_job.cc), nor the order of turns, which chat_turns.h asks the template for.
#ifndef KVASIR_SERVER_DIALECT_MESSAGES_H_
#define KVASIR_SERVER_DIALECT_MESSAGES_H_

#include "kvasir/base/json.h"
#include "kvasir/chat/chat_dialect.h"
#include "kvasir/server/tool_request.h"

namespace kvasir {

// REQUIRES: normal messages (chat_messages.h); the dialect's template has tools.
Json WithDialect(const Json& messages, const ToolRequest& tools, const ChatDialect& dialect);

// Calls as this family writes them. REQUIRES: kLfm2, kOlmo3 or kPhi4Mini; normal calls.
std::string CallsAsText(const Json& calls, ToolSyntax syntax);

}  // namespace kvasir

#endif  // KVASIR_SERVER_DIALECT_MESSAGES_H_
