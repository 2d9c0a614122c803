// DraftPlanner: how many tokens to draft for each sequence of a step, so that the step makes the
// most tokens per second: from how often drafts were accepted and what rows cost.
// Deliberately without tokens and clocks: numbers in, numbers out. Its choice never changes an
// answer.
#ifndef KVASIR_SPECULATIVE_DRAFT_PLANNER_H_
#define KVASIR_SPECULATIVE_DRAFT_PLANNER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/speculative/step_cost.h"

namespace kvasir {

// The chance that a draft is right if those before it were: a moving average.
class AcceptanceRate {
 public:
  explicit AcceptanceRate(double start) : rate_(start) {}
  double value() const { return rate_; }
  // `accepted` of `drafted` were right; those behind the first wrong one were not judged.
  void Record(int64_t drafted, int64_t accepted);

 private:
  double rate_;
};

// One sequence of a step that would be given drafts.
struct DraftCandidate {
  double acceptance = 0;   // of its drafts, in [0, 1]
  int64_t max_drafts = 0;  // that it has room for
};

// What drafting costs beside the rows it adds.
struct DraftCost {
  double ms_per_pass = 0;  // of a drafter that makes one token of every sequence per pass
};

// Drafts for each candidate such that the expected tokens of the step per millisecond are the most.
// `other_rows`: those of the step that are not candidates', prompts for instance. Every candidate
// has one row and one token for certain.
//
// Drafts are added one at a time, always the likeliest; of the sums on the way the best wins. With
// one acceptance rate per sequence that is the best plan for every number of rows.
std::vector<int64_t> PlanDrafts(std::span<const DraftCandidate> candidates, int64_t other_rows,
                                const StepCost& steps, const DraftCost& drafting);

// Remembers what a drafter was worth in this engine, over all its sequences.
class DraftPlanner {
 public:
  // A new sequence starts from what drafts were worth so far.
  AcceptanceRate NewRate() const { return AcceptanceRate(overall_.value()); }

  // As PlanDrafts; where that says none at all, one draft each now and then, more and more rarely
  // as long as it stays so: every 4th such step, later every 512th.
  std::vector<int64_t> Plan(std::span<const DraftCandidate> candidates, int64_t other_rows);

  // What became of the drafts of one sequence.
  void RecordDrafts(AcceptanceRate* rate, int64_t drafted, int64_t accepted);
  void RecordStep(int64_t rows, double ms) { steps_.Record(rows, ms); }
  // `passes` of the drafter took `ms`.
  void RecordDrafting(int64_t passes, double ms);

  const StepCost& steps() const { return steps_; }

 private:
  StepCost steps_;
  DraftCost drafting_;
  AcceptanceRate overall_{0.7};
  int64_t parked_steps_ = 0;
  int64_t probe_interval_ = 4;
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_DRAFT_PLANNER_H_
