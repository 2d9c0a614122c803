// What the grammar tests share: a naive matcher, small vocabularies, masks by brute force.
// Deliberately independent of the automaton wherever it judges one.
#ifndef KVASIR_GRAMMAR_GRAMMAR_TEST_UTIL_H_
#define KVASIR_GRAMMAR_GRAMMAR_TEST_UTIL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_automaton.h"
#include "kvasir/grammar/grammar_matcher.h"
#include "kvasir/grammar/grammar_syntax.h"
#include "kvasir/grammar/grammar_vocabulary.h"

namespace kvasir {

// A whole text against a grammar's syntax, by sets of end positions; exponential, for short texts.
bool NaiveMatch(const GrammarSyntax& syntax, GrammarSyntax::Rule root, std::string_view text);

// The state after `text`.
GrammarAutomaton::State StateAfter(GrammarAutomaton* automaton, std::string_view text);
// The whole text is allowed.
bool Matches(GrammarAutomaton* automaton, std::string_view text);

// All single bytes as ids 0..255, then `words`, then one end token, the last id.
std::shared_ptr<const GrammarVocabulary> ByteVocabulary(const std::vector<std::string>& words);
Token EndToken(const GrammarVocabulary& vocabulary);

// The mask after `text`, every token tried byte by byte on an automaton of its own.
TokenMask BruteForceMask(const std::shared_ptr<const Grammar>& grammar,
                         const GrammarVocabulary& vocabulary, std::string_view text);

// Random tokens under the mask until the end token, or until `max_tokens`; then the shortest way to
// an end is not searched for: `ended` is false. The choice is a function of the seed.
struct Walked {
  std::string text;
  bool ended = false;
};
Walked RandomWalk(GrammarMatcher* matcher, const GrammarVocabulary& vocabulary, uint64_t seed,
                  int max_tokens);

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_TEST_UTIL_H_
