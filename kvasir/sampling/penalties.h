// Penalties: repetition, frequency and presence, from the tokens so far.
// Deliberately recounts every time: nothing to roll back, and a history of 30,000 tokens costs
// less than a tenth of a millisecond.
#ifndef KVASIR_SAMPLING_PENALTIES_H_
#define KVASIR_SAMPLING_PENALTIES_H_

#include <cstdint>
#include <vector>

#include "kvasir/sampling/candidate_pool.h"
#include "kvasir/sampling/sampling_options.h"
#include "kvasir/sampling/token_history.h"

namespace kvasir {

// THREADS: one caller at a time.
class Penalties {
 public:
  // Within the last options.repeat_last_n tokens. Tokens outside [0, vocabulary) are skipped.
  void Apply(const SamplingOptions& options, const TokenHistory& history, int64_t vocabulary,
             CandidatePool& pool);

 private:
  std::vector<int32_t> counts_;  // per token, all zero between calls
};

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_PENALTIES_H_
