// SIMD exp, tanh, softplus, softcap and 16-lane sums: the operations of scalar_math.h in the same
// order. Included once per Highway target. Deliberately without a choice of accuracy.
#if defined(KVASIR_KERNELS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_MATH_INL_H_
#undef KVASIR_KERNELS_MATH_INL_H_
#else
#define KVASIR_KERNELS_MATH_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/base/math_constants.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Virtual lanes of a reduction, and the float vector of this target.
inline constexpr size_t kVirtualLanes = 16;
using DF = hn::CappedTag<float, kVirtualLanes>;
using VF = hn::Vec<DF>;
inline constexpr size_t kLanes = hn::MaxLanes(DF());
// Vectors that make up the 16 virtual lanes.
inline constexpr size_t kLaneVectors = kVirtualLanes / kLanes;

// The smaller of x and the limit; a NaN x stays NaN. On x86 minps and maxps return the second
// operand if either is NaN or both are equal, so the order of operands below is the meaning;
// elsewhere hn::Min and hn::Max would drop the NaN.
template <class V>
HWY_INLINE V AtMost(V limit, V x) {
#if HWY_ARCH_X86
  return hn::Min(limit, x);
#else
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
#endif
}
template <class V>
HWY_INLINE V AtLeast(V limit, V x) {
#if HWY_ARCH_X86
  return hn::Max(limit, x);
#else
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#endif
}
// The larger of `max` and x, where a NaN x is passed over.
template <class V>
HWY_INLINE V MaxIgnoringNan(V max, V x) {
#if HWY_ARCH_X86
  return hn::Max(x, max);
#else
  return hn::IfThenElse(hn::Gt(x, max), x, max);
#endif
}

// 2^n for integers n in [-126, 127], given as a float offset by kRoundMagic.
template <class D, class VI>
HWY_INLINE hn::Vec<D> PowerOfTwo(D d, VI n) {
  const hn::RebindToSigned<D> di;
  return hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(n, hn::Set(di, 127))));
}

// The integer that adding kRoundMagic left in the low bits.
template <class D, class V>
HWY_INLINE auto RoundedInteger(D d, V shifted) {
  const hn::RebindToSigned<D> di;
  const auto magic = hn::BitCast(di, hn::Set(d, math::kRoundMagic));
  return hn::Sub(hn::BitCast(di, shifted), magic);
}

// p * 2^n with one rounding, p in [0.5, 2).
template <class D, class V>
HWY_INLINE V ScaleByPower(D d, V p, V shifted) {
#if HWY_TARGET == HWY_AVX3_DL
  // Highway has no scalef, which rounds once as well and is one instruction instead of eight.
  if constexpr (hn::MaxLanes(D()) == 16) {
    return V{_mm512_scalef_ps(p.raw, hn::Sub(shifted, hn::Set(d, math::kRoundMagic)).raw)};
  }
#endif
  const auto n = RoundedInteger(d, shifted);
  const auto half = hn::ShiftRight<1>(n);
  return hn::Mul(hn::Mul(p, PowerOfTwo(d, half)), PowerOfTwo(d, hn::Sub(n, half)));
}

// x - n ln 2, where shifted = n + kRoundMagic.
template <class D, class V>
HWY_INLINE V ReducedArgument(D d, V x, V shifted) {
  const V n = hn::Sub(shifted, hn::Set(d, math::kRoundMagic));
  const V r = hn::NegMulAdd(n, hn::Set(d, math::kLn2High), x);
  return hn::NegMulAdd(n, hn::Set(d, math::kLn2Low), r);
}

// e^x for x <= 0 or NaN; see scalar::Exp.
template <class D, class V>
HWY_INLINE V ExpOfNonPositive(D d, V x) {
  x = AtLeast(hn::Set(d, math::kExpMin), x);
  const V shifted = hn::MulAdd(x, hn::Set(d, math::kLog2E), hn::Set(d, math::kRoundMagic));
  const V r = ReducedArgument(d, x, shifted);
  V p = hn::Set(d, math::kExpPoly[4]);
  p = hn::MulAdd(p, r, hn::Set(d, math::kExpPoly[3]));
  p = hn::MulAdd(p, r, hn::Set(d, math::kExpPoly[2]));
  p = hn::MulAdd(p, r, hn::Set(d, math::kExpPoly[1]));
  p = hn::MulAdd(p, r, hn::Set(d, math::kExpPoly[0]));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return ScaleByPower(d, p, shifted);
}

// e^x. Limiting x from above is all that is left to do for positive arguments.
template <class D, class V>
HWY_INLINE V Exp(D d, V x) {
  return ExpOfNonPositive(d, AtMost(hn::Set(d, math::kExpMax), x));
}

// tanh(x); see scalar::Tanh.
template <class D, class V>
HWY_INLINE V Tanh(D d, V x) {
  const V magnitude = hn::Abs(x);
  const V y = AtMost(hn::Set(d, math::kTanhMax), hn::Add(magnitude, magnitude));
  const V shifted = hn::MulAdd(y, hn::Set(d, math::kLog2E), hn::Set(d, math::kRoundMagic));
  const V r = ReducedArgument(d, y, shifted);
  V q = hn::Set(d, math::kExpm1Poly[5]);
  q = hn::MulAdd(q, r, hn::Set(d, math::kExpm1Poly[4]));
  q = hn::MulAdd(q, r, hn::Set(d, math::kExpm1Poly[3]));
  q = hn::MulAdd(q, r, hn::Set(d, math::kExpm1Poly[2]));
  q = hn::MulAdd(q, r, hn::Set(d, math::kExpm1Poly[1]));
  q = hn::MulAdd(q, r, hn::Set(d, math::kExpm1Poly[0]));
  const V small = hn::MulAdd(q, hn::Mul(r, r), r);
  const V power = PowerOfTwo(d, RoundedInteger(d, shifted));
  const V e = hn::MulAdd(small, power, hn::Sub(power, hn::Set(d, 1.0f)));
  return hn::CopySign(hn::Div(e, hn::Add(e, hn::Set(d, 2.0f))), x);
}

// ln(1 + e^x); see scalar::Softplus.
template <class D, class V>
HWY_INLINE V Softplus(D d, V x) {
  const V y = ExpOfNonPositive(d, hn::Neg(hn::Abs(x)));
  const V w = hn::Div(hn::Add(y, y), hn::Add(hn::Set(d, 2.0f), y));
  const V z = hn::Mul(w, w);
  V p = hn::Set(d, math::kLog1pPoly[3]);
  p = hn::MulAdd(p, z, hn::Set(d, math::kLog1pPoly[2]));
  p = hn::MulAdd(p, z, hn::Set(d, math::kLog1pPoly[1]));
  p = hn::MulAdd(p, z, hn::Set(d, math::kLog1pPoly[0]));
  const V logarithm = hn::MulAdd(hn::Mul(p, z), w, w);
  return hn::Add(logarithm, AtLeast(hn::Zero(d), x));
}

// cap * tanh(x / cap)
template <class D, class V>
HWY_INLINE V Softcap(D d, V x, V cap) {
  return hn::Mul(cap, Tanh(d, hn::Div(x, cap)));
}

// Lanes l and l + width/2 are added until one is left.
template <class D>
HWY_INLINE float SumOfTree(D, hn::Vec<D> v) {
  if constexpr (hn::MaxLanes(D()) == 2) {
    return hn::GetLane(v) + hn::ExtractLane(v, 1);
  } else {
    const hn::Half<D> half;
    return SumOfTree(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
}

// The sum of 16 virtual lanes, lane i in vector i / kLanes.
HWY_INLINE float SumLanes(VF lanes[kLaneVectors]) {
  for (size_t width = kLaneVectors / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] = hn::Add(lanes[i], lanes[i + width]);
  }
  return SumOfTree(DF(), lanes[0]);
}

// 16 rows of 16 virtual lanes: SumLanes of each, or the largest lane where none is NaN.
using SixteenRows = VF[kVirtualLanes][kLaneVectors];

struct AddLanes {
  static HWY_INLINE VF Apply(VF a, VF b) { return hn::Add(a, b); }
  static HWY_INLINE float Reduce(VF lanes[kLaneVectors]) { return SumLanes(lanes); }
};
struct LargestLane {
  static HWY_INLINE VF Apply(VF a, VF b) { return hn::Max(a, b); }
  static HWY_INLINE float Reduce(VF lanes[kLaneVectors]) {
    for (size_t i = 1; i < kLaneVectors; ++i) lanes[0] = hn::Max(lanes[0], lanes[i]);
    return hn::GetLane(hn::MaxOfLanes(DF(), lanes[0]));
  }
};

#if HWY_TARGET == HWY_AVX3_DL

// The tree of all rows at once: two vectors become one at each step, lanes l and l + 8 first.
template <class Op>
HWY_INLINE void ReduceRows(VF (*rows)[kLaneVectors], float* out) {
  __m512 eights[8];
  for (size_t i = 0; i < 8; ++i) {
    // The order that leaves row r in lane r in the end.
    const __m512 a = rows[2 * i % 4 * 4 + i / 2][0].raw;
    const __m512 b = rows[(2 * i + 1) % 4 * 4 + i / 2][0].raw;
    eights[i] =
        Op::Apply(VF{_mm512_shuffle_f32x4(a, b, 0x44)}, VF{_mm512_shuffle_f32x4(a, b, 0xEE)}).raw;
  }
  __m512 fours[4];
  for (size_t i = 0; i < 4; ++i) {
    const __m512 a = eights[2 * i];
    const __m512 b = eights[2 * i + 1];
    fours[i] =
        Op::Apply(VF{_mm512_shuffle_f32x4(a, b, 0x88)}, VF{_mm512_shuffle_f32x4(a, b, 0xDD)}).raw;
  }
  __m512 twos[2];
  for (size_t i = 0; i < 2; ++i) {
    const __m512d a = _mm512_castps_pd(fours[2 * i]);
    const __m512d b = _mm512_castps_pd(fours[2 * i + 1]);
    twos[i] = Op::Apply(VF{_mm512_castpd_ps(_mm512_unpacklo_pd(a, b))},
                        VF{_mm512_castpd_ps(_mm512_unpackhi_pd(a, b))})
                  .raw;
  }
  hn::StoreU(Op::Apply(VF{_mm512_shuffle_ps(twos[0], twos[1], 0x88)},
                       VF{_mm512_shuffle_ps(twos[0], twos[1], 0xDD)}),
             DF(), out);
}

#else

template <class Op>
HWY_INLINE void ReduceRows(VF (*rows)[kLaneVectors], float* out) {
  for (size_t r = 0; r < kVirtualLanes; ++r) out[r] = Op::Reduce(rows[r]);
}

#endif

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_MATH_INL_H_
