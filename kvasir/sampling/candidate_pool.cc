#include "kvasir/sampling/candidate_pool.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/sampling/exact_math.h"

namespace kvasir {
namespace {

// Probabilities are integers in units of 2^-40 of the likeliest one: their sums are exact in any
// order, so partial selection needs no fixed order to give the same bits.
constexpr double kOne = 0x1p40;
// How many exponentials are computed at a time: 2 KiB of doubles stay in the first-level cache.
constexpr size_t kChunk = 256;
// Selection buffers at least this many, so that small k do not select over and over.
constexpr size_t kMinSelection = 1024;
// Reductions over all logits run in this many lanes: fixed, yet not one long chain.
constexpr size_t kLanes = 16;

constexpr float kBanned = -std::numeric_limits<float>::infinity();
constexpr double kLowest = -std::numeric_limits<float>::max();

// Rounds e in [0, 1] to a weight. Adding 2^52 leaves the integer in the mantissa.
uint64_t ToWeight(double e) {
  return std::bit_cast<uint64_t>(e * kOne + 0x1p52) & ((uint64_t{1} << 52) - 1);
}

float Largest(std::span<const float> logits) {
  std::array<float, kLanes> lanes;
  lanes.fill(kBanned);
  size_t i = 0;
  for (; i + kLanes <= logits.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) {
      // False for NaN.
      lanes[lane] = logits[i + lane] > lanes[lane] ? logits[i + lane] : lanes[lane];
    }
  }
  float largest = kBanned;
  for (const float lane : lanes) largest = lane > largest ? lane : largest;
  for (; i < logits.size(); ++i) largest = logits[i] > largest ? logits[i] : largest;
  return largest;
}

// Sum of value(i) for i < count, in lanes.
template <typename Value>
double SumInLanes(size_t count, const Value& value) {
  std::array<double, kLanes> sums = {};
  for (size_t i = 0; i < count; ++i) sums[i % kLanes] += value(i);
  double sum = 0.0;
  for (const double lane : sums) sum += lane;
  return sum;
}

}  // namespace

Token Argmax(std::span<const float> logits) {
  KVASIR_CHECK(!logits.empty());
  const float largest = Largest(logits);
  if (largest == kBanned) return 0;
  return static_cast<Token>(std::find(logits.begin(), logits.end(), largest) - logits.begin());
}

bool CandidatePool::Likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

bool CandidatePool::Before(const Ranked& a, const Ranked& b) {
  return a.key != b.key ? a.key < b.key : a.token < b.token;
}

void CandidatePool::Reset(std::span<const float> logits) {
  KVASIR_CHECK(!logits.empty() && logits.size() <= kMaxTokens);
  logits_ = logits;
  own_.clear();
  temperature_ = 1.0;
  is_list_ = false;
  is_max_known_ = false;
  has_weights_ = false;
}

std::span<float> CandidatePool::OwnLogits() {
  own_.assign(logits_.begin(), logits_.end());
  logits_ = own_;
  return own_;
}

void CandidatePool::Penalize(Token token, double factor, double loss) {
  float* logit = Find(token);
  if (logit == nullptr || !std::isfinite(*logit)) return;
  const double before = *logit;
  const double after = (before > 0.0 ? before / factor : before * factor) - loss * temperature_;
  *logit = static_cast<float>(std::clamp(after, kLowest, -kLowest));
}

void CandidatePool::AddBias(Token token, float bias) {
  if (float* logit = Find(token)) *logit += bias;
}

// For writing: what was derived from the logits is forgotten.
float* CandidatePool::Find(Token token) {
  if (token < 0 || static_cast<size_t>(token) >= logits_.size()) return nullptr;
  is_max_known_ = false;
  has_weights_ = false;
  if (!is_list_) {
    if (own_.empty()) (void)OwnLogits();
    return &own_[static_cast<size_t>(token)];
  }
  const auto found = std::lower_bound(candidates_.begin(), candidates_.end(), token,
                                      [](const Candidate& a, Token id) { return a.token < id; });
  return found != candidates_.end() && found->token == token ? &found->logit : nullptr;
}

float CandidatePool::max_logit() {
  if (is_max_known_) return max_logit_;
  is_max_known_ = true;
  if (!is_list_) return max_logit_ = Largest(logits_);
  max_logit_ = kBanned;
  for (const Candidate& candidate : candidates_) {
    max_logit_ = candidate.logit > max_logit_ ? candidate.logit : max_logit_;
  }
  return max_logit_;
}

Token CandidatePool::Likeliest() {
  if (!is_list_) return Argmax(logits_);
  return std::min_element(candidates_.begin(), candidates_.end(), Likelier)->token;
}

void CandidatePool::KeepTopK(size_t k) {
  if (!is_list_) {
    if (k < logits_.size()) SelectTopK(k);
    return;
  }
  if (k >= candidates_.size()) return;
  std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k) - 1,
                   candidates_.end(), Likelier);
  candidates_.resize(k);
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  AfterCut();
}

void CandidatePool::SelectTopK(size_t k) {
  candidates_.clear();
  const size_t limit = std::max(2 * k, kMinSelection);
  const auto keep_best = [&] {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k) - 1,
                     candidates_.end(), Likelier);
    candidates_.resize(k);
  };
  float threshold = kBanned;
  for (size_t i = 0; i < logits_.size(); ++i) {
    // Equal to the k-th so far is not enough: ties go to lower ids, and those came before.
    if (!(logits_[i] > threshold)) continue;
    candidates_.push_back({logits_[i], static_cast<Token>(i), 0});
    if (candidates_.size() == limit) {
      keep_best();
      threshold = candidates_.back().logit;
    }
  }
  if (candidates_.size() > k) keep_best();
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  is_list_ = true;
}

void CandidatePool::SelectAbove(double cutoff) {
  // Written unconditionally, counted conditionally: which logits pass is not predictable.
  candidates_.resize(logits_.size());
  size_t count = 0;
  for (size_t i = 0; i < logits_.size(); ++i) {
    candidates_[count] = {logits_[i], static_cast<Token>(i), 0};
    // False for NaN. The negligible ones stay out early: most of a peaked distribution.
    count += logits_[i] >= cutoff ? 1 : 0;
  }
  candidates_.resize(count);
  is_list_ = true;
}

void CandidatePool::MakeList(double reach) {
  if (!is_list_) SelectAbove(std::max(max_logit() - reach, kLowest));
}

void CandidatePool::KeepTopNSigma(double n) {
  const double largest = max_logit();
  const size_t size = is_list_ ? candidates_.size() : logits_.size();
  const auto logit = [&](size_t i) { return is_list_ ? candidates_[i].logit : logits_[i]; };
  const auto is_finite = [&](size_t i) { return logit(i) >= kLowest; };
  const double count = SumInLanes(size, [&](size_t i) { return is_finite(i) ? 1.0 : 0.0; });
  const double mean =
      SumInLanes(size, [&](size_t i) { return is_finite(i) ? logit(i) - largest : 0.0; }) / count;
  const double variance = SumInLanes(size,
                                     [&](size_t i) {
                                       const double deviation =
                                           is_finite(i) ? logit(i) - largest - mean : 0.0;
                                       return deviation * deviation;
                                     }) /
                          count;
  const double cutoff = std::max(largest - n * std::sqrt(variance), kLowest);
  if (!is_list_) return SelectAbove(cutoff);
  std::erase_if(candidates_, [&](const Candidate& other) { return other.logit < cutoff; });
  AfterCut();
}

void CandidatePool::SetTemperature(double temperature) {
  has_weights_ = has_weights_ && temperature == temperature_;
  temperature_ = temperature;
}

void CandidatePool::EnsureWeights() {
  if (has_weights_) return;
  const double largest = max_logit();
  std::array<double, kChunk> values;
  total_ = 0;
  for (size_t begin = 0; begin < candidates_.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, candidates_.size() - begin);
    Candidate* chunk = candidates_.data() + begin;
    for (size_t i = 0; i < count; ++i) {
      values[i] = (static_cast<double>(chunk[i].logit) - largest) / temperature_;
    }
    ExactExp(values.data(), count);
    for (size_t i = 0; i < count; ++i) total_ += chunk[i].weight = ToWeight(values[i]);
  }
  has_weights_ = true;
}

}  // namespace kvasir
