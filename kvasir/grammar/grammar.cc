#include "kvasir/grammar/grammar.h"

#include <utility>

#include "kvasir/grammar/gbnf_parser.h"
#include "kvasir/grammar/grammar_automaton.h"
#include "kvasir/grammar/grammar_compiler.h"
#include "kvasir/grammar/json_text.h"
#include "kvasir/grammar/schema_translator.h"

namespace kvasir {

Result<std::shared_ptr<const Grammar>> Grammar::FromSyntax(const GrammarSyntax& syntax,
                                                           GrammarSyntax::Rule root) {
  KVASIR_TRY(GrammarProgram program, CompileGrammar(syntax, root));
  const std::shared_ptr<const Grammar> grammar(new Grammar(std::move(program)));
  const GrammarAutomaton automaton(grammar);
  if (automaton.start() != GrammarAutomaton::kDead) return grammar;
  return {ErrorCode::kResourceExhausted,
          "the grammar's beginning can be read in too many ways; have fewer alternatives that "
          "begin alike"};
}

Result<std::shared_ptr<const Grammar>> Grammar::FromGbnf(std::string_view text) {
  KVASIR_TRY(GrammarSyntax syntax, ParseGbnf(text));
  return FromSyntax(syntax, syntax.RuleNamed("root"));
}

Result<std::shared_ptr<const Grammar>> Grammar::FromJsonSchema(const Json& schema) {
  GrammarSyntax syntax;
  KVASIR_TRY(const GrammarSyntax::Rule root, SchemaTranslator(schema, &syntax).Translate());
  return FromSyntax(syntax, root);
}

Result<std::shared_ptr<const Grammar>> Grammar::JsonObject() {
  GrammarSyntax syntax;
  const GrammarSyntax::Expr object = JsonText(&syntax).Object();
  const GrammarSyntax::Rule root = syntax.RuleNamed("root");
  syntax.Define(root, object);
  return FromSyntax(syntax, root);
}

}  // namespace kvasir
