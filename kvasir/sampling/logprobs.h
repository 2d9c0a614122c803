// Log-probabilities of the model itself: before bias, penalties, temperature and filters.
// Deliberately not what the sampler drew from; clients compare these across settings.
#ifndef KVASIR_SAMPLING_LOGPROBS_H_
#define KVASIR_SAMPLING_LOGPROBS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/token.h"

namespace kvasir {

struct TokenLogprob {
  Token token = 0;
  double logprob = 0.0;  // natural logarithm
};

// Log-softmax of one row of logits, in double; the same bits on every machine.
// A logit that is NaN or -infinity has logprob -infinity. Borrows the logits.
class Logprobs {
 public:
  // REQUIRES: !logits.empty().
  explicit Logprobs(std::span<const float> logits);

  // REQUIRES: 0 <= token < logits.size().
  double Of(Token token) const;
  // The `count` likeliest (fewer if the vocabulary is smaller), likeliest first, ties by lowest id.
  std::vector<TokenLogprob> Top(int64_t count) const;

 private:
  std::span<const float> logits_;
  double max_logit_ = 0.0;
  double log_sum_ = 0.0;  // log of the sum of exp(logit - max)
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_LOGPROBS_H_
