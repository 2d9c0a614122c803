// Turns the rules of a grammar into a program over bytes.
// Deliberately no optimiser: GrammarAutomaton merges equal states while it runs.
#ifndef KVASIR_GRAMMAR_GRAMMAR_COMPILER_H_
#define KVASIR_GRAMMAR_GRAMMAR_COMPILER_H_

#include "kvasir/base/result.h"
#include "kvasir/grammar/grammar_program.h"
#include "kvasir/grammar/grammar_syntax.h"

namespace kvasir {

// Texts begin at `root`. ERRORS: kInvalidArgument for a rule that is used and not defined, that
// calls itself before it reads a byte (left recursion), or a root that no text can finish; the
// message names the rule. kResourceExhausted above a million instructions.
Result<GrammarProgram> CompileGrammar(const GrammarSyntax& syntax, GrammarSyntax::Rule root);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_COMPILER_H_
