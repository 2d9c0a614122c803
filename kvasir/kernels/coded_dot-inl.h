// The integer dot products of weights kept as a file coded them (coded_row.h).
// Deliberately only sums of one group: they are exact, so every way to compute them is the same.
//
// A Dot (NibbleDot for codes up to 15, SmallDot up to 63, ByteDot up to 255) has
//   Sum, Start()              the running sums of kLanes outputs
//   Weights, Prepare(codes)   codes of kLanes outputs x 4 inputs, made ready for many rows
//   Add(sum, weights, x)      adds the 4 products per output; x repeats the same 4 codes
//   Finish(sum, x_sum)        sums of code * x; x_sum is the sum of the x codes
#if defined(KVASIR_KERNELS_CODED_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_CODED_DOT_INL_H_
#undef KVASIR_KERNELS_CODED_DOT_INL_H_
#else
#define KVASIR_KERNELS_CODED_DOT_INL_H_
#endif

#include "hwy/highway.h"
#include "kvasir/kernels/quant_dot-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// 128 times the sum of x, for dots that read bytes as code - 128.
HWY_INLINE IntVec PlusZero(IntVec sum, int32_t x_sum) {
  return hn::Add(sum, hn::Set(IntTag(), 128 * x_sum));
}

#if KVASIR_HAS_BYTE_DOT && HWY_TARGET == HWY_NEON

// Codes below 128 are signed bytes as they are.
struct SmallDot : SignedByteDot {
  static HWY_INLINE Sum Start() { return hn::Zero(IntTag()); }
  static HWY_INLINE Weights Prepare(ByteVec codes) { return vreinterpretq_s8_u8(codes.raw); }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t) { return sum; }
};
using NibbleDot = SmallDot;

struct ByteDot : Q8Dot {
  static HWY_INLINE Sum Start() { return hn::Zero(IntTag()); }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t x_sum) { return PlusZero(sum, x_sum); }
};

#elif KVASIR_HAS_BYTE_DOT

// u8 x s8: four products are summed in 32 bits at once.
struct ByteDot {
  using Sum = IntVec;
  using Weights = ByteVec;
  static HWY_INLINE Sum Start() { return hn::Zero(IntTag()); }
  static HWY_INLINE Weights Prepare(ByteVec codes) { return codes; }
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    return IntVec{AddByteProducts(sum.raw, w.raw, x.raw)};
  }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t) { return sum; }
};
using NibbleDot = ByteDot;
using SmallDot = ByteDot;

#elif HWY_TARGET == HWY_AVX2

// All 8 pairs of a group fit 16 bits: 8 * 2 * 15 * 127 = 30480.
struct NibbleDot {
  using Sum = __m256i;
  using Weights = ByteVec;
  static HWY_INLINE Sum Start() { return _mm256_setzero_si256(); }
  static HWY_INLINE Weights Prepare(ByteVec codes) { return codes; }
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    return AddShorts(sum, _mm256_maddubs_epi16(w.raw, x.raw));
  }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t) {
    return IntVec{_mm256_madd_epi16(sum, _mm256_set1_epi16(1))};
  }
};

// A pair fits 16 bits: 2 * 63 * 127 = 16002.
struct SmallDot {
  using Sum = IntVec;
  using Weights = ByteVec;
  static HWY_INLINE Sum Start() { return hn::Zero(IntTag()); }
  static HWY_INLINE Weights Prepare(ByteVec codes) { return codes; }
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    const __m256i pairs = _mm256_maddubs_epi16(w.raw, x.raw);
    return IntVec{AddInts(sum.raw, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
  }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t) { return sum; }
};

struct ByteDot : Q8Dot {
  static HWY_INLINE Sum Start() { return hn::Zero(IntTag()); }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t x_sum) { return PlusZero(sum, x_sum); }
};

#else  // NEON without dot products

// All 8 products of a 16-bit lane fit: 8 * 15 * 127 = 15240.
struct NibbleDot : Q4Dot {
  static HWY_INLINE Sum Start() { return {vdupq_n_s16(0), vdupq_n_s16(0)}; }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t) {
    return IntVec{vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high))};
  }
};

// Codes below 128 are signed bytes as they are.
struct SmallDot : Q8Dot {
  static HWY_INLINE Sum Start() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
  static HWY_INLINE Weights Prepare(ByteVec codes) { return vreinterpretq_s8_u8(codes.raw); }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t) {
    return IntVec{vpaddq_s32(sum.low, sum.high)};
  }
};

struct ByteDot : Q8Dot {
  static HWY_INLINE Sum Start() { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
  static HWY_INLINE IntVec Finish(Sum sum, int32_t x_sum) {
    return PlusZero(IntVec{vpaddq_s32(sum.low, sum.high)}, x_sum);
  }
};

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_CODED_DOT_INL_H_
