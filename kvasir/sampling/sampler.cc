#include "kvasir/sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/sampling/exact_math.h"
#include "kvasir/sampling/token_constraint.h"

namespace kvasir {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLn2 = 0x1.62e42fefa39efp-1;
// Of UniformDouble: the draw has 0.
constexpr uint64_t kXtcStream = 1;

// False for a stage that would change nothing.
bool IsOn(SamplerStage stage, const SamplingOptions& options) {
  switch (stage) {
    case SamplerStage::kPenalties:
      return options.has_penalties();
    case SamplerStage::kDry:
      return options.has_dry();
    case SamplerStage::kTopNSigma:
      return options.top_n_sigma > 0.0;
    case SamplerStage::kTemperature:
      return true;
    case SamplerStage::kTopK:
      return options.top_k > 0;
    case SamplerStage::kTypicalP:
      return options.typical_p < 1.0;
    case SamplerStage::kTopP:
      return options.top_p < 1.0;
    case SamplerStage::kMinP:
      return options.min_p > 0.0;
    case SamplerStage::kXtc:
      return options.xtc.probability > 0.0;
  }
  return false;
}

bool IsPenalty(SamplerStage stage) {
  return stage == SamplerStage::kPenalties || stage == SamplerStage::kDry;
}

bool HasDynamicTemperature(const SamplingOptions& options) {
  return options.dynamic_temperature.range > 0.0;
}

// How far below the largest logit one can lie and still matter to the stages that are left.
double Reach(std::span<const SamplerStage> left, const SamplingOptions& options,
             double temperature) {
  for (const SamplerStage stage : left) {
    if (!IsOn(stage, options)) continue;
    if (stage == SamplerStage::kTemperature) {
      if (HasDynamicTemperature(options)) return kInfinity;
      temperature = std::max(temperature, options.temperature);
    }
    // They count all logits, or can pull the largest ones down.
    if (IsPenalty(stage) || stage == SamplerStage::kTopNSigma) return kInfinity;
  }
  return CandidatePool::kNegligible * temperature;
}

double Mu(const SamplingOptions& options, const TokenHistory& history) {
  const double first = 2.0 * options.mirostat.tau;
  return history.mirostat != nullptr ? history.mirostat->mu.value_or(first) : first;
}

}  // namespace

Token Sampler::Sample(std::span<const float> logits, const SamplingOptions& options,
                      Position position, const TokenHistory& history) {
  if (const auto fixed = Run(logits, options, position, history)) return *fixed;
  const Token token = pool_.Draw(UniformDouble(options.seed, static_cast<uint64_t>(position)));
  if (options.mirostat.version != 0 && history.mirostat != nullptr) {
    const double share =
        static_cast<double>(mirostat_total_) / static_cast<double>(pool_.WeightOf(token));
    history.mirostat->mu =
        MirostatUpdate(options.mirostat, Mu(options, history), ExactLog(share) / kLn2);
  }
  return token;
}

TokenDistribution Sampler::Distribution(std::span<const float> logits,
                                        const SamplingOptions& options, Position position,
                                        const TokenHistory& history) {
  std::vector<TokenDistribution::Entry> entries;
  if (const auto fixed = Run(logits, options, position, history)) {
    entries.push_back({*fixed, 1});
    return TokenDistribution(std::move(entries));
  }
  for (const Candidate& candidate : pool_.Weighted()) {
    if (candidate.weight > 0) entries.push_back({candidate.token, candidate.weight});
  }
  return TokenDistribution(std::move(entries));
}

std::optional<Token> Sampler::Run(std::span<const float> logits, const SamplingOptions& options,
                                  Position position, const TokenHistory& history) {
  pool_.Reset(logits);
  if (history.constraint != nullptr) history.constraint->Mask(pool_.OwnLogits());
  for (const TokenBias& entry : options.logit_bias) pool_.AddBias(entry.token, entry.bias);
  const bool has_mirostat = options.mirostat.version != 0;
  const std::span<const SamplerStage> stages = options.stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    if (!IsOn(stages[i], options)) continue;
    if (stages[i] == SamplerStage::kPenalties) {
      penalties_.Apply(options, history, static_cast<int64_t>(logits.size()), pool_);
    } else if (stages[i] == SamplerStage::kDry) {
      dry_.Apply(options.dry, history, pool_);
    } else if (!options.is_greedy() && std::isfinite(pool_.max_logit())) {
      if (has_mirostat && stages[i] != SamplerStage::kTemperature) continue;
      const bool needs_list =
          stages[i] != SamplerStage::kTopK && stages[i] != SamplerStage::kTopNSigma &&
          (stages[i] != SamplerStage::kTemperature || HasDynamicTemperature(options));
      if (needs_list) pool_.MakeList(Reach(stages.subspan(i), options, pool_.temperature()));
      RunFilter(stages[i], options, position);
    }
  }
  const float largest = pool_.max_logit();
  if (largest == -kInfinity) return Argmax(logits);
  if (options.is_greedy() || !std::isfinite(largest)) return pool_.Likeliest();
  // Version 1 estimates from the 100 largest, however unlikely they are.
  pool_.MakeList(options.mirostat.version == 1 ? kInfinity
                                               : Reach({}, options, pool_.temperature()));
  if (has_mirostat) {
    mirostat_total_ = pool_.TotalWeight();
    MirostatCut(options.mirostat, Mu(options, history), logits.size(), pool_);
  }
  return std::nullopt;
}

void Sampler::RunFilter(SamplerStage stage, const SamplingOptions& options, Position position) {
  switch (stage) {
    case SamplerStage::kPenalties:
    case SamplerStage::kDry:
      return;
    case SamplerStage::kTopNSigma:
      return pool_.KeepTopNSigma(options.top_n_sigma);
    case SamplerStage::kTemperature:
      if (HasDynamicTemperature(options)) return RunDynamicTemperature(options);
      return pool_.SetTemperature(options.temperature);
    case SamplerStage::kTopK:
      return pool_.KeepTopK(static_cast<size_t>(options.top_k));
    case SamplerStage::kTypicalP:
      return pool_.KeepTypical(options.typical_p);
    case SamplerStage::kTopP:
      return pool_.KeepTopP(options.top_p);
    case SamplerStage::kMinP:
      return pool_.KeepMinP(options.min_p);
    case SamplerStage::kXtc:
      if (UniformDouble(options.seed, static_cast<uint64_t>(position), kXtcStream) <
          options.xtc.probability) {
        pool_.ExcludeTopChoices(options.xtc.threshold);
      }
      return;
  }
}

void Sampler::RunDynamicTemperature(const SamplingOptions& options) {
  const double range = options.dynamic_temperature.range;
  const double least = std::max(0.0, options.temperature - range);
  const double most = options.temperature + range;
  double share = 0.0;  // of the entropy that as many equally likely tokens would have
  if (pool_.size() > 1) {
    share = pool_.Entropy() / ExactLog(static_cast<double>(pool_.size()));
  }
  double power = share >= 1.0 ? 1.0 : 0.0;
  if (share > 0.0 && share < 1.0) {
    power = ExactExp(options.dynamic_temperature.exponent * ExactLog(share));
  }
  const double temperature = least + (most - least) * power;
  if (temperature > 0.0) return pool_.SetTemperature(temperature);
  pool_.KeepTopK(1);
}

}  // namespace kvasir
