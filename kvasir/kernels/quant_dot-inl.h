// The integer dot products of the quantized matmuls, with what each instruction set offers.
// Deliberately only sums of one group: they are exact, so every way to compute them is the same.
//
// A Dot (Q8Dot, Q4Dot) has
//   Sum                       the running sums of kLanes outputs
//   Start(x_sum)              a Sum before the first product; x_sum is the sum of the x codes
//   Weights, Prepare(raw)     codes of kLanes outputs x 4 inputs, made ready for many rows
//   Add(sum, weights, x)      adds the 4 products per output; x repeats the same 4 codes
//   Finish(sum, x_sum)        sums of (code - zero) * x
#if defined(KVASIR_KERNELS_QUANT_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_QUANT_DOT_INL_H_
#undef KVASIR_KERNELS_QUANT_DOT_INL_H_
#else
#define KVASIR_KERNELS_QUANT_DOT_INL_H_
#endif

#include "hwy/highway.h"
#include "kvasir/kernels/byte_dot-inl.h"
#include "kvasir/kernels/matmul_tiles-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using IntTag = hn::RebindToSigned<FloatTag>;
using IntVec = hn::Vec<IntTag>;
using ByteTag = hn::Repartition<uint8_t, IntTag>;
using ByteVec = hn::Vec<ByteTag>;

// The products of a group are a chain for every sum, each waiting for the one before. One or two
// sums of a tile do not keep VPDPBUSD busy: each of them is two chains, added up at last.
inline constexpr bool kHasVnni = KVASIR_HAS_BYTE_DOT == 1 && HWY_TARGET != HWY_NEON;
template <int kRows, int kColumns>
inline constexpr int kSumChains = kHasVnni && (kRows * kColumns <= 2) ? 2 : 1;

template <int C, size_t... I>
HWY_INLINE void JoinRow(IntVec (&sums)[C], const IntVec (&more)[C], std::index_sequence<I...>) {
  ((sums[I] = hn::Add(sums[I], more[I])), ...);
}
template <class Sum, int R, int C, size_t... I>
HWY_INLINE void JoinChains(Sum (&)[1][R][C], std::index_sequence<I...>) {}
template <int R, int C, size_t... I>
HWY_INLINE void JoinChains(IntVec (&sums)[2][R][C], std::index_sequence<I...>) {
  (JoinRow(sums[0][I], sums[1][I], std::make_index_sequence<C>()), ...);
}

#if KVASIR_HAS_BYTE_DOT

// kZero times the sum of x is missing from the sums.
template <int kZero>
HWY_INLINE IntVec MinusZero(const int32_t* x_sum) {
  return hn::Sub(hn::Zero(IntTag()),
                 hn::ShiftLeft < kZero == 128 ? 7 : 3 > (hn::Set(IntTag(), *x_sum)));
}

#if HWY_TARGET == HWY_NEON

// s8 x s8: codes of 4 bits are signed bytes as they are, those of 8 bits count from 128.
struct SignedByteDot {
  using Sum = IntVec;
  using Weights = int8x16_t;
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    return IntVec{AddByteProducts(sum.raw, w, vreinterpretq_s8_s32(x.raw))};
  }
  // The same with the kLane-th four of 16 codes.
  template <int kLane>
  static HWY_INLINE Sum AddOfLane(Sum sum, Weights w, int8x16_t x) {
    return IntVec{AddByteProductsOfLane<kLane>(sum.raw, w, x)};
  }
  static HWY_INLINE IntVec Finish(Sum sum, const int32_t*) { return sum; }
};
// The codes of R rows for the 32 inputs of a group, in registers.
template <int R>
using GroupCodes = int8x16_t[R][2];

template <int R, size_t... I>
HWY_INLINE void LoadGroupCodes(const int8_t* x, int64_t stride, GroupCodes<R>& codes,
                               std::index_sequence<I...>) {
  ((codes[I][0] = vld1q_s8(x + static_cast<int64_t>(I) * stride),
    codes[I][1] = vld1q_s8(x + static_cast<int64_t>(I) * stride + 16)),
   ...);
}
// Adds to the kVector-th sum of every row the products of weights with the row's kFour-th four
// codes.
template <class Dot, size_t kFour, size_t kVector, int R, int C, size_t... I>
HWY_INLINE void AddFourCodes(typename Dot::Weights w, const int8x16_t (&codes)[R][2],
                             typename Dot::Sum (&sums)[R][C], std::index_sequence<I...>) {
  ((sums[I][kVector] =
        Dot::template AddOfLane<kFour % 4>(sums[I][kVector], w, codes[I][kFour / 4])),
   ...);
}

struct Q8Dot : SignedByteDot {
  static HWY_INLINE Sum Start(const int32_t*) { return hn::Zero(IntTag()); }
  static HWY_INLINE Weights Prepare(ByteVec raw) {
    return vreinterpretq_s8_u8(veorq_u8(raw.raw, vdupq_n_u8(0x80)));
  }
};
struct Q4Dot : SignedByteDot {
  static HWY_INLINE Sum Start(const int32_t* x_sum) { return MinusZero<8>(x_sum); }
  static HWY_INLINE Weights Prepare(ByteVec raw) { return vreinterpretq_s8_u8(raw.raw); }
};

#else

// u8 x s8 with the unsigned weight code. Sums start from 0, which takes no time, and get at last
// what is missing: to start with it, by a copy for each vector of outputs, took a little longer
// (docs/performance/matmul.md, "What a tile takes on Zen 5").
template <int kZero>
struct VnniDot {
  using Sum = IntVec;
  using Weights = ByteVec;
  static HWY_INLINE Sum Start(const int32_t*) { return hn::Zero(IntTag()); }
  static HWY_INLINE Weights Prepare(ByteVec raw) { return raw; }
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    return IntVec{AddByteProducts(sum.raw, w.raw, x.raw)};
  }
  static HWY_INLINE IntVec Finish(Sum sum, const int32_t* x_sum) {
    return hn::Add(sum, MinusZero<kZero>(x_sum));
  }
};
using Q8Dot = VnniDot<128>;
using Q4Dot = VnniDot<8>;

#endif

#elif HWY_TARGET == HWY_AVX2

// The signed weight is code - 128; |weight| * (x with the weight's sign) never saturates 16 bits,
// as the x codes stay within +-127: 2 * 128 * 127 = 32512.
struct Q8Dot {
  using Sum = IntVec;
  struct Weights {
    ByteVec magnitude;
    ByteVec value;
  };
  static HWY_INLINE Sum Start(const int32_t*) { return hn::Zero(IntTag()); }
  static HWY_INLINE Weights Prepare(ByteVec raw) {
    const ByteVec value = hn::Xor(raw, hn::Set(ByteTag(), 0x80));
    return {ByteVec{_mm256_abs_epi8(value.raw)}, value};
  }
  static HWY_INLINE Sum Add(Sum sum, const Weights& w, IntVec x) {
    const __m256i pairs =
        _mm256_maddubs_epi16(w.magnitude.raw, _mm256_sign_epi8(x.raw, w.value.raw));
    const __m256i fours = _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
    return IntVec{AddInts(sum.raw, fours)};
  }
  static HWY_INLINE IntVec Finish(Sum sum, const int32_t*) { return sum; }
};

// All 8 pairs of a group fit 16 bits: 8 * 2 * 15 * 127 = 30480.
struct Q4Dot {
  using Sum = __m256i;
  using Weights = ByteVec;
  static HWY_INLINE Sum Start(const int32_t*) { return _mm256_setzero_si256(); }
  static HWY_INLINE Weights Prepare(ByteVec raw) { return raw; }
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    return AddShorts(sum, _mm256_maddubs_epi16(w.raw, x.raw));
  }
  static HWY_INLINE IntVec Finish(Sum sum, const int32_t* x_sum) {
    return hn::Sub(IntVec{_mm256_madd_epi16(sum, _mm256_set1_epi16(1))},
                   hn::ShiftLeft<3>(hn::Set(IntTag(), *x_sum)));
  }
};

#else  // NEON without dot products

// Signed weights; two products per 16-bit lane, then widened: 2 * 128 * 127 = 32512 fits.
struct Q8Dot {
  struct Sum {
    int32x4_t low;  // two partial sums of outputs 0 and 1
    int32x4_t high;
  };
  using Weights = int8x16_t;
  static HWY_INLINE Sum Start(const int32_t*) { return {vdupq_n_s32(0), vdupq_n_s32(0)}; }
  static HWY_INLINE Weights Prepare(ByteVec raw) {
    return vreinterpretq_s8_u8(veorq_u8(raw.raw, vdupq_n_u8(0x80)));
  }
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    const int8x16_t codes = vreinterpretq_s8_s32(x.raw);
    return {vpadalq_s16(sum.low, vmull_s8(vget_low_s8(w), vget_low_s8(codes))),
            vpadalq_s16(sum.high, vmull_high_s8(w, codes))};
  }
  static HWY_INLINE IntVec Finish(Sum sum, const int32_t*) {
    return IntVec{vpaddq_s32(sum.low, sum.high)};
  }
};

// All 8 products of a 16-bit lane fit: 8 * 15 * 127 = 15240.
struct Q4Dot {
  struct Sum {
    int16x8_t low;  // four partial sums of outputs 0 and 1
    int16x8_t high;
  };
  using Weights = int8x16_t;
  static HWY_INLINE Sum Start(const int32_t*) { return {vdupq_n_s16(0), vdupq_n_s16(0)}; }
  static HWY_INLINE Weights Prepare(ByteVec raw) { return vreinterpretq_s8_u8(raw.raw); }
  static HWY_INLINE Sum Add(Sum sum, Weights w, IntVec x) {
    const int8x16_t codes = vreinterpretq_s8_s32(x.raw);
    return {vmlal_s8(sum.low, vget_low_s8(w), vget_low_s8(codes)),
            vmlal_high_s8(sum.high, w, codes)};
  }
  static HWY_INLINE IntVec Finish(Sum sum, const int32_t* x_sum) {
    return hn::Sub(IntVec{vpaddq_s32(vpaddlq_s16(sum.low), vpaddlq_s16(sum.high))},
                   hn::ShiftLeft<3>(hn::Set(IntTag(), *x_sum)));
  }
};

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_QUANT_DOT_INL_H_
