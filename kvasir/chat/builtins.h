// The global functions of a template: range, dict, namespace, cycler, joiner, raise_exception,
// strftime_now.
// Deliberately not lipsum: it is random.
#ifndef KVASIR_CHAT_BUILTINS_H_
#define KVASIR_CHAT_BUILTINS_H_

#include <cstdint>
#include <optional>

#include "kvasir/chat/interpreter.h"

namespace kvasir::chat {

// `local_seconds`: the time to show, as seconds since 1970-01-01 00:00 on the local clock; without
// it strftime_now is an error.
void DefineBuiltins(Interpreter* interpreter, std::optional<int64_t> local_seconds);

// datetime.strftime in the C locale. ERRORS: kInvalidArgument for times outside of the
// years 1..9999.
Result<std::string> FormatTime(std::string_view format, int64_t local_seconds);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_BUILTINS_H_
