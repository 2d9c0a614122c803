// The methods that Python's str, list, tuple, dict, int and float offer to a template.
// Deliberately none that changes its object: the sandbox of the reference refuses those.
#ifndef KVASIR_CHAT_METHODS_H_
#define KVASIR_CHAT_METHODS_H_

#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/chat/runtime.h"
#include "kvasir/chat/value.h"

namespace kvasir::chat {

using StringMethod = Result<Value> (*)(Runtime&, const Text& self, const CallArguments&);
using ValueMethod = Result<Value> (*)(Runtime&, const Value& self, const CallArguments&);

// nullptr when str has no such method.
StringMethod FindStringMethod(std::string_view name);
// Likewise for every other type.
ValueMethod FindValueMethod(const Value& self, std::string_view name);

bool HasMethod(const Value& self, std::string_view name);
// A callable that keeps `self`. REQUIRES: HasMethod(self, name).
Value BindMethod(const Value& self, std::string_view name);

// ---- Text operations that filters share with methods --------------------------------------------

enum class Ends { kLeft, kRight, kBoth };
// Without white space, or without the code points of *characters, at the given ends.
Text Strip(const Text& text, Ends ends, const Text* characters);
// Every `from` replaced, `count` times at most if that is not negative. Origins are kept.
Result<Text> Replace(Runtime& runtime, const Text& text, const Text& from, const Text& to,
                     int64_t count);
// Lines as str.splitlines() cuts them, without their ends.
std::vector<Text> SplitLines(const Text& text);
// Padded with `fill` to `width` code points.
// kCenter puts the odd blank where str.center() does, kMiddle where format() does.
enum class Align { kLeft, kRight, kCenter, kMiddle };
Result<Text> Pad(Runtime& runtime, const Text& text, int64_t width, Align align, const Text& fill);

enum class LetterCase { kUpper, kLower, kCapitalize, kTitle, kSwap, kFold };
// Every code point keeps its origin.
Text ChangeCase(const Text& text, LetterCase letter_case);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_METHODS_H_
