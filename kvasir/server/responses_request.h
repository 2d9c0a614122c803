// OpenAI's POST /v1/responses, brought into the form of a chat request.
// Deliberately without memory: what refers to stored responses is refused.
#ifndef KVASIR_SERVER_RESPONSES_REQUEST_H_
#define KVASIR_SERVER_RESPONSES_REQUEST_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

// `body` as the body of a chat request: instructions become the first message, input items
// messages, max_output_tokens max_tokens. ERRORS: as ParseChatRequest; images and
// stored responses are kUnsupported; what is wrong with text.format is said of "response_format".
Result<Json> ChatBodyOfResponses(const Json& body);

}  // namespace kvasir

#endif  // KVASIR_SERVER_RESPONSES_REQUEST_H_
