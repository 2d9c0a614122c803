// What a grammar's program must know about itself before it runs: which rules match nothing, which
// call each other at their beginning, and how deep the calls to an end are.
// Deliberately separate from the compiler: it reads instructions, never syntax.
#ifndef KVASIR_GRAMMAR_GRAMMAR_ANALYSIS_H_
#define KVASIR_GRAMMAR_GRAMMAR_ANALYSIS_H_

#include "kvasir/base/result.h"
#include "kvasir/grammar/grammar_program.h"

namespace kvasir {

// Fills matches_empty, rank and need. ERRORS: kInvalidArgument for left recursion and for a root
// that no text can finish; the message names the rule.
Status AnalyseGrammar(GrammarProgram* program);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_ANALYSIS_H_
