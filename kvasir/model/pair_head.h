// PairHead: a drafting head with a cache of its own, such as a model's inline layer for multi-token
// prediction (Qwen3.5, DeepSeek): a row per pair of a token and the state before it.
// Deliberately knows no target: what states go in, and which rows still count, is PairDrafter's.
#ifndef KVASIR_MODEL_PAIR_HEAD_H_
#define KVASIR_MODEL_PAIR_HEAD_H_

#include <cstdint>
#include <span>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/model/workspace.h"
#include "kvasir/tensor/float_rows.h"

namespace kvasir {

// The new pairs of one sequence, at least one. Slot S of its cache holds the token of position
// S + 1 with the target's hidden state of position S, and says what the token at S + 2 will be.
struct PairRun {
  KvSequence* cache = nullptr;  // for the slots [cache->position(), + tokens.size())
  std::span<const Token> tokens;
  ConstFloatRows states;  // [tokens.size(), state_size]
};

class PairHead {
 public:
  virtual ~PairHead() = default;

  virtual int64_t vocab_size() const = 0;
  virtual int64_t state_size() const = 0;  // the target's hidden_size

  // Of every run's last pair, in run order.
  struct Output {
    ConstFloatRows logits;  // [runs, tokens]
    ConstFloatRows states;  // [runs, state_size]: takes the target's place for the next pair
  };
  // One pass over all runs, whose caches advance. `tokens`: of so many of the vocabulary, the
  // first, logits are wanted; 0: of none. The output lives in `workspace` until the next pass and
  // may be the input of that. ERRORS: kResourceExhausted (the pool's budget): no cache has moved.
  // REQUIRES: no cache twice; `tokens` is vocab_size() or a multiple of kPanelOutputs below it.
  // THREADS: one call at a time per workspace.
  virtual Result<Output> Forward(std::span<const PairRun> runs, int64_t tokens,
                                 Workspace& workspace) const = 0;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_PAIR_HEAD_H_
