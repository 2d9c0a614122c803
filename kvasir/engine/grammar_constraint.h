// GrammarConstraint: holds an answer to a grammar, for samplers.
// Deliberately without compiling: that takes time, and belongs before a request is submitted.
#ifndef KVASIR_ENGINE_GRAMMAR_CONSTRAINT_H_
#define KVASIR_ENGINE_GRAMMAR_CONSTRAINT_H_

#include <memory>
#include <span>

#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_masks.h"
#include "kvasir/grammar/grammar_matcher.h"
#include "kvasir/grammar/grammar_vocabulary.h"
#include "kvasir/sampling/token_constraint.h"

namespace kvasir {

// A value behind a pointer: see GrammarMatcher.
class GrammarConstraint final : public TokenConstraint {
 public:
  explicit GrammarConstraint(std::shared_ptr<GrammarMasks> masks)
      : masks_(std::move(masks)), matcher_(masks_.get()) {}

  void Mask(std::span<float> logits) override { matcher_.Mask().Apply(logits); }
  bool Accept(Token token) override { return matcher_.Accept(token); }
  void Rollback(size_t count) override { matcher_.Rollback(count); }
  bool IsComplete() override { return matcher_.MustEnd(); }

 private:
  std::shared_ptr<GrammarMasks> masks_;  // before matcher_, which points to it
  GrammarMatcher matcher_;
};

// One grammar on one vocabulary; what its masks remember is shared by all answers.
// THREADS: may be made and destroyed on any; the constraints of one GrammarMasks are one engine's.
class GrammarConstraintSource final : public TokenConstraintSource {
 public:
  explicit GrammarConstraintSource(std::shared_ptr<GrammarMasks> masks)
      : masks_(std::move(masks)) {}
  GrammarConstraintSource(std::shared_ptr<const Grammar> grammar,
                          std::shared_ptr<const GrammarVocabulary> vocabulary)
      : masks_(std::make_shared<GrammarMasks>(std::move(grammar), std::move(vocabulary))) {}

  std::unique_ptr<TokenConstraint> Begin() const override {
    return std::make_unique<GrammarConstraint>(masks_);
  }

 private:
  std::shared_ptr<GrammarMasks> masks_;
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GRAMMAR_CONSTRAINT_H_
