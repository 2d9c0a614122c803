// DraftRounds: one drafter at work for many sequences: what it guesses in a step, within what its
// planner allows, and what became of it.
// Deliberately without a target: whoever runs the step says how long it took and what was right.
#ifndef KVASIR_SPECULATIVE_DRAFT_ROUNDS_H_
#define KVASIR_SPECULATIVE_DRAFT_ROUNDS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvasir/speculative/draft_planner.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

// What rounds remember of one answer; empty until it is first asked for drafts.
struct DraftedAnswer {
  std::unique_ptr<DraftState> state;
  std::optional<AcceptanceRates> rates;
};

// One answer that could be given drafts in a step.
struct DraftSeat {
  DraftedAnswer* answer = nullptr;
  DraftRequest request;     // without state; max_drafts: that there is room for, at least 1
  int64_t said_tokens = 0;  // of the answer
  int64_t most_tokens = 0;  // that may follow
};

class DraftRounds {
 public:
  using Clock = std::chrono::steady_clock;

  // `now` empty: Clock::now. REQUIRES: drafter is not null.
  explicit DraftRounds(std::unique_ptr<Drafter> drafter,
                       std::function<Clock::time_point()> now = {});

  HiddenWanted hidden_wanted() const { return drafter_->hidden_wanted(); }
  Clock::time_point Now() const { return now_ ? now_() : Clock::now(); }

  // Begins a step in which so many answers could be given drafts: whether to propose any.
  bool Begin(int64_t seats);
  // Drafts for each of them, often none, in a step in which `other_rows` rows are nobody's of the
  // seats. REQUIRES: Begin said so for as many; no answer twice.
  std::vector<std::vector<Token>> Propose(std::span<DraftSeat> seats, int64_t other_rows);
  // So many of the drafts of an answer were right. `ended`: the answer did, so that what follows
  // was not judged.
  enum class Answer { kGoesOn, kEnded };
  void Judge(DraftedAnswer& answer, int64_t drafts, int64_t right, Answer after);
  // The step ended; its ms count from after Begin or Propose, which know its candidates and
  // drafting_ms.
  void End(const DraftedStep& step);
  // Drafter::Report; `report` without state.
  void Report(DraftedAnswer& answer, DraftReport report);
  // Drafter::ForkState, for an answer that goes on from where this one stands.
  DraftedAnswer Fork(const DraftedAnswer& answer);
  // An answer has ended: of how many tokens it was, and what is worth keeping of it.
  void Finish(DraftedAnswer& answer, KnownTokens known, uint64_t salt, int64_t said_tokens);
  // One goes without having come to its end.
  void Drop(DraftedAnswer& answer, KnownTokens known, uint64_t salt);

 private:
  DraftCandidate CandidateOf(const DraftSeat& seat, int64_t count, int64_t missing_tokens) const;
  std::vector<std::vector<Token>> Choose(std::span<const DraftSeat> seats, int64_t other_rows);
  std::vector<std::vector<Token>> Ask(std::span<const DraftSeat> seats, int64_t other_rows);
  void Follow(std::span<const DraftRequest> requests);

  const std::unique_ptr<Drafter> drafter_;
  const std::function<Clock::time_point()> now_;
  DraftPlanner planner_;
  DraftedStep step_;      // being made
  double follow_ms_ = 0;  // in it
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_DRAFT_ROUNDS_H_
