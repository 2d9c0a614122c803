// TokenConstraint: which tokens may come next in one answer, so that its text follows a rule.
// Deliberately without the rule: grammars stand behind it (engine/grammar_constraint.h), and a
// sampler needs to know nothing of them.
#ifndef KVASIR_SAMPLING_TOKEN_CONSTRAINT_H_
#define KVASIR_SAMPLING_TOKEN_CONSTRAINT_H_

#include <cstddef>
#include <memory>
#include <span>

#include "kvasir/base/token.h"

namespace kvasir {

// Where one answer stands. What may come next is a function of the accepted tokens alone.
// THREADS: one caller at a time for all constraints of one TokenConstraintSource.
class TokenConstraint {
 public:
  virtual ~TokenConstraint() = default;

  // Sets the logits of all tokens that may not come next to -infinity; the others stay.
  virtual void Mask(std::span<float> logits) = 0;
  // Goes on by one token. False, and nothing changes, if it may not come next.
  virtual bool Accept(Token token) = 0;
  // Takes back the last `count` accepted tokens, of refused drafts say. REQUIRES: so many were.
  virtual void Rollback(size_t count) = 0;
  // Nothing but the end may come now, or it has come.
  virtual bool IsComplete() = 0;
};

// What the answers of one request begin with. THREADS: as above.
class TokenConstraintSource {
 public:
  virtual ~TokenConstraintSource() = default;
  virtual std::unique_ptr<TokenConstraint> Begin() const = 0;
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_TOKEN_CONSTRAINT_H_
