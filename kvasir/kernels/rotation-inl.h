// The rotation of kvasir/tensor/rotation.h in SIMD: its operations on the same pairs of elements.
// Included once per Highway target. Deliberately in memory: a row sits in the first-level cache.
#if defined(KVASIR_KERNELS_ROTATION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_ROTATION_INL_H_
#undef KVASIR_KERNELS_ROTATION_INL_H_
#else
#define KVASIR_KERNELS_ROTATION_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/math-inl.h"
#include "kvasir/tensor/rotation.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {

inline constexpr int64_t kRotationStep = kLanes;

HWY_INLINE VF FlipSigns(VF v, const uint32_t* signs) {
  return hn::Xor(v, hn::BitCast(DF(), hn::LoadU(hn::RebindToUnsigned<DF>(), signs)));
}

// v with its lanes i and i + kDistance swapped.
template <size_t kDistance>
HWY_INLINE VF SwapLanes(VF v) {
  const DF d;
  if constexpr (kDistance == 1) return hn::Shuffle2301(v);
  if constexpr (kDistance == 2) return hn::Shuffle1032(v);
#if HWY_TARGET != HWY_NEON
  if constexpr (kDistance == 4) return hn::SwapAdjacentBlocks(v);
#endif
  if constexpr (kDistance == 8) return hn::ConcatLowerUpper(d, v, v);
  return v;
}

// Butterflies of lanes kDistance apart: a + b to the lower, a - b, which is a + (-b), to the upper.
template <size_t kDistance>
HWY_INLINE void MixLanes(VF (&v)[kLaneVectors]) {
  alignas(64) static constexpr uint32_t kN = 0x80000000u;
  alignas(64) static constexpr uint32_t kUpper[4][kVirtualLanes] = {
      {0, kN, 0, kN, 0, kN, 0, kN, 0, kN, 0, kN, 0, kN, 0, kN},
      {0, 0, kN, kN, 0, 0, kN, kN, 0, 0, kN, kN, 0, 0, kN, kN},
      {0, 0, 0, 0, kN, kN, kN, kN, 0, 0, 0, 0, kN, kN, kN, kN},
      {0, 0, 0, 0, 0, 0, 0, 0, kN, kN, kN, kN, kN, kN, kN, kN}};
  if constexpr (kDistance < kLanes) {
    constexpr size_t kLog = kDistance == 1 ? 0 : kDistance == 2 ? 1 : kDistance == 4 ? 2 : 3;
    for (VF& x : v) x = hn::Add(SwapLanes<kDistance>(x), FlipSigns(x, kUpper[kLog]));
  } else {
    constexpr size_t kApart = kDistance / kLanes;
    for (size_t i = 0; i < kLaneVectors; ++i) {
      if ((i & kApart) != 0) continue;
      const VF a = v[i];
      const VF b = v[i + kApart];
      v[i] = hn::Add(a, b);
      v[i + kApart] = hn::Sub(a, b);
    }
  }
}

// Butterflies within every 16 elements, then between them, within runs.
HWY_INLINE void MixWithinRuns(float* x, int64_t dim, int64_t run) {
  const DF d;
  for (int64_t i = 0; i < dim; i += kVirtualLanes) {
    VF v[kLaneVectors];
    for (size_t k = 0; k < kLaneVectors; ++k) v[k] = hn::LoadU(d, x + i + k * kLanes);
    MixLanes<1>(v);
    MixLanes<2>(v);
    MixLanes<4>(v);
    MixLanes<8>(v);
    for (size_t k = 0; k < kLaneVectors; ++k) hn::StoreU(v[k], d, x + i + k * kLanes);
  }
  for (int64_t h = kVirtualLanes; h < run; h *= 2) {
    for (int64_t begin = 0; begin < dim; begin += 2 * h) {
      for (int64_t i = begin; i < begin + h; i += kRotationStep) {
        const VF a = hn::LoadU(d, x + i);
        const VF b = hn::LoadU(d, x + i + h);
        hn::StoreU(hn::Add(a, b), d, x + i);
        hn::StoreU(hn::Sub(a, b), d, x + i + h);
      }
    }
  }
}

HWY_INLINE void MixAcrossRuns(float* x, const RotationShape& shape) {
  const DF d;
  constexpr int64_t kMaxMix = kMaxRotationDim / 16;
  VF column[kMaxMix];
  for (int64_t k = 0; k < shape.run; k += kRotationStep) {
    for (int64_t s = 0; s < shape.mix; ++s) column[s] = hn::LoadU(d, x + s * shape.run + k);
    for (int64_t r = 0; r < shape.mix; ++r) {
      const float* const row = shape.matrix + r * shape.mix;
      VF sum = hn::Mul(hn::Set(d, row[0]), column[0]);
      for (int64_t s = 1; s < shape.mix; ++s) {
        sum = hn::MulAdd(hn::Set(d, row[s]), column[s], sum);
      }
      hn::StoreU(sum, d, x + r * shape.run + k);
    }
  }
}

HWY_INLINE void MixElements(float* x, int64_t dim, const RotationShape& shape) {
  MixWithinRuns(x, dim, shape.run);
  if (shape.mix > 1) MixAcrossRuns(x, shape);
}

HWY_INLINE void ScaleElements(float* x, int64_t dim, float factor) {
  const DF d;
  for (int64_t i = 0; i < dim; i += kRotationStep) {
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, factor)), d, x + i);
  }
}

HWY_INLINE void FlipElements(float* x, int64_t dim, int round) {
  const DF d;
  const uint32_t* const signs = kRotationSigns[static_cast<size_t>(round)].data();
  for (int64_t i = 0; i < dim; i += kRotationStep) {
    hn::StoreU(FlipSigns(hn::LoadU(d, x + i), signs + i), d, x + i);
  }
}

inline void RotateRow(float* x, int64_t dim) {
  const RotationShape shape = RotationShapeOf(dim);
  ScaleElements(x, dim, shape.scale);
  for (int round = 0; round < kRotationRounds; ++round) {
    FlipElements(x, dim, round);
    MixElements(x, dim, shape);
  }
}

inline void RotateRowBack(float* x, int64_t dim) {
  const RotationShape shape = RotationShapeOf(dim);
  ScaleElements(x, dim, shape.scale);
  for (int round = kRotationRounds - 1; round >= 0; --round) {
    MixElements(x, dim, shape);
    FlipElements(x, dim, round);
  }
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_ROTATION_INL_H_
