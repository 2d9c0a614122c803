#include "kvasir/speculative/draft_planner.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <queue>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// A gain below this is within what the figures are uncertain by, of which the best-looking plan has
// had the luck.
constexpr double kLeastGain = 1.05;
// Reading for a drafter is paid now and earned back later, if the answer goes on as expected.
constexpr double kLeastFollowGain = 1.5;
// A draft less likely than this never pays: even a step bound by reading weights costs a tenth more
// for each row.
constexpr double kLeastChance = 0.05;

constexpr int64_t kRateMemory = 32;  // judged drafts that a rate is the average of
constexpr int64_t kPriorWeight = 8;  // judged drafts that a prior counts for
constexpr double kFollowWeight = 0.2;
constexpr double kAnswerWeight = 0.1;
constexpr int64_t kFirstInterval = 4;
constexpr int64_t kLongestInterval = 512;
constexpr int64_t kLongestPlainInterval = 128;
// Where what a plain step took is this far from what was expected, it is looked at more often.
constexpr double kSurprise = 0.15;
// Of all time; what is lost on drafts that never bring anything.
constexpr double kAllowance = 0.005;
// In steps without drafts: what there is to begin with, and the most that is remembered.
constexpr double kFirstSteps = 2;
constexpr double kMostSteps = 64;
// A step that takes so many times what was expected is a stall of the machine: the rest is not the
// drafts'.
constexpr double kStall = 2;
constexpr double kSavedSteps = 1;  // before an account that was empty is used again
// Asking costs a little: who has had no drafts so many times is asked half as often, down to where
// it takes this share of the time.
constexpr int64_t kUnwantedPerHalving = 4;
constexpr double kAskingShare = 0.002;
constexpr double kMostSkipped = 64;
constexpr double kAskingWeight = 0.1;

void Move(double* value, double to, double weight) { *value += weight * (to - *value); }

// Drafts, and what a step with them is expected to bring and to take.
struct Proposal {
  std::vector<int64_t> drafts;
  std::vector<double> kept;  // expected, by candidate
  double tokens = 0;
  double ms = 0;
};

Proposal BestProposal(std::span<const DraftCandidate> candidates, int64_t other_rows,
                      const DraftCosts& costs) {
  // (chance that the next draft is kept, candidate); of equals the first candidate.
  using Next = std::pair<double, int64_t>;
  std::priority_queue<Next> next;
  for (size_t i = 0; i < candidates.size(); ++i) {
    if (candidates[i].chances.empty()) continue;
    next.emplace(candidates[i].chances[0], -static_cast<int64_t>(i));
  }
  const auto count = static_cast<int64_t>(candidates.size());
  Proposal now = {std::vector<int64_t>(candidates.size()), std::vector<double>(candidates.size()),
                  static_cast<double>(count), costs.steps.Ms(count)};
  Proposal best = now;
  double best_speed = now.tokens / now.ms * kLeastGain;
  const double others_ms = costs.steps.Ms(other_rows + count) - now.ms;
  std::vector<int64_t> sequences;  // by pass of the drafter
  double passes_ms = 0;
  for (int64_t rows = other_rows + count + 1; !next.empty(); ++rows) {
    const auto [chance, negative] = next.top();
    next.pop();
    if (chance < kLeastChance) break;
    const auto i = static_cast<size_t>(-negative);
    const auto depth = static_cast<size_t>(now.drafts[i]++);
    now.kept[i] += chance;
    now.tokens += chance;
    if (sequences.size() <= depth) sequences.push_back(0);
    const int64_t before = sequences[depth]++;
    passes_ms += costs.passes.Ms(before + 1) - (before > 0 ? costs.passes.Ms(before) : 0);
    now.ms = costs.steps.Ms(rows) - others_ms + passes_ms;
    if (now.tokens / now.ms > best_speed) {
      best_speed = now.tokens / now.ms;
      best = now;
    }
    if (depth + 1 < candidates[i].chances.size()) {
      next.emplace(chance * candidates[i].chances[depth + 1], negative);
    }
  }
  return best;
}

// Takes the chances of those whose drafter would read more than their drafts save. Whether there
// were any.
bool DropUnearned(const Proposal& plan, const DraftCosts& costs,
                  std::vector<DraftCandidate>& candidates) {
  const auto count = static_cast<double>(candidates.size());
  const double saved_ms =
      plan.tokens / count * costs.steps.Ms(static_cast<int64_t>(candidates.size())) - plan.ms;
  bool dropped = false;
  for (size_t i = 0; i < candidates.size(); ++i) {
    DraftCandidate& candidate = candidates[i];
    if (plan.drafts[i] == 0 || candidate.missing_tokens == 0) continue;
    const double steps = static_cast<double>(candidate.expected_tokens) / (1 + plan.kept[i]);
    const double earned_ms = saved_ms * plan.kept[i] / (plan.tokens - count) * steps;
    const double paid_ms = costs.follow_ms * static_cast<double>(candidate.missing_tokens);
    if (earned_ms >= kLeastFollowGain * paid_ms) continue;
    candidate.chances.clear();
    dropped = true;
  }
  return dropped;
}

// Whether what it took says what another one would.
bool IsUsual(const DraftedStep& step) {
  constexpr uint64_t kMostCommitted = uint64_t{1} << 20;
  return step.is_usual && step.committed_bytes < kMostCommitted;
}

}  // namespace

void AcceptanceRates::Record(int kind, bool is_right) {
  Rate& rate = rates_[static_cast<size_t>(kind)];
  const int64_t weight = std::min(kPriorWeight + ++rate.judged, kRateMemory);
  Move(&rate.value, is_right ? 1 : 0, 1 / static_cast<double>(weight));
}

AcceptanceRates AcceptanceRates::AsPrior() const {
  AcceptanceRates prior = *this;
  for (Rate& rate : prior.rates_) rate.judged = 0;
  return prior;
}

std::vector<int64_t> PlanDrafts(std::vector<DraftCandidate> candidates, int64_t other_rows,
                                const DraftCosts& costs) {
  for (;;) {
    Proposal best = BestProposal(candidates, other_rows, costs);
    if (!DropUnearned(best, costs, candidates)) return std::move(best.drafts);
  }
}

int64_t DraftPlanner::ExpectedTokens(int64_t said, int64_t most) const {
  const auto usual = static_cast<int64_t>(answer_tokens_);
  return std::min(std::max(usual - said, said), most);
}

bool DraftPlanner::BeginStep(int64_t candidates) {
  if (candidates != candidates_) {
    candidates_ = candidates;
    skipped_steps_ = 0;
  }
  is_saving_ = account_ms_ <= 0 || (is_saving_ && account_ms_ < kSavedSteps * plain_ms_);
  if (is_saving_) return false;
  if (skipped_steps_ > 0) {
    --skipped_steps_;
    ++parked_steps_;
    return false;
  }
  if (drafted_steps_ < plain_interval_) return true;
  // The second of two, as what drafts leave behind makes the first one slower.
  if (plain_steps_ > 0) plain_interval_ = std::min(2 * plain_interval_, kLongestPlainInterval);
  return false;
}

double DraftPlanner::MostMs() const { return kMostSteps * plain_ms_; }

// Whose drafter would have to read more than the account has. A full account pays for anything: it
// would never have more.
void DraftPlanner::DropUnaffordable(std::vector<DraftCandidate>& candidates) const {
  if (account_ms_ >= MostMs()) return;
  double left_ms = account_ms_;
  for (DraftCandidate& candidate : candidates) {
    const double ms = costs_.follow_ms * static_cast<double>(candidate.missing_tokens);
    if (candidate.chances.empty() || ms <= left_ms) {
      left_ms -= candidate.chances.empty() ? 0 : ms;
    } else {
      candidate.chances.clear();
    }
  }
}

// The first time nothing is known, so that it is paid for whatever it takes, but for one only.
void DraftPlanner::DropAllButOne(std::vector<DraftCandidate>& candidates) {
  const auto rank = [](const DraftCandidate& candidate) {
    return std::pair(candidate.chances.empty(), candidate.missing_tokens);
  };
  const auto first = std::min_element(
      candidates.begin(), candidates.end(),
      [&](const DraftCandidate& a, const DraftCandidate& b) { return rank(a) < rank(b); });
  for (auto it = candidates.begin(); it != candidates.end(); ++it) {
    if (it != first) it->chances.clear();
  }
}

std::vector<int64_t> DraftPlanner::Plan(std::vector<DraftCandidate> candidates,
                                        int64_t other_rows) {
  if (has_guessed_ || pass_share_ == 0) {
    DropUnaffordable(candidates);
  } else {
    DropAllButOne(candidates);
  }
  std::vector<int64_t> plan = PlanDrafts(candidates, other_rows, costs_);
  if (std::any_of(plan.begin(), plan.end(), [](int64_t drafts) { return drafts > 0; })) {
    unwanted_ = 0;
    parked_steps_ = 0;
    probe_interval_ = kFirstInterval;
    return plan;
  }
  skipped_steps_ = StepsToSkip(++unwanted_);
  if (++parked_steps_ < probe_interval_) return plan;
  if (!has_guessed_) DropUnaffordable(candidates);
  return Probe(candidates);
}

// Before asking again, when there was nothing to be drafted so many times in a row.
int64_t DraftPlanner::StepsToSkip(int64_t unwanted) const {
  const double often_enough = plain_ms_ > 0 ? asking_ms_ / (kAskingShare * plain_ms_) : 0;
  const double halved = std::exp2(static_cast<double>(unwanted / kUnwantedPerHalving)) - 1;
  return static_cast<int64_t>(std::min({halved, often_enough, kMostSkipped}));
}

std::vector<int64_t> DraftPlanner::Probe(const std::vector<DraftCandidate>& candidates) {
  std::vector<int64_t> plan(candidates.size());
  // Everybody in turn, as each may have become predictable.
  for (size_t i = 0; i < candidates.size(); ++i) {
    const size_t candidate = ++probed_ % candidates.size();
    if (candidates[candidate].chances.empty()) continue;
    plan[candidate] = 1;
    parked_steps_ = 0;
    probe_interval_ = std::min(2 * probe_interval_, kLongestInterval);
    break;
  }
  return plan;
}

void DraftPlanner::RecordDraft(AcceptanceRates* rates, int kind, bool is_right) {
  rates->Record(kind, is_right);
  overall_.Record(kind, is_right);
  if (is_right) probe_interval_ = kFirstInterval;
}

// Of steps without drafts only those behind another one count: what drafts leave behind in caches
// makes the first one slower, and drafts are compared with having none at all.
void DraftPlanner::LearnCost(const DraftedStep& step) {
  constexpr int64_t kPromptRows = 32;  // reading so many takes longer than whatever ends an answer
  plain_steps_ = step.drafts > 0 ? 0 : plain_steps_ + 1;
  if (!IsUsual(step) && step.plain_rows < kPromptRows && !costs_.steps.empty()) return;
  if (step.drafts > 0) {
    ++drafted_steps_;
  } else if (plain_steps_ == 1 && drafted_steps_ > 0) {
    return;
  } else {
    drafted_steps_ = 0;
    const double plain_ms = costs_.steps.Ms(step.plain_rows);
    if (std::abs(step.ms - plain_ms) > kSurprise * plain_ms) {
      plain_interval_ = std::max(plain_interval_ / 4, kFirstInterval);
    }
  }
  costs_.steps.Record(step.plain_rows + step.drafts, step.ms);
}

void DraftPlanner::RecordStep(const DraftedStep& step) {
  const bool is_first = plain_ms_ == 0;
  const bool is_behind_drafts = plain_steps_ == 0 && drafted_steps_ > 0;
  const double plain_ms = costs_.steps.Ms(step.plain_rows);
  const int64_t rows = step.plain_rows + step.drafts;
  // What an answer's end took is nobody's, nor what memory took.
  const double ms = IsUsual(step) ? step.ms : std::min(step.ms, costs_.steps.Ms(rows));
  LearnCost(step);
  if (step.candidates == 0) return;
  plain_ms_ = costs_.steps.Ms(step.candidates);
  if (pass_share_ > 0) GuessCosts();
  if (is_first) {
    account_ms_ = kFirstSteps * plain_ms_;
    return;
  }
  account_ms_ += kAllowance * step.ms - step.drafting_ms;
  if (step.drafts == 0 && step.drafting_ms > 0) {
    Move(&asking_ms_, step.drafting_ms, asking_ms_ > 0 ? kAskingWeight : 1);
  }
  if (step.drafts > 0 || is_behind_drafts) {
    const double token_ms = plain_ms_ / static_cast<double>(step.candidates);
    const double most_ms = kStall * costs_.steps.Ms(rows);
    account_ms_ +=
        token_ms * static_cast<double>(step.kept_drafts) - (std::min(ms, most_ms) - plain_ms);
  }
  account_ms_ = std::min(account_ms_, MostMs());
}

void DraftPlanner::GuessCosts() {
  constexpr int64_t kManyRows = 256;  // of a prompt that is read
  if (!has_guessed_) {
    costs_.passes = {};
    costs_.passes.Record(1, pass_share_ * costs_.steps.Ms(1));
  }
  if (!has_followed_) costs_.follow_ms = pass_share_ * costs_.steps.Ms(kManyRows) / kManyRows;
}

void DraftPlanner::RecordFollow(int64_t tokens, double ms) {
  if (tokens == 0) return;
  // What the first guess needs is not held against the drafter: see DropAllButOne.
  if (has_guessed_) account_ms_ -= ms;
  const double each_ms = ms / static_cast<double>(tokens);
  Move(&costs_.follow_ms, each_ms, std::exchange(has_followed_, true) ? kFollowWeight : 1);
}

void DraftPlanner::RecordPasses(std::span<const int64_t> guessed, double ms) {
  int64_t most = 0;
  for (const int64_t tokens : guessed) most = std::max(most, tokens);
  std::vector<int64_t> sequences(static_cast<size_t>(most));
  for (const int64_t tokens : guessed) {
    for (int64_t pass = 0; pass < tokens; ++pass) ++sequences[static_cast<size_t>(pass)];
  }
  if (most == 0) return;
  if (!has_guessed_) costs_.passes = {};
  has_guessed_ = true;
  std::vector<double> expected_ms;
  for (const int64_t count : sequences) expected_ms.push_back(costs_.passes.Ms(count));
  const double all_ms = std::accumulate(expected_ms.begin(), expected_ms.end(), 0.0);
  for (size_t pass = 0; pass < sequences.size(); ++pass) {
    if (pass > 0 && sequences[pass - 1] == sequences[pass]) continue;
    costs_.passes.Record(sequences[pass], all_ms > 0 ? expected_ms[pass] * ms / all_ms
                                                     : ms / static_cast<double>(most));
  }
}

void DraftPlanner::RecordAnswer(int64_t tokens) {
  Move(&answer_tokens_, static_cast<double>(tokens), kAnswerWeight);
}

}  // namespace kvasir
