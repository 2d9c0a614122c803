#include "kvasir/speculative/draft_rounds.h"

#include <utility>

namespace kvasir {
namespace {

// A draft model is a tenth of its target or less, and its passes take longer than that.
constexpr double kPassShare = 0.25;

double MsBetween(DraftRounds::Clock::time_point begin, DraftRounds::Clock::time_point end) {
  return std::chrono::duration<double, std::milli>(end - begin).count();
}

}  // namespace

DraftRounds::DraftRounds(std::unique_ptr<Drafter> drafter, std::function<Clock::time_point()> now)
    : drafter_(std::move(drafter)),
      now_(std::move(now)),
      planner_(drafter_->is_cheap() ? 0 : kPassShare) {}

bool DraftRounds::Begin(int64_t seats) {
  step_ = {.candidates = seats};
  return seats > 0 && planner_.BeginStep(seats);
}

std::vector<std::vector<Token>> DraftRounds::Propose(std::span<DraftSeat> seats,
                                                     int64_t other_rows) {
  const Clock::time_point begin = Now();
  for (DraftSeat& seat : seats) {
    if (!seat.answer->state) seat.answer->state = drafter_->NewState();
    if (!seat.answer->rates) seat.answer->rates = planner_.NewRates();
    seat.request.state = seat.answer->state.get();
  }
  follow_ms_ = 0;
  auto drafts = drafter_->is_cheap() ? Choose(seats, other_rows) : Ask(seats, other_rows);
  step_.drafting_ms = MsBetween(begin, Now()) - follow_ms_;
  return drafts;
}

// For up to `count` drafts.
DraftCandidate DraftRounds::CandidateOf(const DraftSeat& seat, int64_t count,
                                        int64_t missing_tokens) const {
  DraftCandidate candidate = {
      .chances = {},
      .missing_tokens = missing_tokens,
      .expected_tokens = planner_.ExpectedTokens(seat.said_tokens, seat.most_tokens)};
  candidate.chances.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) {
    candidate.chances.push_back(seat.answer->rates->Of(drafter_->Sureness(*seat.request.state, i)));
  }
  return candidate;
}

// Guesses that cost nothing: all are made, and the planner says which are worth verifying.
std::vector<std::vector<Token>> DraftRounds::Choose(std::span<const DraftSeat> seats,
                                                    int64_t other_rows) {
  std::vector<DraftRequest> requests;
  for (const DraftSeat& seat : seats) requests.push_back(seat.request);
  std::vector<std::vector<Token>> drafts = drafter_->Propose(requests);
  std::vector<DraftCandidate> candidates;
  for (size_t i = 0; i < seats.size(); ++i) {
    candidates.push_back(CandidateOf(seats[i], static_cast<int64_t>(drafts[i].size()), 0));
  }
  const std::vector<int64_t> plan = planner_.Plan(std::move(candidates), other_rows);
  for (size_t i = 0; i < seats.size(); ++i) drafts[i].resize(static_cast<size_t>(plan[i]));
  return drafts;
}

// Guesses of a drafter whose work the planner weighs before there is any.
std::vector<std::vector<Token>> DraftRounds::Ask(std::span<const DraftSeat> seats,
                                                 int64_t other_rows) {
  std::vector<DraftCandidate> candidates;
  for (const DraftSeat& seat : seats) {
    const std::optional<int64_t> missing = drafter_->MissingTokens(seat.request);
    candidates.push_back(
        CandidateOf(seat, missing ? seat.request.max_drafts : 0, missing.value_or(0)));
  }
  const std::vector<int64_t> plan = planner_.Plan(std::move(candidates), other_rows);
  std::vector<DraftRequest> requests;
  std::vector<size_t> chosen;
  for (size_t i = 0; i < seats.size(); ++i) {
    if (plan[i] == 0) continue;
    chosen.push_back(i);
    requests.push_back(seats[i].request);
    requests.back().max_drafts = plan[i];
  }
  std::vector<std::vector<Token>> drafts(seats.size());
  if (chosen.empty()) return drafts;
  Follow(requests);
  const Clock::time_point begin = Now();
  std::vector<std::vector<Token>> proposed = drafter_->Propose(requests);
  std::vector<int64_t> guessed;
  for (size_t i = 0; i < chosen.size(); ++i) {
    guessed.push_back(static_cast<int64_t>(proposed[i].size()));
    drafts[chosen[i]] = std::move(proposed[i]);
  }
  planner_.RecordPasses(guessed, MsBetween(begin, Now()));
  return drafts;
}

void DraftRounds::Follow(std::span<const DraftRequest> requests) {
  const auto missing = [&] {
    int64_t tokens = 0;
    for (const DraftRequest& request : requests) {
      tokens += drafter_->MissingTokens(request).value_or(0);
    }
    return tokens;
  };
  const int64_t before = missing();
  if (before == 0) return;
  const Clock::time_point begin = Now();
  drafter_->Follow(requests);
  follow_ms_ = MsBetween(begin, Now());
  planner_.RecordFollow(before - missing(), follow_ms_);
}

void DraftRounds::Judge(DraftedAnswer& answer, int64_t drafts, int64_t right, Answer after) {
  const auto record = [&](int64_t index, bool is_right) {
    planner_.RecordDraft(&*answer.rates, drafter_->Sureness(*answer.state, index), is_right);
  };
  for (int64_t i = 0; i < right; ++i) record(i, true);
  if (right < drafts && after == Answer::kGoesOn) record(right, false);
}

void DraftRounds::End(const DraftedStep& step) {
  DraftedStep ended = step;
  ended.candidates = step_.candidates;
  ended.drafting_ms = step_.drafting_ms;
  planner_.RecordStep(ended);
  step_ = {};
}

void DraftRounds::Report(DraftedAnswer& answer, DraftReport report) {
  if (!answer.state) answer.state = drafter_->NewState();
  report.state = answer.state.get();
  drafter_->Report(report);
}

DraftedAnswer DraftRounds::Fork(const DraftedAnswer& answer) {
  return {answer.state ? drafter_->ForkState(*answer.state) : nullptr, answer.rates};
}

void DraftRounds::Finish(DraftedAnswer& answer, KnownTokens known, uint64_t salt,
                         int64_t said_tokens) {
  if (said_tokens > 0) planner_.RecordAnswer(said_tokens);
  Drop(answer, known, salt);
}

void DraftRounds::Drop(DraftedAnswer& answer, KnownTokens known, uint64_t salt) {
  if (!answer.state) return;
  drafter_->Finish(*answer.state, known, salt);
  answer.state.reset();
}

}  // namespace kvasir
