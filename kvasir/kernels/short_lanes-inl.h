// Numbers of 16 bits of a block's tokens, two where a vector has one float, and what is computed
// with them. Included once per Highway target.
// Deliberately without attention: integer_softmax-inl.h says what the numbers are.
//
// Short vector i has the tokens of the float vectors FirstOf(i) and FirstOf(i) + kLaneVectors, four
// of the one and four of the other in turn, as instructions that narrow vectors of any width leave
// them. So virtual lane l of the sums of pairs has, of each 32 tokens, the pair that
// PairLaneOf (integer_steps.h) says, whatever the width.
#if defined(KVASIR_KERNELS_SHORT_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_SHORT_LANES_INL_H_
#undef KVASIR_KERNELS_SHORT_LANES_INL_H_
#else
#define KVASIR_KERNELS_SHORT_LANES_INL_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/byte_dot-inl.h"
#include "kvasir/kernels/packed_levels-inl.h"
#include "kvasir/kernels/softmax_row-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using DS = hn::Repartition<int16_t, DI>;
using VS = hn::Vec<DS>;

// Short vectors of a block's tokens.
inline constexpr size_t kShortVectors = kTokenVectors / 2;
using Shorts = VS[kShortVectors];

constexpr size_t FirstOf(size_t i) {
  return i / kLaneVectors * 2 * kLaneVectors + i % kLaneVectors;
}

// NarrowSigned, NarrowUnsigned   two vectors in one, with saturation
// MulHighUnsigned                a * b >> 16
// MulRound                       (a * b + 2^14) >> 15
// RoundingShift                  -a / 2^count to nearest, halves up. REQUIRES: a <= 0, count < 16
// PairProducts, AddPairProducts  sums of the products of two neighbours
// Widen                          what NarrowUnsigned made one
#if HWY_TARGET == HWY_AVX3_DL

HWY_INLINE VS NarrowSigned(VI a, VI b) { return VS{_mm512_packs_epi32(a.raw, b.raw)}; }
HWY_INLINE VS NarrowUnsigned(VI a, VI b) { return VS{_mm512_packus_epi32(a.raw, b.raw)}; }
HWY_INLINE VS MulHighUnsigned(VS a, VS b) { return VS{_mm512_mulhi_epu16(a.raw, b.raw)}; }
HWY_INLINE VS MulRound(VS a, VS b) { return VS{_mm512_mulhrs_epi16(a.raw, b.raw)}; }
HWY_INLINE VS RoundingShift(VS a, VS counts) {
  // -2^(15 - count), which -2^15 is no exception to.
  return MulRound(a, VS{_mm512_srav_epi16(_mm512_set1_epi16(INT16_MIN), counts.raw)});
}
template <int kBits>
HWY_INLINE VS ShiftRightUnsigned(VS a) {
  return VS{_mm512_srli_epi16(a.raw, kBits)};
}
HWY_INLINE VI PairProducts(VS a, VS b) { return VI{_mm512_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE VI AddPairProducts(VI sum, VS a, VS b) {
  return VI{_mm512_dpwssd_epi32(sum.raw, a.raw, b.raw)};
}
HWY_INLINE void Widen(VS both, VI* a, VI* b) {
  *a = VI{_mm512_unpacklo_epi16(both.raw, _mm512_setzero_si512())};
  *b = VI{_mm512_unpackhi_epi16(both.raw, _mm512_setzero_si512())};
}

#elif HWY_TARGET == HWY_AVX2

HWY_INLINE VS NarrowSigned(VI a, VI b) { return VS{_mm256_packs_epi32(a.raw, b.raw)}; }
HWY_INLINE VS NarrowUnsigned(VI a, VI b) { return VS{_mm256_packus_epi32(a.raw, b.raw)}; }
HWY_INLINE VS MulHighUnsigned(VS a, VS b) { return VS{_mm256_mulhi_epu16(a.raw, b.raw)}; }
HWY_INLINE VS MulRound(VS a, VS b) { return VS{_mm256_mulhrs_epi16(a.raw, b.raw)}; }
// A shuffle looks up the bytes of 2^(15 - count), as there is no such shift: the upper one is
// 2^(7 - count) for counts below 8, else 0; the lower one the same of count - 8.
HWY_INLINE VS RoundingShift(VS a, VS counts) {
  alignas(16) static constexpr uint8_t kPowers[16] = {128, 64, 32, 16, 8, 4, 2, 1};
  const __m256i powers =
      _mm256_broadcastsi128_si256(_mm_load_si128(reinterpret_cast<const __m128i*>(kPowers)));
  const __m256i both = _mm256_mullo_epi16(counts.raw, _mm256_set1_epi16(0x0101));
  const __m256i index = _mm256_xor_si256(both, _mm256_set1_epi16(8));
  const __m256i power = _mm256_shuffle_epi8(powers, index);
  return MulRound(a, VS{_mm256_sub_epi16(_mm256_setzero_si256(), power)});
}
template <int kBits>
HWY_INLINE VS ShiftRightUnsigned(VS a) {
  return VS{_mm256_srli_epi16(a.raw, kBits)};
}
HWY_INLINE VI PairProducts(VS a, VS b) { return VI{_mm256_madd_epi16(a.raw, b.raw)}; }
HWY_INLINE void Widen(VS both, VI* a, VI* b) {
  *a = VI{_mm256_unpacklo_epi16(both.raw, _mm256_setzero_si256())};
  *b = VI{_mm256_unpackhi_epi16(both.raw, _mm256_setzero_si256())};
}

#else

HWY_INLINE VS NarrowSigned(VI a, VI b) { return VS{vqmovn_high_s32(vqmovn_s32(a.raw), b.raw)}; }
HWY_INLINE VS NarrowUnsigned(VI a, VI b) {
  return VS{vreinterpretq_s16_u16(vqmovun_high_s32(vqmovun_s32(a.raw), b.raw))};
}
HWY_INLINE VS MulHighUnsigned(VS a, VS b) {
  const uint16x8_t x = vreinterpretq_u16_s16(a.raw);
  const uint16x8_t y = vreinterpretq_u16_s16(b.raw);
  const uint16x8_t low = vreinterpretq_u16_u32(vmull_u16(vget_low_u16(x), vget_low_u16(y)));
  const uint16x8_t high = vreinterpretq_u16_u32(vmull_high_u16(x, y));
  return VS{vreinterpretq_s16_u16(vuzp2q_u16(low, high))};
}
HWY_INLINE VS MulRound(VS a, VS b) { return VS{vqrdmulhq_s16(a.raw, b.raw)}; }
HWY_INLINE VS RoundingShift(VS a, VS counts) {
  return VS{vrshlq_s16(vnegq_s16(a.raw), vnegq_s16(counts.raw))};
}
template <int kBits>
HWY_INLINE VS ShiftRightUnsigned(VS a) {
  return VS{vreinterpretq_s16_u16(vshrq_n_u16(vreinterpretq_u16_s16(a.raw), kBits))};
}
HWY_INLINE VI PairProducts(VS a, VS b) {
  return VI{vpaddq_s32(vmull_s16(vget_low_s16(a.raw), vget_low_s16(b.raw)),
                       vmull_high_s16(a.raw, b.raw))};
}
HWY_INLINE void Widen(VS both, VI* a, VI* b) {
  *a = VI{vreinterpretq_s32_u32(vmovl_u16(vreinterpret_u16_s16(vget_low_s16(both.raw))))};
  *b = VI{vreinterpretq_s32_u32(vmovl_high_u16(vreinterpretq_u16_s16(both.raw)))};
}

#endif

#if HWY_TARGET != HWY_AVX3_DL
HWY_INLINE VI AddPairProducts(VI sum, VS a, VS b) { return hn::Add(sum, PairProducts(a, b)); }
#endif

HWY_INLINE void WidenAll(const Shorts& shorts, VI (&out)[kTokenVectors]) {
  for (size_t i = 0; i < kShortVectors; ++i) {
    Widen(shorts[i], &out[FirstOf(i)], &out[FirstOf(i) + kLaneVectors]);
  }
}

// Numbers of all tokens as shorts in the arrangement above. REQUIRES: they fit.
HWY_INLINE void StoreShorts(const VI (&numbers)[kTokenVectors], int16_t* out) {
  for (size_t i = 0; i < kShortVectors; ++i) {
    const size_t first = FirstOf(i);
    hn::StoreU(NarrowSigned(numbers[first], numbers[first + kLaneVectors]), DS(),
               out + i * hn::MaxLanes(DS()));
  }
}
HWY_INLINE VS LoadShorts(const int16_t* from, size_t i) {
  return hn::LoadU(DS(), from + i * hn::MaxLanes(DS()));
}

// Shorts of all tokens in the tokens' order.
HWY_INLINE void StoreInOrder(const Shorts& shorts, int16_t* out) {
#if HWY_TARGET == HWY_AVX3_DL
  // Of each 32 tokens four times eight bytes of the first sixteen and of the others, in turn.
  const __m512i order = _mm512_set_epi64(7, 5, 3, 1, 6, 4, 2, 0);
  for (size_t i = 0; i < kShortVectors; ++i) {
    hn::StoreU(VS{_mm512_permutexvar_epi64(order, shorts[i].raw)}, DS(), out + i * 32);
  }
#else
  const hn::Rebind<int16_t, DI> half;
  VI wide[kTokenVectors];
  WidenAll(shorts, wide);
  for (size_t i = 0; i < kTokenVectors; ++i) {
    hn::StoreU(hn::DemoteTo(half, wide[i]), half, out + i * kLanes);
  }
#endif
}

// What shorts are multiplied with: those of each vector.
struct Ones {
  HWY_INLINE VS Get(size_t) const { return hn::Set(DS(), int16_t{1}); }
};
struct StoredShorts {
  const int16_t* numbers;
  HWY_INLINE VS Get(size_t i) const { return LoadShorts(numbers, i); }
};

// Sums of products of pairs in 16 virtual lanes, as floats.
// REQUIRES: four products stay below 2^31.
template <class Numbers>
HWY_INLINE void SumPairs(const Shorts& shorts, const Numbers& numbers, VF (&lanes)[kLaneVectors]) {
  static_assert(kShortVectors == 2 * kLaneVectors);
  for (size_t v = 0; v < kLaneVectors; ++v) {
    const size_t second = v + kLaneVectors;
    lanes[v] = hn::ConvertTo(DF(), AddPairProducts(PairProducts(shorts[v], numbers.Get(v)),
                                                   shorts[second], numbers.Get(second)));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_SHORT_LANES_INL_H_
