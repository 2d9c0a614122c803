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
  const auto is_likelier = [](const TokenLogprob& a, const TokenLogprob& b) {
    return a.logprob != b.logprob ? a.logprob > b.logprob : a.token < b.token;
  };
  std::vector<TokenLogprob> top;
  if (count <= 0) return top;
  const size_t wanted = std::min(static_cast<uint64_t>(count), uint64_t{logits_.size()});
  top.reserve(wanted);
  // A heap whose front is the least likely of the likeliest so far.
  for (size_t i = 0; i < logits_.size(); ++i) {
    const TokenLogprob next = {static_cast<Token>(i), Below(logits_[i], max_logit_) - log_sum_};
    if (top.size() == wanted) {
      if (!is_likelier(next, top.front())) continue;
      std::pop_heap(top.begin(), top.end(), is_likelier);
      top.pop_back();
    }
    top.push_back(next);
    std::push_heap(top.begin(), top.end(), is_likelier);
  }
  std::sort_heap(top.begin(), top.end(), is_likelier);
  return top;
}

}  // namespace kvasir
