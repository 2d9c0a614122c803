// ChatRequest: the body of POST /v1/chat/completions, checked and resolved.
// Deliberately without sockets, tokens and model: any text can be thrown at it.
#ifndef KVASIR_SERVER_CHAT_REQUEST_H_
#define KVASIR_SERVER_CHAT_REQUEST_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/chat/unfinished_answer.h"
#include "kvasir/server/request_fields.h"
#include "kvasir/server/tool_request.h"

namespace kvasir {

struct ChatRequest : GenerationFields {
  // Objects {role, content, ...} as the template reads them: content is a string, the role
  // "developer" has become "system", other members are as they came. Not empty.
  Json messages;
  Json template_variables;  // chat_template_kwargs and what else sets some: an object
  ToolRequest tools;
  bool reads_thoughts = true;  // reasoning_format; false: they stay in the text
  // What an assistant's message that comes last is: the begin of the answer, or one of its own.
  LastAnswer last_answer = LastAnswer::kUnfinished;
};

// `body` is consumed. Fields nobody knows are ignored, null means absent. ERRORS: kCorrupt for
// wrong types, kInvalidArgument for values out of range, kUnsupported for what this server cannot
// do yet; the message begins with "field 'name'".
Result<ChatRequest> ParseChatRequest(Json body, const ChatDefaults& defaults);

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_REQUEST_H_
