// SamplingOptions: how one request wants its tokens chosen.
// Deliberately a plain value: the same options, seed and logits give the same token everywhere.
#ifndef KVASIR_SAMPLING_SAMPLING_OPTIONS_H_
#define KVASIR_SAMPLING_SAMPLING_OPTIONS_H_

#include <cstdint>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"

namespace kvasir {

struct TokenBias {
  Token token = 0;
  float bias = 0.0f;  // added to the logit; -infinity bans the token
};

struct SamplingOptions {
  double temperature = 0.0;  // >= 0; 0 is greedy, then the filters and the seed mean nothing
  int64_t top_k = 0;         // keep the k likeliest; 0: off
  double top_p = 1.0;        // (0, 1]: keep the smallest head of this mass; 1: off
  double min_p = 0.0;        // [0, 1]: keep what is at least this times the likeliest; 0: off
  uint64_t seed = 0;

  // Each distinct token of the prompt and the output: logit / x if positive, else logit * x. 1: off
  double repetition_penalty = 1.0;  // (0, 100]
  // Subtracted once per occurrence in the output. 0: off
  double frequency_penalty = 0.0;  // [-100, 100]
  // Subtracted if the token occurs in the output. 0: off
  double presence_penalty = 0.0;           // [-100, 100]
  std::vector<TokenBias> logit_bias = {};  // empty: off

  // ERRORS: kInvalidArgument, naming the field and its range.
  Status Validate(int64_t vocab_size) const;

  bool is_greedy() const { return temperature == 0.0; }
  bool has_penalties() const {
    return repetition_penalty != 1.0 || frequency_penalty != 0.0 || presence_penalty != 0.0;
  }
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_SAMPLING_OPTIONS_H_
