#include "kvasir/sampling/logprobs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/sampling/exact_math.h"

namespace kvasir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr size_t kChunk = 256;
// Sums run in this many lanes and are then added in order: fixed, yet not one long chain.
constexpr size_t kLanes = 8;

// logit - max, with NaN as -infinity and infinity minus itself as 0.
double Below(float logit, double max_logit) {
  if (std::isnan(logit)) return -kInfinity;
  const double value = logit;
  return value == max_logit ? 0.0 : value - max_logit;
}

}  // namespace

Logprobs::Logprobs(std::span<const float> logits) : logits_(logits) {
  KVASIR_CHECK(!logits.empty());
  max_logit_ = -kInfinity;
  for (const float logit : logits) {
    if (logit > max_logit_) max_logit_ = logit;
  }
  if (max_logit_ == -kInfinity) {
    log_sum_ = kInfinity;  // no token has any probability: every logprob is -infinity
    return;
  }
  std::array<double, kLanes> sums = {};
  std::array<double, kChunk> values;
  for (size_t begin = 0; begin < logits.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, logits.size() - begin);
    for (size_t i = 0; i < count; ++i) values[i] = Below(logits[begin + i], max_logit_);
    ExactExp(values.data(), count);
    for (size_t i = 0; i < count; ++i) sums[i % kLanes] += values[i];
  }
  double total = 0.0;
  for (const double sum : sums) total += sum;
  log_sum_ = ExactLog(total);
}

double Logprobs::Of(Token token) const {
  KVASIR_CHECK(token >= 0 && static_cast<size_t>(token) < logits_.size());
  return Below(logits_[static_cast<size_t>(token)], max_logit_) - log_sum_;
}

std::vector<TokenLogprob> Logprobs::Top(int64_t count) const {
  const auto wanted =
      static_cast<size_t>(std::clamp<int64_t>(count, 0, static_cast<int64_t>(logits_.size())));
  std::vector<TokenLogprob> all(logits_.size());
  for (size_t i = 0; i < all.size(); ++i) {
    all[i] = {static_cast<Token>(i), Below(logits_[i], max_logit_) - log_sum_};
  }
  std::partial_sort(all.begin(), all.begin() + static_cast<ptrdiff_t>(wanted), all.end(),
                    [](const TokenLogprob& a, const TokenLogprob& b) {
                      return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
                    });
  all.resize(wanted);
  return all;
}

}  // namespace kvasir
