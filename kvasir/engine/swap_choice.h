// Whether a preempted cache is better kept on disk or computed again.
// Deliberately a pure function of measured rates: no clock, no disk, no memory of its own.
#ifndef KVASIR_ENGINE_SWAP_CHOICE_H_
#define KVASIR_ENGINE_SWAP_CHOICE_H_

#include <cstdint>

#include "kvasir/engine/swap_store.h"

namespace kvasir {

struct SwapCost {
  int64_t tokens = 0;        // that would have to be evaluated again
  double prefill_rate = 0;   // of the engine, tokens per second; 0: not measured
  uint64_t write_bytes = 0;  // that are not on disk yet
  uint64_t read_bytes = 0;
  SwapRates disk;
};

// Whether writing and reading takes less time than evaluating. A disk that was not measured lately
// is tried, which measures it; without tokens to save nothing is worth it.
bool IsSwapFaster(const SwapCost& cost);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_SWAP_CHOICE_H_
