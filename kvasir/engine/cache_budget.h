// CacheBudget: how the bytes that an engine may have are divided before anything is taken.
// Deliberately without weights: what is divided is what they leave.
#ifndef KVASIR_ENGINE_CACHE_BUDGET_H_
#define KVASIR_ENGINE_CACHE_BUDGET_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/model/model.h"

namespace kvasir {

struct CacheBudget {
  size_t total_bytes = 0;
  size_t block_bytes = 0;    // KvPool: what runs and what is cached
  size_t scratch_bytes = 0;  // activations and logits of the largest step, and the backend's part
  size_t index_bytes = 0;    // what the prefix tree knows beside blocks
  size_t draft_bytes = 0;    // a draft model's, which divides them in the same way
  int64_t step_tokens = 0;   // of the largest step: fewer than asked for where scratch is short

  // "768 MiB: 700 MiB of blocks, ..."
  std::string Describe() const;
};

struct CacheBudgetRequest {
  size_t total_bytes = 0;
  size_t draft_bytes = 0;     // of them
  int64_t step_tokens = 512;  // wanted
  int64_t streams = 1;        // answers at once: rows of logits
};

// Of what a draft model leaves scratch gets a quarter at most and what threads need whatever a step
// has, together half; steps become shorter until it is enough: no result depends on them. ERRORS:
// kInvalidArgument unless step_tokens and streams are 1 to 2^20; kResourceExhausted if a step of
// kLeastStepTokens takes more than that, naming the bytes that would do beside the
// draft model's.
Result<CacheBudget> PlanCacheBudget(const Model& model, const CacheBudgetRequest& request);

// Shorter steps read the weights too often to be of use.
inline constexpr int64_t kLeastStepTokens = 16;

// The bytes that a cache gets when nobody says: half of what the system had available before the
// weights were loaded, less the weights. The rest is for other programs and the system's own cache.
size_t DefaultCacheBytes(size_t available_bytes, size_t weight_bytes);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_CACHE_BUDGET_H_
