// DraftVerdict: rejection sampling of one drafted token (Leviathan et al. 2023, algorithm 1; Chen
// et al. 2023), for drafters that know the distribution they drew from.
// Deliberately not token-identical to plain decoding, only in distribution: docs/sampling.md.
#ifndef KVASIR_SAMPLING_DRAFT_VERDICT_H_
#define KVASIR_SAMPLING_DRAFT_VERDICT_H_

#include <cstdint>

#include "kvasir/base/token.h"
#include "kvasir/sampling/token_distribution.h"

namespace kvasir {

struct DraftVerdict {
  bool accepted = false;
  Token token = 0;  // the draft, or what stands in its place; drafts after it are void then
};

struct DrawnDraft {
  Token token = 0;
  // What the token was drawn from, after the drafter's own filters; nullptr: it was no draw (an
  // n-gram, a greedy drafter).
  const TokenDistribution* distribution = nullptr;
};

// The token follows `target` exactly, whatever the drafter is. The random numbers are a function of
// (seed, position) that neither Sampler nor a drafter with the same seed uses.
DraftVerdict VerifyDraft(const TokenDistribution& target, const DrawnDraft& draft, uint64_t seed,
                         Position position);

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_DRAFT_VERDICT_H_
