// From the regex syntax of tokenizer.json (Oniguruma, Ruby flavour) to the one of PCRE2.
// Deliberately not a parser of regular expressions: it rewrites the few constructs that differ and
// leaves the rest, and all error checking, to the compiler behind it.
#ifndef KVASIR_TOKENIZER_REGEX_SYNTAX_H_
#define KVASIR_TOKENIZER_REGEX_SYNTAX_H_

#include <string>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

// Rewrites, to Oniguruma's meaning under Unicode:
//   \s \S \w \W \h \H \v \O \uXXXX   also inside classes, but \W and \H only outside
//   \b \B                  by the same idea of a word as \w
//   \p{...} [:...:]        see regex_property.h
//   [a[b-c]] [a&&[^b]]     nested classes and intersections
//   x{,n}                  {0,n}
//   x{n,m}+                greedy repetition of a repetition (PCRE2 would read possessive)
//   (?m: (?m)              "dot matches newline" is m in Ruby, s in PCRE2
// ERRORS: kUnsupported where Oniguruma's meaning cannot be expressed.
Result<std::string> TranslateRegexSyntax(std::string_view pattern);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_REGEX_SYNTAX_H_
