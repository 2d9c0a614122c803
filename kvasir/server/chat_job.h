// What a chat request becomes: a prompt, what its answer is held to, and how that is read. For all
// APIs that have messages.
// Deliberately without formats: routes add theirs.
#ifndef KVASIR_SERVER_CHAT_JOB_H_
#define KVASIR_SERVER_CHAT_JOB_H_

#include <optional>

#include "kvasir/base/text_segment.h"
#include "kvasir/server/chat_request.h"
#include "kvasir/server/route_answer.h"

namespace kvasir {

// The prompt as text. ERRORS: from the template.
Result<TextSegments> ChatPrompt(const ServerContext& context, const ChatRequest& request);

// Sets `count` to the prompt's size in tokens, {"input_tokens": n}. Null when all is well.
std::optional<ApiError> CountChatTokens(const ServerContext& context, const ChatRequest& request,
                                        Json* count);

// Sets everything of `job` but its format. Null when all is well.
std::optional<ApiError> MakeChatJob(const ServerContext& context, const ChatRequest& request,
                                    AnswerJob* job);

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_JOB_H_
