// Scheduler: which tokens of which sequence the next step evaluates.
// Deliberately a pure function of integers: no cache, no request, no clock, no memory of its own.
#ifndef KVASIR_ENGINE_SCHEDULER_H_
#define KVASIR_ENGINE_SCHEDULER_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/result.h"

namespace kvasir {

struct SchedulerOptions {
  // Tokens of a step in which nobody waits for the next word: large enough that reading the weights
  // once costs little per token.
  int64_t step_tokens = 512;
  // Tokens of a step that also continues answers, theirs included: bounds how long somebody else's
  // prompt can hold up a running stream. At 128 rows a matmul is still bound by arithmetic.
  int64_t mixed_step_tokens = 128;

  // ERRORS: kInvalidArgument unless 1 <= mixed_step_tokens <= step_tokens.
  Status Validate() const;
};

// Logits take vocabulary * 4 bytes per row: 10 MB for so many rows of the largest vocabularies. A
// step scores no more of prompts.
inline constexpr int64_t kMostScoredRows = 16;

// One sequence that has tokens to evaluate.
struct SchedulerInput {
  int64_t pending_tokens = 0;  // known and not evaluated yet; at least 1
  int64_t run_limit = 0;       // KvSequence::RunLimit(), at least 1: runs are cut there
  int priority = 0;            // larger goes first
  bool is_decode = false;      // somebody is being shown the answer: one token at a time
};

// Tokens to evaluate of each sequence, 0 for none. `inputs` in order of arrival.
//
// Every decode gets its token. Prompts get what is left of the budget, at least a quarter of it:
// - half of that goes to the prompt that came first, whatever its priority: nobody starves, and
//   long prompts are finished one after the other rather than all at the end;
// - the other half in equal shares to all the others (those that need less leave it to those that
//   need more), the highest priority first: a short prompt never waits behind a long one;
// - what nobody of them needs goes to whoever still can take it, in order of arrival.
// So a budget of at least four tokens per prompt lets a new one begin in its first step.
std::vector<int64_t> PlanStep(std::span<const SchedulerInput> inputs,
                              const SchedulerOptions& options);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SCHEDULER_H_
