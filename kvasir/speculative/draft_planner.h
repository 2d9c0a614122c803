// DraftPlanner: how many tokens to draft for each sequence of a step, so that the step makes the
// most tokens per second: from how often drafts were right, what rows cost and what guessing costs.
// Deliberately without tokens and clocks: numbers in, numbers out. Its choice never changes an
// answer.
#ifndef KVASIR_SPECULATIVE_DRAFT_PLANNER_H_
#define KVASIR_SPECULATIVE_DRAFT_PLANNER_H_

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/speculative/drafter.h"
#include "kvasir/speculative/step_cost.h"

namespace kvasir {

// The chance that a draft is right if those before it were, by kind of sureness: moving averages
// over the last 32 that were judged.
class AcceptanceRates {
 public:
  double Of(int kind) const { return rates_[static_cast<size_t>(kind)].value; }
  void Record(int kind, bool is_right);
  // The same chances, as those of a sequence of which nothing is known yet.
  AcceptanceRates AsPrior() const;

 private:
  struct Rate {
    double value = 0.7;
    int64_t judged = 0;
  };
  std::array<Rate, kSurenessKinds> rates_;
};

// One sequence of a step that could be given drafts.
struct DraftCandidate {
  // That draft i is right if those before it are; as many as it has room for.
  std::vector<double> chances;
  int64_t missing_tokens = 0;   // that the drafter has to read before it can guess
  int64_t expected_tokens = 1;  // of its answer that are still to come
};

// What was learnt of this machine, model and drafter.
struct DraftCosts {
  StepCost steps;        // of the target, by rows
  StepCost passes;       // of the drafter, by sequences; empty if guesses cost nothing
  double follow_ms = 0;  // per token that the drafter reads
};

// Drafts for each candidate such that the expected tokens of the step per millisecond are the most.
// `other_rows`: those of the step that are not candidates', prompts for instance, whose time is not
// the drafts'. Every candidate has one row and one token for certain.
//
// Drafts are added one at a time, always the likeliest; of the sums on the way the best wins. Whose
// drafter has to read first gets none unless that is earned back by the end of its answer.
std::vector<int64_t> PlanDrafts(std::vector<DraftCandidate> candidates, int64_t other_rows,
                                const DraftCosts& costs);

// A step that ran.
struct DraftedStep {
  int64_t candidates = 0;   // sequences that could have been given drafts
  int64_t plain_rows = 0;   // of all sequences, without drafts
  int64_t drafts = 0;       // verified
  int64_t kept_drafts = 0;  // of them
  double ms = 0;            // without the next
  double drafting_ms = 0;   // for planning and guessing, without following
  // No answer began or ended in it, whose keeping takes time that comes of no row.
  bool is_usual = true;
  // What it was the first to use of the cache's memory (KvPool::committed_bytes): much takes time
  // that no later step takes. Recurrent layers have a state behind each draft.
  uint64_t committed_bytes = 0;
};

// Remembers what a drafter was worth in this engine, over all its sequences, and sees to it that
// drafts never cost much more than they bring: an account is credited with the time that kept
// drafts saved and a two-hundredth of all time, and pays for what drafts took. While it is empty
// there are none.
class DraftPlanner {
 public:
  // `pass_share`: what a pass of the drafter costs as part of a pass of the target, as long as it
  // has not been measured; 0: guesses cost nothing.
  explicit DraftPlanner(double pass_share = 0) : pass_share_(pass_share) {}

  // A new sequence starts from what drafts were worth so far.
  AcceptanceRates NewRates() const { return overall_.AsPrior(); }
  // Tokens still to come of an answer that has `said` and may get `most` more: as many as answers
  // usually get, or as many again.
  int64_t ExpectedTokens(int64_t said, int64_t most) const;

  // Once per step in which so many sequences could have drafts: whether to think of any. Not in the
  // first, nor in two in a row now and then, so as to know what steps without them cost, nor while
  // the account is empty, nor so often where none were wanted for long that asking takes time.
  bool BeginStep(int64_t candidates);
  // As PlanDrafts, within the account. Where that says none at all, one draft for one candidate now
  // and then, more and more rarely as long as it is wrong: every 4th such step, later every 512th.
  std::vector<int64_t> Plan(std::vector<DraftCandidate> candidates, int64_t other_rows);

  // What became of a draft that was judged.
  void RecordDraft(AcceptanceRates* rates, int kind, bool is_right);
  void RecordStep(const DraftedStep& step);
  // The drafter read so many tokens to catch up.
  void RecordFollow(int64_t tokens, double ms);
  // It guessed that many tokens for each of these sequences, side by side.
  void RecordPasses(std::span<const int64_t> guessed, double ms);
  void RecordAnswer(int64_t tokens);

  const DraftCosts& costs() const { return costs_; }

 private:
  double MostMs() const;
  void LearnCost(const DraftedStep& step);
  void GuessCosts();
  void DropUnaffordable(std::vector<DraftCandidate>& candidates) const;
  static void DropAllButOne(std::vector<DraftCandidate>& candidates);
  int64_t StepsToSkip(int64_t unwanted) const;
  std::vector<int64_t> Probe(const std::vector<DraftCandidate>& candidates);

  const double pass_share_;
  bool has_guessed_ = false;   // so that its costs are measured
  bool has_followed_ = false;  // the same
  DraftCosts costs_;
  AcceptanceRates overall_;
  double account_ms_ = 0;
  double asking_ms_ = 0;  // planning and guesses that came to no drafts
  double plain_ms_ = 0;   // of a step of the present candidates without drafts
  double answer_tokens_ = 128;
  int64_t candidates_ = 0;     // of the last step
  bool is_saving_ = false;     // the account was empty, and has not enough again
  int64_t unwanted_ = 0;       // times in a row that nothing was to be drafted
  int64_t skipped_steps_ = 0;  // still to come
  int64_t drafted_steps_ = 0;  // since two without drafts
  int64_t plain_steps_ = 0;    // in a row
  int64_t plain_interval_ = 4;
  int64_t parked_steps_ = 0;
  int64_t probe_interval_ = 4;
  size_t probed_ = 0;  // candidates so far
};

}  // namespace kvasir

#endif  // KVASIR_SPECULATIVE_DRAFT_PLANNER_H_
