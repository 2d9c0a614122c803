#include "kvasir/grammar/grammar.h"

#include <utility>

#include "kvasir/grammar/gbnf_parser.h"
#include "kvasir/grammar/grammar_compiler.h"

namespace kvasir {

Result<std::shared_ptr<const Grammar>> Grammar::FromSyntax(const GrammarSyntax& syntax,
                                                           GrammarSyntax::Rule root) {
  KVASIR_TRY(GrammarProgram program, CompileGrammar(syntax, root));
  return std::shared_ptr<const Grammar>(new Grammar(std::move(program)));
}

Result<std::shared_ptr<const Grammar>> Grammar::FromGbnf(std::string_view text) {
  KVASIR_TRY(GrammarSyntax syntax, ParseGbnf(text));
  return FromSyntax(syntax, syntax.RuleNamed("root"));
}

}  // namespace kvasir
