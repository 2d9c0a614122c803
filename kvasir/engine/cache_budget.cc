#include "kvasir/engine/cache_budget.h"

#include <algorithm>
#include <utility>

#include "kvasir/engine/scheduler.h"

namespace kvasir {
namespace {

// Blocks are most of it, and an index entry is thousands of times smaller than its blocks: 1.5 %
// is enough for models whose blocks take 4 KiB and more.
constexpr size_t kIndexShare = 64;
constexpr size_t kScratchShare = 4;
// When the system does not say how much memory is available.
constexpr size_t kFallbackBytes = size_t{1} << 30;
// Of tokens and of answers. More than any machine takes in a step; below what overflows.
constexpr int64_t kMostOfStep = int64_t{1} << 20;
// Below this a cache is good for nothing: a few blocks of a small model.
constexpr size_t kLeastBytes = size_t{16} << 20;

std::string Mebibytes(size_t bytes) {
  const size_t tenths = bytes * 10 >> 20;
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " MiB";
}

size_t ScratchOf(const Model& model, const CacheBudgetRequest& request, int64_t step_tokens) {
  // A row per answer, however few tokens a step is to have, drafts (Engine::MaxDrafts), and beside
  // them what prompts get (PlanStep): what answers leave, and at least a quarter.
  const int64_t mixed = std::min(step_tokens, SchedulerOptions().mixed_step_tokens);
  const int64_t answering = request.streams + mixed;
  const int64_t rows = std::max({step_tokens, answering + (mixed + 3) / 4, 2 * mixed});
  return model.ScratchBytes(rows, answering + kMostScoredRows);
}

}  // namespace

std::string CacheBudget::Describe() const {
  return Mebibytes(total_bytes) + ": " + Mebibytes(block_bytes) + " of blocks, " +
         Mebibytes(scratch_bytes) + " for steps of " + std::to_string(step_tokens) + " tokens, " +
         Mebibytes(index_bytes) + " for the index of prefixes" +
         (draft_bytes > 0 ? ", " + Mebibytes(draft_bytes) + " for the draft model" : "");
}

Result<CacheBudget> PlanCacheBudget(const Model& model, const CacheBudgetRequest& request) {
  for (const auto& [name, value] : {std::pair{"tokens of a step", request.step_tokens},
                                    std::pair{"answers at once", request.streams}}) {
    if (value >= 1 && value <= kMostOfStep) continue;
    return {ErrorCode::kInvalidArgument, std::string("cache budget: ") + name + " are " +
                                             std::to_string(value) + ", must be 1 to " +
                                             std::to_string(kMostOfStep)};
  }
  // Nothing where the draft model has it all: then the least that would do is named.
  const size_t own_bytes = request.total_bytes - std::min(request.draft_bytes, request.total_bytes);
  CacheBudget budget = {.total_bytes = request.total_bytes,
                        .index_bytes = own_bytes / kIndexShare,
                        .draft_bytes = request.draft_bytes,
                        .step_tokens = request.step_tokens};
  // Rows of a step may have a quarter; what threads need whatever a step has comes on top.
  const size_t of_threads = model.ScratchBytes(1, 0);
  const size_t most = std::min(own_bytes / kScratchShare + of_threads, own_bytes / 2);
  while ((budget.scratch_bytes = ScratchOf(model, request, budget.step_tokens)) > most) {
    if (budget.step_tokens <= kLeastStepTokens) {
      return {ErrorCode::kResourceExhausted,
              "cache budget: " + std::to_string(own_bytes) + " bytes are too few" +
                  (request.draft_bytes > 0
                       ? " beside the draft model's " + std::to_string(request.draft_bytes)
                       : "") +
                  ": steps of " + std::to_string(budget.step_tokens) + " tokens take " +
                  std::to_string(budget.scratch_bytes) +
                  " bytes for activations, logits and threads; give at least " +
                  std::to_string(std::max(2 * budget.scratch_bytes,
                                          kScratchShare * (budget.scratch_bytes - of_threads))) +
                  (request.draft_bytes > 0 ? " beside those" : "")};
    }
    budget.step_tokens = std::max(budget.step_tokens / 2, kLeastStepTokens);
  }
  budget.block_bytes = own_bytes - budget.scratch_bytes - budget.index_bytes;
  return budget;
}

size_t DefaultCacheBytes(size_t available_bytes, size_t weight_bytes) {
  if (available_bytes == 0) return kFallbackBytes;
  const size_t left = available_bytes > weight_bytes ? available_bytes - weight_bytes : 0;
  return std::max(left / 2, kLeastBytes);
}

}  // namespace kvasir
