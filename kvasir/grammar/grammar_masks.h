// GrammarMasks: which tokens may come next in each state of a grammar, remembered per state and
// shared by all requests with that grammar.
// Deliberately no request: where one stands is its GrammarMatcher's to know.
#ifndef KVASIR_GRAMMAR_GRAMMAR_MASKS_H_
#define KVASIR_GRAMMAR_GRAMMAR_MASKS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "kvasir/grammar/grammar.h"
#include "kvasir/grammar/grammar_automaton.h"
#include "kvasir/grammar/grammar_vocabulary.h"
#include "kvasir/grammar/plain_text.h"
#include "kvasir/grammar/token_mask.h"

namespace kvasir {

// THREADS: one caller at a time.
class GrammarMasks {
 public:
  using State = GrammarAutomaton::State;

  // A cached mask of 151,936 tokens has 19 KB: room for some two thousand states.
  static constexpr size_t kDefaultCacheBytes = size_t{64} << 20;

  // What a mask may cost: Edge::work of all edges that it goes along, each once. Far more than
  // grammars of people need. A grammar in which texts can be read in thousands of ways would hold
  // up everybody: what has not been looked at then is not allowed, but for tokens of one byte. A
  // function of grammar, state and vocabulary alone.
  static constexpr size_t kMostWork = size_t{1} << 20;
  static constexpr size_t kMostWorkOfFirstBytes = 4 * kMostWork;
  static constexpr uint32_t kCheapWork = 32;  // edges of as much are not counted

  // `cache_bytes` bounds what is remembered (a single mask may need more for a moment); when it is
  // full everything is forgotten, which costs time and changes nothing.
  GrammarMasks(std::shared_ptr<const Grammar> grammar,
               std::shared_ptr<const GrammarVocabulary> vocabulary,
               size_t cache_bytes = kDefaultCacheBytes);

  const GrammarVocabulary& vocabulary() const { return *vocabulary_; }
  State start() const { return automaton_.start(); }
  bool CanEnd(State state) const { return automaton_.CanEnd(state); }
  // States from another generation are void: begin again at start().
  uint64_t generation() const { return automaton_.generation(); }

  // The state after `bytes`; kDead if they are not allowed.
  State Advance(State state, std::string_view bytes);
  // Forgets what is too much, all but `state`, whose number may change.
  void KeepWithinBudget(State* state);

  // States whose masks are remembered.
  size_t mask_count() const { return masks_.size(); }

  // The tokens that may come next, end tokens where the text may end. Valid until the next call.
  // `state` may change its number.
  const TokenMask& Mask(State* state);

 private:
  size_t size_bytes() const {
    return automaton_.size_bytes() + masks_.size() * vocabulary_->end().size_bytes() +
           counted_.size() * sizeof(counted_[0]);
  }
  void Forget(std::span<State> keep);
  // Every plain text of at most kMaxPlainCharacters may come next.
  bool AllowsPlainText(State state);
  void Walk(const TokenTrie& trie, TokenMask* mask);
  // Counts an edge that was followed.
  void CountEdge(State state, uint8_t byte, size_t work);
  void FindPlainBytes();

  std::shared_ptr<const GrammarVocabulary> vocabulary_;
  GrammarAutomaton automaton_;
  size_t cache_bytes_;
  size_t forget_above_bytes_;
  std::unordered_map<State, TokenMask> masks_;
  // One byte of each kind that neither the grammar nor plain text tells apart.
  std::vector<uint8_t> plain_bytes_;
  std::vector<State> path_;  // of a walk: the state before each byte
  size_t work_ = 0;          // of the mask being made
  uint32_t mask_number_ = 0;
  std::vector<uint32_t> counted_;  // by edge: the last mask that counted it
};

}  // namespace kvasir

#endif  // KVASIR_GRAMMAR_GRAMMAR_MASKS_H_
