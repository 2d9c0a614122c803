// Prompts that end within an assistant's last message, so that the answer goes on with it.
// Deliberately by a mark behind its text, found again in what the template made: templates trim,
// cut and wrap messages, and only they know what stands before one.
#ifndef KVASIR_CHAT_UNFINISHED_ANSWER_H_
#define KVASIR_CHAT_UNFINISHED_ANSWER_H_

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/base/text_segment.h"

namespace kvasir {

// What an assistant's message is that comes last in a conversation.
enum class LastAnswer {
  kUnfinished,  // the begin of the answer: it goes on where the text ends
  kFinished,    // followed by an answer of its own
};

// Whether the last of `messages` is an assistant's with text and without calls of tools.
bool EndsUnfinished(const Json& messages);
// `messages` with the mark behind the last one's text. ERRORS: kInvalidArgument if the message
// before it is an assistant's too. REQUIRES: EndsUnfinished.
Result<Json> MarkEnd(Json messages);
// The rendered prompt up to the mark. ERRORS: kInvalidArgument if the template has left it out.
Result<TextSegments> UpToMark(TextSegments prompt);

}  // namespace kvasir

#endif  // KVASIR_CHAT_UNFINISHED_ANSWER_H_
