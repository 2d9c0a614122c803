// Sampler: chooses a token from logits. A pure function of (logits, options, position, history).
// Deliberately never sees a cache, a batch or a clock, and holds nothing but scratch memory.
// Order of the stages, number formats and why: docs/sampling.md.
#ifndef KVASIR_SAMPLING_SAMPLER_H_
#define KVASIR_SAMPLING_SAMPLER_H_

#include <cstdint>
#include <optional>
#include <span>

#include "kvasir/base/token.h"
#include "kvasir/sampling/candidate_pool.h"
#include "kvasir/sampling/dry.h"
#include "kvasir/sampling/mirostat.h"
#include "kvasir/sampling/penalties.h"
#include "kvasir/sampling/sampling_options.h"
#include "kvasir/sampling/token_distribution.h"
#include "kvasir/sampling/token_history.h"

namespace kvasir {

// THREADS: one caller at a time; one Sampler serves any number of requests in any order.
class Sampler {
 public:
  // Chooses the token at `position` of its sequence; the random numbers are a function of
  // (options.seed, position). Pass only the logits of ids that may be chosen, at most 2^22.
  // If biases or history.constraint leave no logit above -infinity, the largest one that was given
  // wins: a constraint does not accept it.
  // With mirostat, history.mirostat becomes the state after this token.
  // REQUIRES: !logits.empty(), options.Validate(logits.size()) is OK.
  Token Sample(std::span<const float> logits, const SamplingOptions& options, Position position,
               const TokenHistory& history = {});

  // What Sample draws from there, by one uniform number: Sample(...) is
  // Distribution(...).Draw(UniformDouble(options.seed, position)). Greedy has one entry. XTC's coin
  // for this position has been tossed. Leaves history.mirostat as it is.
  TokenDistribution Distribution(std::span<const float> logits, const SamplingOptions& options,
                                 Position position, const TokenHistory& history = {});

 private:
  // Runs the chain. A token when there is nothing to draw (greedy, infinite logits), else nothing
  // and pool_ is a list.
  std::optional<Token> Run(std::span<const float> logits, const SamplingOptions& options,
                           Position position, const TokenHistory& history);
  void RunFilter(SamplerStage stage, const SamplingOptions& options, Position position);
  void RunDynamicTemperature(const SamplingOptions& options);

  CandidatePool pool_;
  Penalties penalties_;
  Dry dry_;
  uint64_t mirostat_total_ = 0;  // the pool's weight before mirostat's cut
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_SAMPLER_H_
