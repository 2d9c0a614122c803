// Marks around calls that became the text of a message: what a template would write as single
// tokens, unlike all else of a message.
// Deliberately by characters that stand for them until the prompt is rendered: only then is known
// where text of the template ends and text of messages begins.
#ifndef KVASIR_SERVER_CALL_MARKS_H_
#define KVASIR_SERVER_CALL_MARKS_H_

#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/text_segment.h"
#include "kvasir/chat/chat_dialect.h"

namespace kvasir {

// Noncharacters, which no text is to have.
inline constexpr std::string_view kCallOpeningPlace = "\uFDD0";
inline constexpr std::string_view kCallClosingPlace = "\uFDD1";

// Whether calls become text between marks.
bool HasCallMarks(const ChatDialect& dialect);
// What a request brings, without those characters.
Json WithoutCallMarks(Json value);
// The prompt with the marks in their places, trusted. REQUIRES: HasCallMarks.
TextSegments WithCallMarks(const TextSegments& prompt, const ChatDialect& dialect);

}  // namespace kvasir

#endif  // KVASIR_SERVER_CALL_MARKS_H_
