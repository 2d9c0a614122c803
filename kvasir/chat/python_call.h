// Tool calls that are calls in Python, f(city="Paris", days=3), with literals as arguments.
// Deliberately nothing else of Python: no positions, names or operators; what holds any is no call.
#ifndef KVASIR_CHAT_PYTHON_CALL_H_
#define KVASIR_CHAT_PYTHON_CALL_H_

#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/chat/call_text.h"

namespace kvasir {

// One or more calls and nothing else: a list of them ("[f(a=1), g()]"), or one per line; in either
// form commas, semicolons and line ends may stand between them.
//
// Values are strings (all of Python's but bytes and formatted ones; \/ is a slash, as JSON has it),
// numbers, lists, tuples, dicts, True, False and None, or JSON's true, false and null. An argument,
// or a key of a dict, that is given twice counts as it was given last; keys that are no strings are
// strings of what they would be as values. A number keeps its digits, however many, but for
// hexadecimal, octal and binary ones, of 64 bits at most. Texts of more than 4 MiB, and calls whose
// arguments have more levels than Json::Parse reads, are no calls.
//
// Models that were shown strings between marks that nobody escaped write them so: from the first
// call on that cannot be read otherwise, a mark ends a string only if what may follow a value
// follows.
std::optional<std::vector<CallText>> ParsePythonCalls(std::string_view text);

// The calls that `text` begins with, which are taken off it, with what may stand around them.
std::vector<CallText> TakePythonCalls(std::string_view* text);

// Whether an argument may have this name, so that it is read as it was written.
bool IsPythonKeyword(std::string_view name);

// Whether `text` ends within a string of a call, so that more of it may make it one: what stands
// before is calls and the begin of one.
bool EndsInPythonString(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_CHAT_PYTHON_CALL_H_
