// What the escapes of a string literal in Python mean; for templates and for calls in Python.
// Deliberately without names of characters (\N{...}), which would need their table.
#ifndef KVASIR_CHAT_PYTHON_ESCAPES_H_
#define KVASIR_CHAT_PYTHON_ESCAPES_H_

#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir::chat {

// `raw`: what stands between the quotation marks. An escape that Python does not know stays as it
// is written; surrogates in pairs become one character, others U+FFFD, as text is UTF-8.
// ERRORS: kInvalidArgument for \N and for \x, \u and \U without their digits.
Result<std::string> UnescapePython(std::string_view raw);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_PYTHON_ESCAPES_H_
