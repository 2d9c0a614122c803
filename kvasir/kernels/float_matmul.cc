// Matmul with f32, f16, bf16, mxfp8 and fp8 weights in fused multiply-adds.
// Deliberately without the bf16 dot product instruction: bf16_dot_matmul.cc.
#include "kvasir/kernels/highway_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/float_matmul.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kvasir/kernels/table_parts.h"

#if KVASIR_KERNEL_TARGET

#include "kvasir/kernels/bf16_pairs-inl.h"
#include "kvasir/kernels/e4m3_tile-inl.h"
#include "kvasir/kernels/float_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// x in floats, one input a step.
template <class WeightElement>
struct WidenedMath {
  using Element = WeightElement;
  using Input = float;
  using Weights = FloatVec;
  using Inputs = FloatVec;
  static constexpr int kStepInputs = 1;
  static constexpr int kParts = 1;

  static const float* Rows(const MatmulArgs& args) { return args.x; }
  static int64_t Stride(const MatmulArgs& args) { return args.x_stride; }
  template <int kPart>
  static HWY_INLINE FloatVec Load(const Element* from) {
    if constexpr (sizeof(Element) == sizeof(float)) {
      return hn::Load(FloatTag(), from);
    } else {
      return hn::PromoteTo(FloatTag(), hn::Load(hn::Rebind<Element, FloatTag>(), from));
    }
  }
  template <int kPart>
  static HWY_INLINE FloatVec Broadcast(const float* x) {
    return hn::Set(FloatTag(), *x);
  }
  static HWY_INLINE FloatVec MulAdd(FloatVec x, FloatVec w, FloatVec acc) {
    return hn::MulAdd(x, w, acc);
  }
};

void FillFloatMatmul(KernelTable* table) {
  const auto set = [table](WeightFormat format, auto matmul) {
    table->matmul[static_cast<int>(format)] = matmul;
  };
  set(WeightFormat::kF32, RunMatmul<FloatKernel<WidenedMath<float>>>);
  set(WeightFormat::kF16, RunMatmul<FloatKernel<WidenedMath<hwy::float16_t>>>);
  set(WeightFormat::kBf16, RunMatmul<FloatKernel<WidenedMath<hwy::bfloat16_t>>>);
  set(WeightFormat::kBf16Dot, RunMatmul<FloatKernel<PairMath>>);
  FillE4m3Matmul<PairMath>(table);
  table->round_rows = PairMath::RoundRows;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillFloatMatmul)
#endif
