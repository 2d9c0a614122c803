// GrammarConstraint: holds an answer to a grammar, for samplers, at once or after free text.
// Deliberately without compiling: that takes time, and belongs before a request is submitted.
#ifndef KVASIR_ENGINE_GRAMMAR_CONSTRAINT_H_
#define KVASIR_ENGINE_GRAMMAR_CONSTRAINT_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_masks.h"
#include "kvasir/grammar/grammar_matcher.h"
#include "kvasir/grammar/grammar_vocabulary.h"
#include "kvasir/sampling/token_constraint.h"

namespace kvasir {

// Text before the grammar begins: a thought, or words before a tool call.
struct FreeText {
  std::string until;  // not empty; what ends it, and is part of it
  // Set: only an answer that begins with this token has this text. First in the list only.
  std::optional<Token> opener;
  bool may_end = false;  // the answer may end within it
};

// One grammar on one vocabulary; what its masks remember is shared by all answers.
// THREADS: may be made and destroyed on any; the constraints of one GrammarMasks are one engine's.
class GrammarConstraintSource final : public TokenConstraintSource {
 public:
  explicit GrammarConstraintSource(std::shared_ptr<GrammarMasks> masks,
                                   std::vector<FreeText> before = {});
  GrammarConstraintSource(std::shared_ptr<const Grammar> grammar,
                          std::shared_ptr<const GrammarVocabulary> vocabulary)
      : GrammarConstraintSource(
            std::make_shared<GrammarMasks>(std::move(grammar), std::move(vocabulary))) {}

  std::unique_ptr<TokenConstraint> Begin() const override;

 private:
  friend class GrammarConstraint;

  // Where text stands in finding `until` of one of the free texts, after one more byte.
  size_t MatchedAfter(size_t text, size_t matched, char byte) const;

  std::shared_ptr<GrammarMasks> masks_;
  std::vector<FreeText> before_;
  std::vector<std::vector<size_t>> fallbacks_;  // of each `until` (Knuth, Morris, Pratt)
};

// If the token that ends the last free text goes on in a way the grammar forbids, the rest of the
// answer is not held to it: nobody could have masked that token, not knowing where it would end.
class GrammarConstraint final : public TokenConstraint {
 public:
  // `source` must outlive it.
  explicit GrammarConstraint(const GrammarConstraintSource* source);

  void Mask(std::span<float> logits) override;
  bool Accept(Token token) override;
  void Rollback(size_t count) override;
  bool IsComplete() override;

 private:
  struct Place {
    size_t text = 0;         // which of before_, or how many there are: in the grammar
    size_t matched = 0;      // bytes of its `until`
    bool is_open = true;     // false: its opener has not come
    bool is_free = false;    // held to nothing
    bool has_ended = false;  // in free text
    size_t in_grammar = 0;   // tokens the matcher has accepted
  };

  bool IsInGrammar(const Place& place) const { return place.text == source_->before_.size(); }
  void MaskAt(size_t text, std::span<float> logits);
  bool AcceptAt(Place place, Token token);
  bool AcceptFree(Place place, Token token);

  const GrammarConstraintSource* const source_;
  const std::shared_ptr<GrammarMasks> masks_;  // before matcher_, which points to it
  std::optional<GrammarMatcher> matcher_;      // set in the grammar
  std::vector<Place> places_;                  // one more than accepted tokens
};

}  // namespace kvasir

#endif  // KVASIR_ENGINE_GRAMMAR_CONSTRAINT_H_
