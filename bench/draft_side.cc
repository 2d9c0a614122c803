#include "bench/draft_side.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "kvasir/base/check.h"

namespace kvasir {

namespace {

// Of each answer: a few milliseconds, in which a drafter's weights get warm as where it is alone,
// and machines seldom change.
constexpr int64_t kTurnTokens = 16;

}  // namespace

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
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

void DraftSide::Begin(std::span<const EngineRequest> requests, uint64_t salt) {
  for (EngineRequest warm : requests) {
    warm.salt = salt;
    warm.max_tokens = 0;  // the prompt is read and nothing said
    Submit(warm, nullptr);
  }
  while (engine_->Step()) {
  }
  answers_.assign(requests.size(), {});
  before_ = engine_->Stats();
  for (size_t i = 0; i < requests.size(); ++i) {
    EngineRequest request = requests[i];
    request.salt = salt;
    Submit(request, &answers_[i]);
  }
}

bool DraftSide::Step() {
  const EngineClock::time_point start = now_();
  const bool has_work = engine_->Step();
  seconds_ += std::chrono::duration<double>(now_() - start).count();
  return has_work;
}

int64_t DraftSide::said_tokens() const {
  return engine_->Stats().generated_tokens - before_.generated_tokens;
}

Answers DraftSide::End() {
  KVASIR_CHECK(!engine_->has_work());
  tokens_ += said_tokens();
  Add(before_, engine_->Stats());
  return std::move(answers_);
}

std::vector<Answers> RunInTurn(std::span<DraftSide* const> sides,
                               std::span<const EngineRequest> requests, uint64_t salt) {
  for (DraftSide* const side : sides) side->Begin(requests, salt);
  std::vector<DraftSide*> left(sides.begin(), sides.end());
  // What ran before leaves caches warm or cold: by lot, whoever is equally far.
  std::mt19937 lot(static_cast<uint32_t>(salt));
  while (!left.empty()) {
    std::shuffle(left.begin(), left.end(), lot);
    const auto next = std::min_element(left.begin(), left.end(), [](auto* a, auto* b) {
      return a->said_tokens() < b->said_tokens();
    });
    DraftSide* const side = *next;
    const int64_t turn = side->said_tokens() + kTurnTokens * static_cast<int64_t>(requests.size());
    bool has_work = true;
    while (has_work && side->said_tokens() < turn) has_work = side->Step();
    if (!has_work) left.erase(next);
  }
  std::vector<Answers> answers;
  for (DraftSide* const side : sides) answers.push_back(side->End());
  return answers;
}

void DraftSide::EndRound() {
  rates_.push_back(static_cast<double>(tokens_) / seconds_);
  tokens_ = 0;
  seconds_ = 0;
}

void DraftSide::Submit(const EngineRequest& request, std::vector<Token>* answer) {
  EngineCallbacks callbacks;
  callbacks.on_finish = [answer](EngineResult result) {
    KVASIR_CHECK(result.status.ok());
    if (answer != nullptr) *answer = result.answers[0].tokens;
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
