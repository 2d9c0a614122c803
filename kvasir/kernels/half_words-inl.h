// Rows of f16 as integers of 14 bits in powers of two of each token, two of them in a word, and
// exact sums of their products (kernels.h, IntegerKvKernels). Included once per Highway target.
// Deliberately without attention: half_scores.cc and half_sums.cc say what words and rows are.
#if defined(KVASIR_KERNELS_HALF_WORDS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_HALF_WORDS_INL_H_
#undef KVASIR_KERNELS_HALF_WORDS_INL_H_
#else
#define KVASIR_KERNELS_HALF_WORDS_INL_H_
#endif

#include <algorithm>
#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/plane_prefetch-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using HalfVectorTag = hn::Repartition<int16_t, DF>;
using HalfVector = hn::Vec<HalfVectorTag>;

// Columns of a plane that are laid out as words together: 16 KiB of them.
inline constexpr int64_t kPackedColumns = 128;

// What the numbers of each token of a plane are multiples of, and what added to one of them leaves
// its code, rounded to nearest even, in the lowest bits: HalfStepsOf (integer_steps.h).
struct TokenSteps {
  alignas(64) float scales[kBlockTokens];
  alignas(64) float rounders[kBlockTokens];

  // Of tokens whose largest halves, without their signs, have these bits.
  explicit HWY_INLINE TokenSteps(const uint16_t (&largest)[kBlockTokens]) {
    const DF d;
    const DU words;
    const hn::Rebind<uint16_t, DU> halves;
    for (size_t t = 0; t < kBlockTokens; t += kLanes) {
      const VU bits = hn::PromoteTo(words, hn::LoadU(halves, largest + t));
      const VU exponent = hn::Max(hn::ShiftRight<10>(bits), hn::Set(words, 1));
      const auto is_finite = hn::Lt(exponent, hn::Set(words, kHalfInfinity));
      const VU scale = hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(words, kHalfScaleOffset)));
      const VF nan = hn::Set(d, std::numeric_limits<float>::quiet_NaN());
      hn::Store(hn::IfThenElse(hn::RebindMask(d, is_finite), hn::BitCast(d, scale), nan), d,
                scales + t);
      const VU rounder = hn::ShiftLeft<23>(hn::Add(exponent, hn::Set(words, kHalfRounderOffset)));
      hn::Store(hn::BitCast(d, hn::Or(rounder, hn::Set(words, kHalfRounderBits))), d, rounders + t);
    }
  }
};

HWY_INLINE HalfVector Magnitudes(const uint16_t* from) {
  const HalfVectorTag d;
  return hn::And(hn::LoadU(d, reinterpret_cast<const int16_t*>(from)), hn::Set(d, 0x7FFF));
}

// The largest halves of each of the first kTokens, without their signs. Keys lie [dim][64].
// REQUIRES: dim is a multiple of kKeyStepDims.
inline constexpr int64_t kKeyStepDims = 8;
template <size_t kTokens>
HWY_INLINE void LargestOfKeys(const uint16_t* keys, int64_t dim, PlanePrefetch& next,
                              uint16_t (&largest)[kBlockTokens]) {
  const HalfVectorTag d;
  constexpr size_t kHalves = hn::MaxLanes(d);
  constexpr size_t kCount = kTokens / kHalves;
  HalfVector most[kCount];
  for (HalfVector& v : most) v = hn::Zero(d);
  for (int64_t i = 0; i < dim; i += kKeyStepDims) {
    next.Step();
    for (int64_t j = 0; j < kKeyStepDims; ++j, keys += kBlockTokens) {
#pragma GCC unroll 8
      for (size_t v = 0; v < kCount; ++v) {
        most[v] = hn::Max(most[v], Magnitudes(keys + v * kHalves));
      }
    }
  }
  for (size_t v = 0; v < kCount; ++v) {
    hn::StoreU(most[v], d, reinterpret_cast<int16_t*>(largest) + v * kHalves);
  }
}

// The larger of the neighbouring T in each 16 bytes of a, and then of b, in turn.
template <typename T>
HWY_INLINE HalfVector LargerNeighbours(HalfVector a, HalfVector b) {
  const HalfVectorTag halves;
  const hn::Repartition<T, HalfVectorTag> d;
  const auto x = hn::BitCast(d, a);
  const auto y = hn::BitCast(d, b);
  return hn::Max(hn::BitCast(halves, hn::InterleaveLower(d, x, y)),
                 hn::BitCast(halves, hn::InterleaveUpper(d, x, y)));
}

// The largest halves of each 16 bytes.
HWY_INLINE hn::Vec<hn::FixedTag<int16_t, 8>> LargestOfBlocks(hn::Vec<hn::FixedTag<int16_t, 8>> v) {
  return v;
}
template <class V>
HWY_INLINE hn::Vec<hn::FixedTag<int16_t, 8>> LargestOfBlocks(V v) {
  const hn::Half<hn::DFromV<V>> half;
  return LargestOfBlocks(hn::Max(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
}

HWY_INLINE HalfVector LargestOfToken(const uint16_t* numbers, int64_t dim) {
  const HalfVectorTag d;
  constexpr auto kHalves = static_cast<int64_t>(hn::MaxLanes(d));
  HalfVector most = hn::Zero(d);
  int64_t i = 0;
  for (; i + kHalves <= dim; i += kHalves) most = hn::Max(most, Magnitudes(numbers + i));
  if (i < dim) {
    alignas(64) uint16_t last[kHalves] = {};
    std::copy_n(numbers + i, dim - i, last);
    most = hn::Max(most, Magnitudes(last));
  }
  return most;
}

// Values lie [64][dim]. Eight tokens at a time: their largest halves are brought side by side. Of
// the first `tokens` tokens at least, in ValueSteps steps of `next`.
constexpr int64_t ValueSteps(int64_t tokens) { return (tokens + 7) / 8 * 4; }
HWY_INLINE void LargestOfValues(const uint16_t* values, int64_t dim, int64_t tokens,
                                PlanePrefetch& next, uint16_t (&largest)[kBlockTokens]) {
  const hn::FixedTag<int16_t, 8> eight;
  for (int64_t t = 0; t < tokens; t += 8) {
    HalfVector pairs[4];
    for (HalfVector& pair : pairs) {
      next.Step();
      pair = LargerNeighbours<uint16_t>(LargestOfToken(values, dim),
                                        LargestOfToken(values + dim, dim));
      values += 2 * dim;
    }
    const HalfVector all =
        LargerNeighbours<uint64_t>(LargerNeighbours<uint32_t>(pairs[0], pairs[1]),
                                   LargerNeighbours<uint32_t>(pairs[2], pairs[3]));
    hn::StoreU(LargestOfBlocks(all), eight, reinterpret_cast<int16_t*>(largest) + t);
  }
}

// Words of the codes of numbers in even and odd places, each left by adding its rounder.
HWY_INLINE VI MakeWords(VF even, VF odd) {
#if HWY_TARGET == HWY_AVX3_DL
  alignas(64) static constexpr uint16_t kLower[32] = {0,  32, 2,  34, 4,  36, 6,  38, 8,  40, 10,
                                                      42, 12, 44, 14, 46, 16, 48, 18, 50, 20, 52,
                                                      22, 54, 24, 56, 26, 58, 28, 60, 30, 62};
  return VI{_mm512_permutex2var_epi16(_mm512_castps_si512(even.raw), _mm512_load_si512(kLower),
                                      _mm512_castps_si512(odd.raw))};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_blend_epi16(_mm256_castps_si256(even.raw),
                               _mm256_slli_epi32(_mm256_castps_si256(odd.raw), 16), 0xAA)};
#else
  return VI{vreinterpretq_s32_s16(
      vtrn1q_s16(vreinterpretq_s16_f32(even.raw), vreinterpretq_s16_f32(odd.raw)))};
#endif
}

// Sums of the products of both halves of words.
#if HWY_TARGET == HWY_NEON
struct WordSum {
  int32x4_t low;
  int32x4_t high;

  // Spelled out: what the compiler writes by itself lacks the target's instructions.
  HWY_INLINE WordSum() : low(vdupq_n_s32(0)), high(vdupq_n_s32(0)) {}
  HWY_INLINE void Add(VI words, VI multipliers) {
    const int16x8_t x = vreinterpretq_s16_s32(words.raw);
    const int16x8_t y = vreinterpretq_s16_s32(multipliers.raw);
    low = vmlal_s16(low, vget_low_s16(x), vget_low_s16(y));
    high = vmlal_high_s16(high, x, y);
  }
  HWY_INLINE VF Get() const { return hn::ConvertTo(DF(), VI{vpaddq_s32(low, high)}); }
};
#else
struct WordSum {
  VI sum;

  HWY_INLINE WordSum() : sum(hn::Zero(DI())) {}
  HWY_INLINE void Add(VI words, VI multipliers) {
    // In assembly for what byte_dot-inl.h says.
#if HWY_TARGET == HWY_AVX3_DL
    asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(words.raw), "v"(multipliers.raw));
#elif !KVASIR_HAS_BYTE_DOT
    sum.raw = AddInts(sum.raw, _mm256_madd_epi16(words.raw, multipliers.raw));
#elif defined(KVASIR_EVEX_VNNI)
    asm("vpdpwssd %2, %1, %0" : "+x"(sum.raw) : "x"(words.raw), "x"(multipliers.raw));
#else
    asm("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum.raw) : "x"(words.raw), "x"(multipliers.raw));
#endif
  }
  HWY_INLINE VF Get() const { return hn::ConvertTo(DF(), sum); }
};
#endif

// Rows of a tile of words that were laid out before, and its vectors. With AVX-512 both its exact
// sums and their totals stay in registers.
#if HWY_TARGET == HWY_AVX3_DL
inline constexpr size_t kWordRows = 6;
inline constexpr size_t kWordVectors = 2;
#elif HWY_TARGET == HWY_AVX2 && KVASIR_HAS_BYTE_DOT
inline constexpr size_t kWordRows = 6;
inline constexpr size_t kWordVectors = 2;
#elif HWY_TARGET == HWY_AVX2
inline constexpr size_t kWordRows = 2;
inline constexpr size_t kWordVectors = 4;
#else
inline constexpr size_t kWordRows = 4;
inline constexpr size_t kWordVectors = 2;
#endif

// Up to so many rows make words where they multiply them, for what is read but once. Their tiles
// are the narrower the more rows they have: with AVX-512 eight rows of one vector still keep sums
// and totals in registers.
#if HWY_TARGET == HWY_AVX3_DL
inline constexpr size_t kFewWordRows = 8;
#else
inline constexpr size_t kFewWordRows = 6;
#endif
constexpr size_t FewVectors(int64_t rows) { return rows > 6 ? 1 : rows > 2 ? 2 : 4; }

// Multipliers of some rows: codes of two bytes in order.
struct WordMultipliers {
  const std::byte* codes;  // of the first row
  int64_t stride;          // bytes from a row to the next

  HWY_INLINE VI Get(size_t row, int64_t step) const {
    return Broadcast(codes + static_cast<int64_t>(row) * stride + 4 * step);
  }
};

// Words that were laid out before: those of a step lie side by side.
struct PackedWords {
  const uint32_t* words;  // of the first column
  int64_t stride;         // from a step to the next

  HWY_INLINE void Step() const {}
  HWY_INLINE VI Get(size_t vector, int64_t step) const {
    return hn::BitCast(DI(), hn::LoadU(DU(), words + step * stride + vector * kLanes));
  }
};

template <size_t kRows, size_t kCount, class Words>
HWY_INLINE void AddWords(const WordMultipliers& multipliers, const Words& words, int64_t step,
                         WordSum (&sums)[kRows][kCount]) {
  // The fewer of the two stay in registers. Unrolled early, as sums that a loop indexes would go
  // through memory.
  if constexpr (kCount < kRows) {
    VI row[kCount];
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) row[v] = words.Get(v, step);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
      const VI multiplier = multipliers.Get(r, step);
#pragma GCC unroll 8
      for (size_t v = 0; v < kCount; ++v) sums[r][v].Add(row[v], multiplier);
    }
  } else {
    VI pairs[kRows];
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) pairs[r] = multipliers.Get(r, step);
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) {
      const VI word = InRegister(words.Get(v, step));
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) sums[r][v].Add(word, pairs[r]);
    }
  }
}

// The exact sums of a tile over the steps [begin, end), at most kHalfSum products.
template <size_t kRows, size_t kCount, class Words>
HWY_INLINE void SumWords(const WordMultipliers& multipliers, const Words& words, int64_t begin,
                         int64_t end, VF (&exact)[kRows][kCount]) {
  WordSum sums[kRows][kCount];
  for (int64_t step = begin; step < end; ++step) {
    words.Step();
    AddWords<kRows, kCount>(multipliers, words, step, sums);
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) exact[r][v] = sums[r][v].Get();
  }
}

// The exact sums over the steps [0, steps), added in order to what output.Begin(row, vector, first)
// makes of the first, and handed to output.Put(row, vector, total).
template <size_t kRows, size_t kCount, class Words, class Output>
HWY_INLINE void MultiplyWords(const WordMultipliers& multipliers, const Words& words, int64_t steps,
                              const Output& output) {
  constexpr int64_t kSteps = kHalfSum / 2;
  VF totals[kRows][kCount];
  SumWords<kRows, kCount>(multipliers, words, 0, HWY_MIN(kSteps, steps), totals);
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) totals[r][v] = output.Begin(r, v, totals[r][v]);
  }
  for (int64_t step = kSteps; step < steps; step += kSteps) {
    VF exact[kRows][kCount];
    SumWords<kRows, kCount>(multipliers, words, step, HWY_MIN(step + kSteps, steps), exact);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (size_t v = 0; v < kCount; ++v) totals[r][v] = hn::Add(totals[r][v], exact[r][v]);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) output.Put(r, v, totals[r][v]);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_HALF_WORDS_INL_H_
