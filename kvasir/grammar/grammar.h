// Grammar: which texts are allowed, compiled. Immutable; one serves any number of requests.
// Deliberately knows bytes only: tokens are GrammarMasks' business.
#ifndef KVASIR_GRAMMAR_GRAMMAR_H_
#define KVASIR_GRAMMAR_GRAMMAR_H_

#include <memory>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/grammar/grammar_program.h"
#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

// THREADS: immutable.
class Grammar {
 public:
  // GBNF with a rule "root" (gbnf_parser.h). ERRORS: those of ParseGbnf and CompileGrammar;
  // kResourceExhausted where its beginning takes more than GrammarAutomaton::kMostWork.
  static Result<std::shared_ptr<const Grammar>> FromGbnf(std::string_view text);
  // The JSON texts that are valid against `schema` (docs/structured-output.md says which keywords
  // and which of several ways to write one value). ERRORS: kUnsupported or kInvalidArgument, the
  // message begins with the path inside the schema.
  static Result<std::shared_ptr<const Grammar>> FromJsonSchema(const Json& schema);
  // Any JSON object.
  static Result<std::shared_ptr<const Grammar>> JsonObject();
  static Result<std::shared_ptr<const Grammar>> FromSyntax(const GrammarSyntax& syntax,
                                                           GrammarSyntax::Rule root);

  const GrammarProgram& program() const { return program_; }

 private:
  explicit Grammar(GrammarProgram program) : program_(std::move(program)) {}

  GrammarProgram program_;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_H_
