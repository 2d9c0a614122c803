// What \p{...}, [:...:], \s and \w mean in Oniguruma, in the words of PCRE2.
// Deliberately not the data itself: the tables are PCRE2's (Unicode 14 in version 10.42).
#ifndef KVASIR_TOKENIZER_REGEX_PROPERTY_H_
#define KVASIR_TOKENIZER_REGEX_PROPERTY_H_

#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

// White_Space; PCRE2's own \s has U+180E as well.
inline constexpr std::string_view kRegexSpaceMembers =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
// Alphabetic, marks, decimal digits and connectors: \w inside a class.
inline constexpr std::string_view kRegexWordMembers = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Six numbers of Latin-1, which in Oniguruma are words to \w, \b and \p{Word} but not to [\w].
inline constexpr std::string_view kRegexOddWordMembers = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";

struct RegexProperty {
  std::string members;  // for the inside of a [...]
  // True: what `members` do not match. Only where they are not a single \p{...}.
  bool negated = false;

  RegexProperty Negated() const;
};

// The property of a \p{name}: general categories by short or long name, POSIX names, binary
// properties, and else scripts (without script extensions, unlike PCRE2's own \p{Han}). Case,
// '_', '-' and blanks do not matter. An unknown script is an error of the later compilation.
// ERRORS: kUnsupported for a name with other characters.
Result<RegexProperty> FindRegexProperty(std::string_view name);

// The property of a [:name:], which for "punct" and "word" is another one than that of \p{...}.
// ERRORS: kUnsupported for an unknown name.
Result<RegexProperty> FindPosixBracket(std::string_view name);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_REGEX_PROPERTY_H_
