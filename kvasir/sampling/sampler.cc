#include "kvasir/sampling/sampler.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/base/rng.h"
#include "kvasir/sampling/exact_math.h"

namespace kvasir {
namespace {

// Probabilities are integers in units of 2^-40 of the likeliest one: their sums are exact in any
// order, so partial selection needs no fixed order to give the same bits. 2^22 of them fit 63 bits.
constexpr double kOne = 0x1p40;
constexpr size_t kMaxVocabulary = size_t{1} << 22;
// e^-29 is below 2^-41 and rounds to a weight of zero.
constexpr double kNegligible = 29.0;
// How many exponentials are computed at a time: 2 KiB of doubles stay in the first-level cache.
constexpr size_t kChunk = 256;
// Selection buffers at least this many, so that small k do not select over and over.
constexpr size_t kMinSelection = 1024;

// Of the histogram over e^0 to e^-29: a stretch of 151,936 logits is then some hundred of them.
constexpr size_t kBins = 1024;

constexpr float kLowest = -std::numeric_limits<float>::infinity();

// Rounds e in [0, 1] to a weight. Adding 2^52 leaves the integer in the mantissa.
uint64_t ToWeight(double e) {
  return std::bit_cast<uint64_t>(e * kOne + 0x1p52) & ((uint64_t{1} << 52) - 1);
}

}  // namespace

Token Argmax(std::span<const float> logits) {
  KVASIR_CHECK(!logits.empty());
  float best = kLowest;
  size_t token = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (logits[i] > best) {
      best = logits[i];
      token = i;
    }
  }
  return static_cast<Token>(token);
}

bool Sampler::Likelier(const Candidate& a, const Candidate& b) {
  return a.logit != b.logit ? a.logit > b.logit : a.token < b.token;
}

Token Sampler::Sample(std::span<const float> logits, const SamplingOptions& options,
                      Position position, const TokenHistory& history) {
  KVASIR_CHECK(!logits.empty() && logits.size() <= kMaxVocabulary);
  logits = Process(logits, options, history);
  const Token likeliest = Argmax(logits);
  const float max_logit = logits[static_cast<size_t>(likeliest)];
  // Nothing to scale: all are banned or NaN, or one is infinitely likely.
  if (options.is_greedy() || !std::isfinite(max_logit)) return likeliest;

  if (options.top_k > 0 && options.top_k < static_cast<int64_t>(logits.size())) {
    SelectTopK(logits, static_cast<size_t>(options.top_k));
  } else {
    SelectAbove(logits, max_logit - kNegligible * options.temperature);
  }
  Weigh(max_logit, options.temperature);
  if (options.top_p < 1.0) {
    CutTopP(options.top_p, max_logit, options.temperature);
  }
  if (options.min_p > 0.0) CutMinP(options.min_p);
  return Draw(UniformDouble(options.seed, static_cast<uint64_t>(position)));
}

std::span<const float> Sampler::Process(std::span<const float> logits,
                                        const SamplingOptions& options,
                                        const TokenHistory& history) {
  if (options.logit_bias.empty() && !options.has_penalties()) return logits;
  processed_.assign(logits.begin(), logits.end());
  for (const TokenBias& entry : options.logit_bias) {
    const auto id = static_cast<size_t>(entry.token);
    if (id < processed_.size()) processed_[id] += entry.bias;
  }
  if (options.has_penalties()) ApplyPenalties(options, history);
  return processed_;
}

void Sampler::ApplyPenalties(const SamplingOptions& options, const TokenHistory& history) {
  constexpr int32_t kDone = -1;
  if (counts_.size() < processed_.size()) counts_.resize(processed_.size(), 0);
  const auto is_known = [&](Token token) {
    return token >= 0 && static_cast<size_t>(token) < processed_.size();
  };
  const auto penalize = [&](Token token, int32_t output_count) {
    double logit = processed_[static_cast<size_t>(token)];
    logit = logit > 0.0 ? logit / options.repetition_penalty : logit * options.repetition_penalty;
    logit -= options.frequency_penalty * output_count;
    if (output_count > 0) logit -= options.presence_penalty;
    processed_[static_cast<size_t>(token)] = static_cast<float>(logit);
  };
  for (const Token token : history.output) {
    if (is_known(token)) ++counts_[static_cast<size_t>(token)];
  }
  // Output first: a token that is in both is penalized once, with its count.
  for (const std::span<const Token> tokens : {history.output, history.prompt}) {
    for (const Token token : tokens) {
      if (!is_known(token) || counts_[static_cast<size_t>(token)] == kDone) continue;
      penalize(token, counts_[static_cast<size_t>(token)]);
      counts_[static_cast<size_t>(token)] = kDone;
    }
  }
  for (const std::span<const Token> tokens : {history.output, history.prompt}) {
    for (const Token token : tokens) {
      if (is_known(token)) counts_[static_cast<size_t>(token)] = 0;
    }
  }
}

void Sampler::SelectTopK(std::span<const float> logits, size_t k) {
  candidates_.clear();
  const size_t limit = std::max(2 * k, kMinSelection);
  const auto keep_best = [&] {
    std::nth_element(candidates_.begin(), candidates_.begin() + static_cast<ptrdiff_t>(k) - 1,
                     candidates_.end(), Likelier);
    candidates_.resize(k);
  };
  float threshold = kLowest;
  for (size_t i = 0; i < logits.size(); ++i) {
    // Equal to the k-th so far is not enough: ties go to lower ids, and those came before.
    if (!(logits[i] > threshold)) continue;
    candidates_.push_back({logits[i], static_cast<Token>(i), 0});
    if (candidates_.size() == limit) {
      keep_best();
      threshold = candidates_.back().logit;
    }
  }
  if (candidates_.size() > k) keep_best();
  std::sort(candidates_.begin(), candidates_.end(),
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
}

void Sampler::SelectAbove(std::span<const float> logits, double cutoff) {
  // Written unconditionally, counted conditionally: which logits pass is not predictable.
  candidates_.resize(logits.size());
  size_t count = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    candidates_[count] = {logits[i], static_cast<Token>(i), 0};
    // False for NaN. The negligible ones stay out early: most of a peaked distribution.
    count += logits[i] >= cutoff ? 1 : 0;
  }
  candidates_.resize(count);
}

void Sampler::Weigh(float max_logit, double temperature) {
  std::array<double, kChunk> values;
  for (size_t begin = 0; begin < candidates_.size(); begin += kChunk) {
    const size_t count = std::min(kChunk, candidates_.size() - begin);
    Candidate* chunk = candidates_.data() + begin;
    for (size_t i = 0; i < count; ++i) {
      values[i] = (static_cast<double>(chunk[i].logit) - max_logit) / temperature;
    }
    ExactExp(values.data(), count);
    for (size_t i = 0; i < count; ++i) chunk[i].weight = ToWeight(values[i]);
  }
}

void Sampler::CutTopP(double top_p, float max_logit, double temperature) {
  // A histogram of mass over the logits finds the stretch that holds the boundary; only that
  // stretch is then searched. Integer sums make the result that of sorting everything.
  // Bounded, so that 0 times it is never NaN however low the temperature.
  const double bins_per_logit =
      std::min(kBins / (kNegligible * temperature), std::numeric_limits<double>::max());
  const auto bin_of = [&](const Candidate& candidate) {
    const double bin = (static_cast<double>(max_logit) - candidate.logit) * bins_per_logit;
    return bin < kBins - 1 ? static_cast<size_t>(bin) : kBins - 1;
  };
  std::array<uint64_t, kBins> masses = {};
  uint64_t total = 0;
  for (const Candidate& candidate : candidates_) {
    masses[bin_of(candidate)] += candidate.weight;
    total += candidate.weight;
  }
  const auto wanted =
      std::min(total, static_cast<uint64_t>(std::ceil(top_p * static_cast<double>(total))));
  size_t boundary_bin = 0;
  uint64_t kept = 0;
  while (kept + masses[boundary_bin] < wanted) kept += masses[boundary_bin++];

  scratch_.clear();
  for (const Candidate& candidate : candidates_) {
    if (bin_of(candidate) == boundary_bin) scratch_.push_back(candidate);
  }
  const Candidate last = LastKept(wanted - kept);
  std::erase_if(candidates_, [&](const Candidate& other) { return Likelier(last, other); });
}

Sampler::Candidate Sampler::LastKept(uint64_t wanted) {
  // Halving: the answer lies in [low, high), everything before low is kept. Linear on average.
  size_t low = 0;
  size_t high = scratch_.size();
  uint64_t kept = 0;
  while (high - low > 1) {
    const size_t middle = low + (high - low) / 2;
    const auto begin = scratch_.begin();
    std::nth_element(begin + static_cast<ptrdiff_t>(low), begin + static_cast<ptrdiff_t>(middle),
                     begin + static_cast<ptrdiff_t>(high), Likelier);
    uint64_t mass = 0;
    for (size_t i = low; i < middle; ++i) mass += scratch_[i].weight;
    if (kept + mass >= wanted) {
      high = middle;
    } else {
      kept += mass;
      low = middle;
    }
  }
  return scratch_[low];
}

void Sampler::CutMinP(double min_p) {
  const double least = min_p * kOne;
  std::erase_if(candidates_, [&](const Candidate& candidate) {
    return static_cast<double>(candidate.weight) < least;
  });
}

Token Sampler::Draw(double uniform) const {
  uint64_t total = 0;
  for (const Candidate& candidate : candidates_) total += candidate.weight;
  // The likeliest token has weight 2^40 and is never cut, so total > 0.
  uint64_t rest = std::min(total - 1, static_cast<uint64_t>(uniform * static_cast<double>(total)));
  for (const Candidate& candidate : candidates_) {
    if (rest < candidate.weight) return candidate.token;
    rest -= candidate.weight;
  }
  KVASIR_CHECK(false);
}

}  // namespace kvasir
