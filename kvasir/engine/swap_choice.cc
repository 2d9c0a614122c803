#include "kvasir/engine/swap_choice.h"

namespace kvasir {
namespace {

double Seconds(uint64_t bytes, double rate) {
  return rate > 0 ? static_cast<double>(bytes) / rate : 0;
}

}  // namespace

bool IsSwapFaster(const SwapCost& cost) {
  if (cost.tokens <= 0) return false;
  if (cost.prefill_rate <= 0) return true;
  const double evaluating = static_cast<double>(cost.tokens) / cost.prefill_rate;
  return Seconds(cost.write_bytes, cost.disk.write) + Seconds(cost.read_bytes, cost.disk.read) <
         evaluating;
}

}  // namespace kvasir
