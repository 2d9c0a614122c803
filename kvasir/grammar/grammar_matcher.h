// GrammarMatcher: where one request stands in its grammar. Between a forward pass and sampling,
// apply Mask() to the logits; then Accept what was sampled. A draft is accepted token by token as
// long as Accept agrees, and what the model refuses is rolled back. Deliberately holds tokens, not
// text: a copy is a fork.
#ifndef KVASIR_GRAMMAR_GRAMMAR_MATCHER_H_
#define KVASIR_GRAMMAR_GRAMMAR_MATCHER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/grammar/grammar_masks.h"

namespace kvasir {

// A value. THREADS: one caller at a time for all matchers of one GrammarMasks.
class GrammarMatcher {
 public:
  // `masks` must outlive the matcher and its copies. `begun`: text that stands there already, of a
  // token that began before the grammar did.
  explicit GrammarMatcher(GrammarMasks* masks, std::string begun = {});

  // The tokens that may come next; none after an end token. Valid until the next call that any
  // matcher makes to the same GrammarMasks.
  const TokenMask& Mask();
  // Goes on by one token. False, and nothing changes, if it may not come next.
  bool Accept(Token token);
  // Takes back the last `count` accepted tokens. REQUIRES: count <= accepted().
  void Rollback(size_t count);

  size_t accepted() const { return steps_.size(); }
  // The text so far is complete.
  bool CanEnd();
  // An end token was accepted.
  bool ended() const { return ended_; }
  // The text is complete and cannot go on: only end tokens may come next, or one has come.
  bool MustEnd();
  // No token may come next: after an end token, or where the vocabulary lacks a byte.
  bool IsDead() { return Mask().None(); }

 private:
  struct Step {
    Token token = 0;
    GrammarMasks::State state = 0;  // after the token
    uint64_t generation = 0;
  };

  // The state after all accepted tokens: remembered, or found again from the tokens.
  GrammarMasks::State Current();
  void Remember(GrammarMasks::State state);

  GrammarMasks* masks_;
  std::string begun_;
  std::vector<Step> steps_;
  TokenMask none_;
  bool ended_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_MATCHER_H_
