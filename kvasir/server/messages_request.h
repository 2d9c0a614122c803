// Anthropic's POST /v1/messages, brought into the form of a chat request.
// Deliberately a translation only: everything but the shape is judged by ParseChatRequest.
#ifndef KVASIR_SERVER_MESSAGES_REQUEST_H_
#define KVASIR_SERVER_MESSAGES_REQUEST_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

enum class MaxTokensRule { kRequired, kOptional };  // optional for count_tokens

// `body` as the body of a chat request: `system` becomes the first message, blocks of text become
// strings, stop_sequences becomes stop. cache_control and metadata mean nothing here: all prompts
// are cached. tool_use and tool_result blocks become calls and messages of tools, `thinking`
// becomes enable_thinking (its budget is not counted). ERRORS: as ParseChatRequest; images are
// kUnsupported.
Result<Json> ChatBodyOfMessages(const Json& body, MaxTokensRule rule);

}  // namespace kvasir

#endif  // KVASIR_SERVER_MESSAGES_REQUEST_H_
