// Plain text: valid UTF-8 without quotation marks, backslashes and control characters, which is
// what most tokens are and what every JSON string may contain. Deliberately a table-free automaton
// of eight states: it runs beside a grammar's.
#ifndef KVASIR_GRAMMAR_PLAIN_TEXT_H_
#define KVASIR_GRAMMAR_PLAIN_TEXT_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace kvasir {

// kBoundary between characters; the others say what the next byte must be (Unicode 15, table 3-7).
enum class PlainState : uint8_t { kBoundary, kLast, kTwo, kThree, kE0, kED, kF0, kF4 };
inline constexpr int kPlainStates = 8;

// Empty where `byte` cannot follow.
std::optional<PlainState> NextPlain(PlainState state, uint8_t byte);

// The characters of a plain text; empty if `bytes` is none or cuts a character.
std::optional<int> PlainCharacters(std::string_view bytes);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_PLAIN_TEXT_H_
