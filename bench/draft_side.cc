#include "bench/draft_side.h"

#include <algorithm>
#include <chrono>
#include <random>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

namespace {

// Of each answer: a few milliseconds, in which a drafter's weights get warm as where it is alone,
// and machines seldom change.
constexpr int64_t kTurnTokens = 16;

}  // namespace

std::string Ratio::Describe() const {
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f +-%.3f", value, off);
  return text;
}

DraftSide::DraftSide(ModelBundle& bundle, const Measure& measure)
    : pool_({.budget_bytes = kSidePoolBytes}), now_(measure.now) {
  EngineParts parts = EngineParts::Of(bundle);
  parts.pool = &pool_;
  EngineOptions options;
  options.now = measure.now;
  engine_ = Must(Engine::Create(parts, options));
}

void DraftSide::UseSource(std::unique_ptr<DraftSource> source) {
  UseDrafter(source->NewDrafter(&engine_->prefix_tree()));
  source_ = std::move(source);
}

namespace {

uint64_t SaltOf(const EngineRequest& request, uint64_t salt) {
  constexpr uint64_t kMostRepeats = 1 << 16;
  return salt * kMostRepeats + request.salt;
}

}  // namespace

void DraftSide::Begin(std::span<const EngineRequest> requests, size_t streams, uint64_t salt) {
  for (EngineRequest warm : requests) {
    warm.salt = SaltOf(warm, salt);
    warm.max_tokens = 0;  // the prompt is read and nothing said
    Submit(warm, nullptr);
  }
  while (engine_->Step()) {
  }
  requests_ = requests;
  salt_ = salt;
  streams_ = streams;
  begun_ = 0;
  ended_ = 0;
  answers_.assign(requests.size(), {});
  before_ = engine_->Stats();
  SubmitNext();
}

void DraftSide::SubmitNext() {
  for (; begun_ < requests_.size() && begun_ - ended_ < streams_; ++begun_) {
    EngineRequest request = requests_[begun_];
    request.salt = SaltOf(request, salt_);
    Submit(request, &answers_[begun_]);
  }
}

bool DraftSide::RunTo(int64_t tokens) {
  const int64_t said = said_tokens();
  Turn turn;
  while (engine_->has_work() && said_tokens() < tokens) {
    const EngineClock::time_point start = now_();
    engine_->Step();
    SubmitNext();
    turn.seconds += std::chrono::duration<double>(now_() - start).count();
  }
  turn.tokens = static_cast<double>(said_tokens() - said);
  turns_.push_back(turn);
  return engine_->has_work();
}

int64_t DraftSide::said_tokens() const {
  return engine_->Stats().generated_tokens - before_.generated_tokens;
}

Answers DraftSide::End() {
  KVASIR_CHECK(!engine_->has_work());
  Add(before_, engine_->Stats());
  return std::move(answers_);
}

std::vector<Answers> RunInTurn(std::span<DraftSide* const> sides,
                               std::span<const EngineRequest> requests, size_t streams,
                               uint64_t salt) {
  for (DraftSide* const side : sides) side->Begin(requests, streams, salt);
  std::vector<DraftSide*> order(sides.begin(), sides.end());
  // What ran before leaves caches warm or cold: by lot.
  std::mt19937 lot(static_cast<uint32_t>(salt));
  int64_t most = 0;
  for (bool has_work = true; has_work;) {
    most += kTurnTokens * static_cast<int64_t>(streams);
    std::shuffle(order.begin(), order.end(), lot);
    has_work = false;
    for (DraftSide* const side : order) has_work |= side->RunTo(most);
  }
  std::vector<Answers> answers;
  for (DraftSide* const side : sides) answers.push_back(side->End());
  return answers;
}

void DraftSide::EndRound() {
  Turn round;
  for (; round_begin_ < turns_.size(); ++round_begin_) {
    round.tokens += turns_[round_begin_].tokens;
    round.seconds += turns_[round_begin_].seconds;
  }
  rates_.push_back(round.tokens / round.seconds);
}

void DraftSide::Submit(const EngineRequest& request, std::vector<Token>* answer) {
  EngineCallbacks callbacks;
  callbacks.on_finish = [this, answer](EngineResult result) {
    KVASIR_CHECK(result.status.ok());
    if (answer == nullptr) return;
    *answer = result.answers[0].tokens;
    ++ended_;
  };
  Must(engine_->Submit(request, callbacks));
}

void DraftSide::Add(const EngineStats& before, const EngineStats& after) {
  stats_.drafted_tokens += after.drafted_tokens - before.drafted_tokens;
  stats_.accepted_drafts += after.accepted_drafts - before.accepted_drafts;
  for (size_t i = 0; i < stats_.draft_depths.size(); ++i) {
    stats_.draft_depths[i] += after.draft_depths[i] - before.draft_depths[i];
  }
}

std::vector<double> DraftSide::RatiosTo(const DraftSide& other) const {
  std::vector<double> ratios;
  for (size_t i = 0; i < rates_.size(); ++i) ratios.push_back(rates_[i] / other.rates_[i]);
  return ratios;
}

Ratio DraftSide::RatioTo(const DraftSide& other) const {
  KVASIR_CHECK(turns_.size() == other.turns_.size());
  std::vector<std::pair<Turn, Turn>> turns;
  for (size_t i = 0; i < turns_.size(); ++i) {
    // Who said more than was its turn has nothing left for the next one now and then.
    if (turns_[i].tokens == 0 || other.turns_[i].tokens == 0) continue;
    turns.emplace_back(turns_[i], other.turns_[i]);
  }
  constexpr size_t kDraws = 200;
  std::mt19937 random(1);
  std::vector<double> drawn;
  for (size_t draw = 0; draw < kDraws; ++draw) {
    std::vector<std::pair<Turn, Turn>> some;
    for (size_t i = 0; i < turns.size(); ++i) some.push_back(turns[random() % turns.size()]);
    drawn.push_back(MiddleRatio(std::move(some)));
  }
  std::sort(drawn.begin(), drawn.end());
  return {MiddleRatio(std::move(turns)), (drawn[kDraws * 39 / 40] - drawn[kDraws / 40]) / 2};
}

double DraftSide::MiddleRatio(std::vector<std::pair<Turn, Turn>> turns) {
  const auto speed = [](const Turn& turn) { return turn.tokens / turn.seconds; };
  std::sort(turns.begin(), turns.end(), [&](const auto& a, const auto& b) {
    return speed(a.first) / speed(a.second) < speed(b.first) / speed(b.second);
  });
  Turn sum;
  Turn sum_of_other;
  const size_t tenth = turns.size() / 10;
  for (size_t i = tenth; i < turns.size() - tenth; ++i) {
    sum.tokens += turns[i].first.tokens;
    sum.seconds += turns[i].first.seconds;
    sum_of_other.tokens += turns[i].second.tokens;
    sum_of_other.seconds += turns[i].second.seconds;
  }
  return speed(sum) / speed(sum_of_other);
}

std::string DraftSide::DescribeDrafts() const {
  const auto share = [](int64_t part, int64_t whole) {
    return whole > 0 ? static_cast<double>(part) / static_cast<double>(whole) : 0.0;
  };
  int64_t rounds = 0;
  for (const int64_t count : stats_.draft_depths) rounds += count;
  char figures[64];
  std::snprintf(figures, sizeof(figures), "%2.0f %% right, %.2f kept, depths",
                100 * share(stats_.accepted_drafts, stats_.drafted_tokens),
                share(stats_.accepted_drafts, rounds));
  std::string text = figures;
  constexpr size_t kEnds[] = {1, 2, 3, 5, 9, 17};  // 0, 1, 2, 3-4, 5-8, 9-16
  size_t depth = 0;
  for (const size_t end : kEnds) {
    int64_t count = 0;
    const char* const separator = depth == 0 ? " " : "/";
    for (; depth < end; ++depth) count += stats_.draft_depths[depth];
    std::snprintf(figures, sizeof(figures), "%s%.0f", separator, 100 * share(count, rounds));
    text += figures;
  }
  return text;
}

std::string DescribeSpread(const std::vector<double>& values) {
  const auto [least, most] = std::minmax_element(values.begin(), values.end());
  char text[32];
  std::snprintf(text, sizeof(text), "%.3f-%.3f", *least, *most);
  return text;
}

}  // namespace kvasir
