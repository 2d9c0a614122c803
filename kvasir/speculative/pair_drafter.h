// PairDrafter: drafts of a PairHead, and the contract of its cache: what was read for good stands
// there with the target's states, and what was only guessed is gone before anything is built on it.
// Deliberately without a way to catch up by itself: states that nobody reported are unknown, and
// the head sees a sequence with such a gap as if nothing had been said there.
#ifndef KVASIR_SPECULATIVE_PAIR_DRAFTER_H_
#define KVASIR_SPECULATIVE_PAIR_DRAFTER_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "kvasir/base/log.h"
#include "kvasir/kv/prefix_tree.h"
#include "kvasir/model/pair_head.h"
#include "kvasir/sampling/sampler.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

struct PairDrafterParts {
  const PairHead* head = nullptr;
  KvPool* pool = nullptr;                   // the drafter's alone
  std::shared_ptr<const KvCacheSpec> spec;  // every layer keeps all rows
  int64_t sampleable_tokens = 0;  // ids that the target may choose; at most the head's vocabulary
  // Those below are text; from there on come tokens that were added, such as where a turn begins.
  // 0: all of them are.
  int64_t text_tokens = 0;
  size_t max_index_bytes = std::numeric_limits<size_t>::max();  // of what is found again
  LogSink log;  // a warning, once, that memory was too short for somebody's drafts
};

// A model's head over all of a large vocabulary takes longer than the layer before it. Tokens of
// merged words are numbered by how common they are, so drafts are looked for among the first of
// them, as many as nearly all text of the sequences that are drafted for together is of.
//
// A few pairs wait until somebody wants drafts and are then read in one pass, which makes the first
// draft as well. Many, a prompt's, are read when they are reported, at most kMostPending in a pass.
class PairDrafter final : public Drafter {
 public:
  static constexpr int64_t kMostPending = 256;
  // Of a pass, which bounds its memory.
  static constexpr int64_t kMostSequences = 8;

  // Head and pool outlive the drafter, and the drafter its states.
  // ERRORS: kInvalidArgument, naming what of the parts cannot be.
  static Result<std::unique_ptr<PairDrafter>> Create(PairDrafterParts parts);

  std::string_view kind() const override { return "pairs"; }
  HiddenWanted hidden_wanted() const override { return HiddenWanted::kAll; }
  std::unique_ptr<DraftState> NewState() override;
  std::unique_ptr<DraftState> ForkState(const DraftState& state) override;
  // Pairs that it has are passed over, so a sequence may be read again from any earlier position.
  // The first report of a state goes on from what the drafter has of earlier sequences of this
  // salt. Where a target found more of what it has read than there are pairs of, the state that
  // follows stands in for a few (where sequences part there is one pair less than tokens); many, as
  // of a file, stay out of the cache, and what is behind them moves up.
  void Report(const DraftReport& report) override;
  // 0, or null where a report is missing, or memory was.
  std::optional<int64_t> MissingTokens(const DraftRequest& request) override;
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override;
  // Pairs of the sequence become findable for others, under a key that proves each of them.
  void Finish(DraftState& state, KnownTokens known, uint64_t salt) override;

 private:
  struct State;
  // One sequence that a pass takes on.
  struct Member {
    State* state = nullptr;
    std::vector<Token> tokens;
    ConstFloatRows states;
    bool is_guess = false;  // not to be built on: the tokens are drafts, the states the head's
  };

  explicit PairDrafter(PairDrafterParts parts)
      : parts_(std::move(parts)), tree_(parts_.pool, parts_.spec, parts_.max_index_bytes) {}
  void Begin(State& state, const DraftReport& report);
  bool IsLevel(const DraftRequest& request) const;
  Member Pending(State& state, const KnownTokens& known) const;
  void Settle(State& state, const KnownTokens& known);
  // Runs the members that fit; the others' states are given up and their members cleared. `tokens`:
  // as PairHead::Forward.
  std::optional<PairHead::Output> Forward(std::vector<Member>& members, int64_t tokens);
  void GiveUp(State& state);
  // Of kMostSequences at most.
  std::vector<std::vector<Token>> ProposeTogether(std::span<const DraftRequest> requests);
  // How many of the first tokens an eighth, a quarter, half of the vocabulary are, by `index`.
  int64_t PartOfVocabulary(size_t index) const;
  // `times`: 1, or -1 for what is going to be counted again.
  void CountTokens(State& state, std::span<const Token> tokens, int64_t times = 1) const;
  int64_t TokensToLookAt(std::span<const Member> members) const;
  Token Draw(const DraftRequest& request, std::span<const Token> drafted, ConstFloatRows logits,
             int64_t row);

  const PairDrafterParts parts_;
  PrefixTree tree_;
  Workspace workspace_;
  Sampler sampler_;
  bool has_warned_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_PAIR_DRAFTER_H_
