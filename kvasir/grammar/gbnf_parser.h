// GBNF: the text form of grammars that llama.cpp made common.
// Deliberately only a parser: what a grammar matches is decided by Grammar.
//
//   name ::= alternatives            root is where a text begins
//   a b   a | b   ( a )              sequence, choice, group
//   a*  a+  a?  a{2}  a{2,}  a{2,5}  a{,5}
//   "text"  [a-z0-9_]  [^"\\]  .     characters; escapes \n \r \t \\ \" \[ \] \- \^ \xHH \uHHHH
//   # comment                        \UHHHHHHHH
#ifndef KVASIR_GRAMMAR_GBNF_PARSER_H_
#define KVASIR_GRAMMAR_GBNF_PARSER_H_

#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

// A new line ends a rule outside parentheses, unless the next line begins with '|'.
// ERRORS: kInvalidArgument "grammar line 3, column 7: ..."; kResourceExhausted for texts above
// 1 MiB, groups nested deeper than 100 and repetitions above 1,000,000.
Result<GrammarSyntax> ParseGbnf(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GBNF_PARSER_H_
