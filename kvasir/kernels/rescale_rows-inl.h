// Accumulators of integer value sums times what a block's softmax leaves of them.
// Included once per Highway target. Deliberately without the sums.
#if defined(KVASIR_KERNELS_RESCALE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_RESCALE_ROWS_INL_H_
#undef KVASIR_KERNELS_RESCALE_ROWS_INL_H_
#else
#define KVASIR_KERNELS_RESCALE_ROWS_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/kernels.h"
#include "kvasir/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {

// Most rows' references stay where they are, and multiplying with 1 changes nothing.
HWY_INLINE void RescaleRows(const AccumulateTileArgs& args) {
  const DF d;
  constexpr int64_t kTogether = kLanes;
  const VF one = hn::Set(d, 1.0f);
  for (int64_t row = 0; row < args.rows; ++row) {
    while (row + kTogether <= args.rows &&
           hn::AllTrue(d, hn::Eq(hn::LoadU(d, args.rescale + row), one))) {
      row += kTogether;
    }
    if (row == args.rows || args.rescale[row] == 1.0f) continue;
    float* const out = args.AccumulatorOf(row);
    const VF rescale = hn::Set(d, args.rescale[row]);
    for (int64_t i = 0; i < args.value_dim; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(d, out + i), rescale), d, out + i);
    }
  }
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_RESCALE_ROWS_INL_H_
