// Regular expressions of JSON schema ("pattern"), as expressions over the characters of a string.
// Deliberately a subset of ECMA-262: what a grammar cannot say exactly is refused by name.
#ifndef KVASIR_GRAMMAR_JSON_PATTERN_H_
#define KVASIR_GRAMMAR_JSON_PATTERN_H_

#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/grammar/json_text.h"

namespace kvasir {

// The inside of a JSON string some part of which matches `pattern`. Supported: characters, escapes,
// classes, . \d \w \s and their complements, groups, |, * + ? {m,n} (lazy too), ^ at the beginning
// and $ at the end of the pattern or of one of its outermost alternatives.
// ERRORS: kUnsupported names look-around, back-references, word boundaries, Unicode properties and
// other anchors; kInvalidArgument names what is malformed. Both give the byte.
Result<GrammarSyntax::Expr> TranslatePattern(std::string_view pattern, GrammarSyntax* syntax,
                                             JsonText* json);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_JSON_PATTERN_H_
