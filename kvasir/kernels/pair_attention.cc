// Attention over rows of bf16 in pairs, by two multiply-adds.
// Deliberately without the bf16 dot product instruction: bf16_dot_attention.cc.
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/pair_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kvasir/kernels/table_parts.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/pair_attention-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

void FillPairAttention(KernelTable* table) {
  table->pair_kv = {ScorePairs<PairMath>, AccumulatePairs<PairMath>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillPairAttention)
#endif
