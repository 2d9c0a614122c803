// The messages of a chat request, brought into the form that chat templates read.
// Deliberately not the template's judge: which roles may follow each other is its business.
#ifndef KVASIR_SERVER_CHAT_MESSAGES_H_
#define KVASIR_SERVER_CHAT_MESSAGES_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

// `messages`: what the request holds under that name. Content of several text parts becomes one
// string, null content of an assistant the empty one; "developer" becomes "system", which is what
// the templates of the models this engine runs call it. ERRORS: as ParseChatRequest.
Result<Json> NormalizeMessages(Json messages);

}  // namespace kvasir

#endif  // KVASIR_SERVER_CHAT_MESSAGES_H_
