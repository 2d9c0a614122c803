// Mirostat (Basu et al., "Mirostat: a neural text decoding algorithm that directly controls
// perplexity", ICLR 2021): truncation whose bound follows the surprise of the tokens drawn.
// Deliberately only the bound: drawing is the sampler's.
#ifndef KVASIR_SAMPLING_MIROSTAT_H_
#define KVASIR_SAMPLING_MIROSTAT_H_

#include <cstddef>
#include <optional>

#include "kvasir/sampling/candidate_pool.h"
#include "kvasir/sampling/sampling_options.h"

namespace kvasir {

// What mirostat carries from token to token. A value: copy it to fork a sequence or before drafts,
// assign the copy to roll back.
struct MirostatState {
  std::optional<double> mu;  // bits; before the first token 2 * tau
};

// Cuts the pool to what mirostat allows under the bound mu; `vocabulary` is the paper's N.
// Version 1 is the paper's algorithm 1 (top-k from an estimate of Zipf's exponent), version 2 its
// simpler variant (no token more surprising than mu). REQUIRES: the pool is a list.
void MirostatCut(const MirostatOptions& options, double mu, size_t vocabulary, CandidatePool& pool);

// The bound after a token of this surprise (bits, under the distribution before the cut).
double MirostatUpdate(const MirostatOptions& options, double mu, double surprise);

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_MIROSTAT_H_
