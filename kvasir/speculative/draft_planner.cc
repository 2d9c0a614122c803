#include "kvasir/speculative/draft_planner.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr double kRateWeight = 0.1;      // of one judged draft in the rate of its sequence
constexpr double kOverallWeight = 0.02;  // and of all
constexpr double kPassWeight = 0.3;
constexpr int64_t kLongestInterval = 512;
// A gain below this is within what the figures are uncertain by; drafts then only cost memory.
constexpr double kLeastGain = 1.02;

void Move(double* value, double to, double weight) { *value += weight * (to - *value); }

}  // namespace

void AcceptanceRate::Record(int64_t drafted, int64_t accepted) {
  for (int64_t i = 0; i < accepted; ++i) Move(&rate_, 1, kRateWeight);
  if (accepted < drafted) Move(&rate_, 0, kRateWeight);
}

std::vector<int64_t> PlanDrafts(std::span<const DraftCandidate> candidates, int64_t other_rows,
                                const StepCost& steps, const DraftCost& drafting) {
  // (chance that the next draft is kept, candidate); of equals the first candidate.
  using Next = std::pair<double, int64_t>;
  std::priority_queue<Next> next;
  for (size_t i = 0; i < candidates.size(); ++i) {
    KVASIR_CHECK(candidates[i].acceptance >= 0 && candidates[i].acceptance <= 1);
    if (candidates[i].max_drafts > 0) {
      next.emplace(candidates[i].acceptance, -static_cast<int64_t>(i));
    }
  }
  std::vector<int64_t> plan(candidates.size());
  std::vector<int64_t> best = plan;
  int64_t rows = other_rows + static_cast<int64_t>(candidates.size());
  int64_t depth = 0;
  double tokens = static_cast<double>(candidates.size());
  double best_speed = tokens / steps.Ms(rows) * kLeastGain;
  while (!next.empty()) {
    const auto [chance, negative] = next.top();
    next.pop();
    const auto i = static_cast<size_t>(-negative);
    tokens += chance;
    ++rows;
    depth = std::max(depth, ++plan[i]);
    const double ms = steps.Ms(rows) + drafting.ms_per_pass * static_cast<double>(depth);
    if (tokens / ms > best_speed) {
      best_speed = tokens / ms;
      best = plan;
    }
    if (plan[i] < candidates[i].max_drafts) {
      next.emplace(chance * candidates[i].acceptance, negative);
    }
  }
  return best;
}

std::vector<int64_t> DraftPlanner::Plan(std::span<const DraftCandidate> candidates,
                                        int64_t other_rows) {
  std::vector<int64_t> plan(candidates.size());
  // One plain step first, to have something to compare with.
  if (steps_.empty()) return plan;
  plan = PlanDrafts(candidates, other_rows, steps_, drafting_);
  if (std::any_of(plan.begin(), plan.end(), [](int64_t drafts) { return drafts > 0; })) {
    parked_steps_ = 0;
    probe_interval_ = 4;
    return plan;
  }
  if (++parked_steps_ < probe_interval_) return plan;
  parked_steps_ = 0;
  probe_interval_ = std::min(2 * probe_interval_, kLongestInterval);
  for (size_t i = 0; i < plan.size(); ++i) plan[i] = std::min<int64_t>(1, candidates[i].max_drafts);
  return plan;
}

void DraftPlanner::RecordDrafts(AcceptanceRate* rate, int64_t drafted, int64_t accepted) {
  KVASIR_CHECK(0 <= accepted && accepted <= drafted);
  rate->Record(drafted, accepted);
  double overall = overall_.value();
  for (int64_t i = 0; i < accepted; ++i) Move(&overall, 1, kOverallWeight);
  if (accepted < drafted) Move(&overall, 0, kOverallWeight);
  overall_ = AcceptanceRate(overall);
}

void DraftPlanner::RecordDrafting(int64_t passes, double ms) {
  if (passes == 0) return;
  const double each = ms / static_cast<double>(passes);
  if (drafting_.ms_per_pass == 0) {
    drafting_.ms_per_pass = each;
  } else {
    Move(&drafting_.ms_per_pass, each, kPassWeight);
  }
}

}  // namespace kvasir
