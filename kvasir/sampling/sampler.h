// Sampler: chooses a token from logits. A pure function of (logits, options, position, history).
// Deliberately never sees a cache, a batch or a clock, and holds nothing but scratch memory.
// Order of the stages, number formats and why: docs/sampling.md.
#ifndef KVASIR_SAMPLING_SAMPLER_H_
#define KVASIR_SAMPLING_SAMPLER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/sampling/sampling_options.h"

namespace kvasir {

// The sequence so far: what penalties count. Only read when options.has_penalties().
struct TokenHistory {
  std::span<const Token> prompt;
  std::span<const Token> output;
};

// The likeliest token; ties go to the lowest id, NaN counts as -infinity. REQUIRES: !logits.empty()
Token Argmax(std::span<const float> logits);

// THREADS: one caller at a time; one Sampler serves any number of requests in any order.
class Sampler {
 public:
  // Chooses the token at `position` of its sequence; the random number is a function of
  // (options.seed, position). Pass only the logits of ids that may be chosen, at most 2^22.
  // If no logit is above -infinity the lowest id is returned.
  // REQUIRES: !logits.empty(), options.Validate(logits.size()) is OK.
  Token Sample(std::span<const float> logits, const SamplingOptions& options, Position position,
               const TokenHistory& history = {});

 private:
  struct Candidate {
    float logit;
    Token token;
    uint64_t weight;  // exp((logit - max) / temperature) in units of 2^-40
  };

  // The logits after bias and penalties: the given span itself when there are none.
  std::span<const float> Process(std::span<const float> logits, const SamplingOptions& options,
                                 const TokenHistory& history);
  void ApplyPenalties(const SamplingOptions& options, const TokenHistory& history);
  // Fill candidates_, ascending by id; NaN never enters.
  void SelectTopK(std::span<const float> logits, size_t k);
  void SelectAbove(std::span<const float> logits, double cutoff);
  void Weigh(float max_logit, double temperature);
  void CutTopP(double top_p, float max_logit, double temperature);
  // The least likely of the fewest, likeliest candidates of scratch_ that weigh `wanted` together.
  Candidate LastKept(uint64_t wanted);
  void CutMinP(double min_p);
  Token Draw(double uniform) const;

  static bool Likelier(const Candidate& a, const Candidate& b);

  std::vector<float> processed_;
  std::vector<int32_t> counts_;  // per token, all zero between calls
  std::vector<Candidate> candidates_;
  std::vector<Candidate> scratch_;
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_SAMPLER_H_
