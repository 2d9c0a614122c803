// Attention over rows of bf16 in pairs with VDPBF16PS, two products per lane and instruction.
// Deliberately does not ask the CPU: bf16_dot_matmul.cc does, for both.
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/bf16_dot_attention.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kvasir/kernels/table_parts.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/bf16_dot_target.h"
#include "kvasir/kernels/pair_attention-inl.h"

#if KVASIR_HAS_BF16_DOT
KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

void FillBf16DotAttention(KernelTable* table) {
  table->pair_kv = {ScorePairs<DotMath>, AccumulatePairs<DotMath>};
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_HAS_BF16_DOT
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
namespace kvasir {

void FillBf16DotAttention(Isa isa, KernelTable* table) {
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512) N_AVX3_DL::FillBf16DotAttention(table);
#endif
  static_cast<void>(isa);
  static_cast<void>(table);
}

}  // namespace kvasir
#endif  // HWY_ONCE
