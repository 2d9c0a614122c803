// Exact dot products of cache codes of 8 or 4 bits with integer multipliers, with what each
// instruction set offers. Included once per Highway target. Deliberately only sums: every way to
// compute them is the same, so no order is fixed here.
//
// The words of a unit (kv_codec.h) hold kWordCodes codes of one lane, of dims of a key or of slots
// of a value, whose multipliers are one per code and the same for all lanes. Each kind of dot has
//   kParts, Codes<part>        the codes of a word in kParts vectors
//   kSums                      sums that it keeps per vector of lanes
//   Multiplier                 what stands against one part in one of the sums, in every lane
//   StoreQueries, StoreWeights rows of `count` multipliers in the arrangement of Multiplier
//   AddKey, AddValue           sum + codes * multipliers
//   Total                      of the sums, the last of which starts at what Store* say
// The values' codes are levels (integer_steps.h): those of tokens whose scale is negative count
// from the other end. Signs, made once per block and group, know these tokens.
#if defined(KVASIR_KERNELS_INTEGER_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_INTEGER_DOT_INL_H_
#undef KVASIR_KERNELS_INTEGER_DOT_INL_H_
#else
#define KVASIR_KERNELS_INTEGER_DOT_INL_H_
#endif

#include <array>
#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kvasir/kernels/byte_dot-inl.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/kernels.h"
#include "kvasir/kernels/packed_levels-inl.h"
#include "kvasir/kernels/softmax_row-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using VI = hn::Vec<DI>;

// The 32 bits at p in every lane.
HWY_INLINE VI Broadcast(const std::byte* p) {
  int32_t word;
  std::memcpy(&word, p, sizeof(word));
  return hn::Set(DI(), word);
}

// To nearest even. REQUIRES: it fits; Highway's own takes care of what does not.
HWY_INLINE VI RoundToInt(VF x) {
#if HWY_TARGET == HWY_AVX3_DL
  return VI{_mm512_cvtps_epi32(x.raw)};
#elif HWY_TARGET == HWY_AVX2
  return VI{_mm256_cvtps_epi32(x.raw)};
#else
  return hn::NearestInt(x);
#endif
}

// -1 where x has its sign bit set, else 0.
HWY_INLINE VI SignsOf(VF x) { return hn::ShiftRight<31>(hn::BitCast(DI(), x)); }

#if HWY_TARGET == HWY_AVX3_DL

// A multiplier of two bytes is 256 times the first plus the second, and each has a plane of bytes
// and a sum of its own. A word of 4-bit codes is the bytes of its even codes and those of its odd
// ones, and so the bytes of each 8 multipliers lie.
template <size_t kCodeBits, size_t kMultiplierWidth>
struct IntegerDot {
  static constexpr size_t kBits = kCodeBits;
  static constexpr size_t kBytes = kMultiplierWidth;
  static constexpr size_t kSums = kBytes;
  static constexpr int64_t kMultiplierBytes = 1;  // from one to the next in a plane
  static constexpr size_t kWordCodes = 32 / kBits;
  static constexpr size_t kParts = kWordCodes / 4;
  // What turns the bytes of codes into levels; 4-bit codes fit a signed byte as they are.
  struct Signs {
    alignas(64) std::byte flips[kBlockTokens];
  };

  template <size_t kPart>
  static HWY_INLINE VI Codes(const uint32_t* word) {
    VU codes = hn::LoadU(DU(), word);
    if constexpr (kPart == 1) codes = hn::ShiftRight<4>(codes);
    if constexpr (kBits == 4) codes = hn::And(codes, hn::Set(DU(), 0x0F0F0F0Fu));
    return hn::BitCast(DI(), codes);
  }
  // Against a word of codes whose first multiplier `first` is.
  static HWY_INLINE VI Multiplier(const std::byte* first, int64_t count, size_t part, size_t sum) {
    return Broadcast(first + static_cast<int64_t>(sum) * count + static_cast<int64_t>(4 * part));
  }
  // What the codes of a value are combined with to be levels.
  static HWY_INLINE VI Flip(const Signs& signs, int64_t k, size_t part) {
    return Broadcast(signs.flips + k + static_cast<int64_t>(4 * part));
  }
  static HWY_INLINE VI Levels(VI codes, VI flip) { return hn::Xor(codes, flip); }
  static HWY_INLINE VI AddKey(VI sum, VI codes, VI multipliers) {
    return VI{AddByteProducts(sum.raw, codes.raw, multipliers.raw)};
  }
  static HWY_INLINE VI AddValue(VI sum, VI levels, VI multipliers) {
    return VI{AddByteProducts(sum.raw, multipliers.raw, levels.raw)};
  }
  static HWY_INLINE VI Total(const VI (&sums)[1]) { return sums[0]; }
  static HWY_INLINE VI Total(const VI (&sums)[2]) {
    return hn::Add(hn::ShiftLeft<8>(sums[0]), sums[1]);
  }

  // 16 multipliers from the k-th on.
  static HWY_INLINE void StoreQueries(const VI (&values)[1], std::byte* row, int64_t count,
                                      int64_t k) {
    if constexpr (kBytes == 2) {
      StoreBytes(hn::ShiftRight<8>(hn::Add(values[0], hn::Set(DI(), 128))), row + k);
      row += count;
    }
    StoreBytes(values[0], row + k);
  }
  // The multipliers of a block's tokens, of which the lowest kBytes count. Returns where the last
  // sum starts.
  static HWY_INLINE int32_t StoreWeights(const VI (&values)[kTokenVectors], const Signs&,
                                         std::byte* row) {
    auto* out = reinterpret_cast<uint8_t*>(row);
    if constexpr (kBytes == 2) {
      hn::StoreU(PackBytes<1>(values), hn::Repartition<uint8_t, DI>(), out);
      out += kBlockTokens;
    }
    hn::StoreU(PackBytes<0>(values), hn::Repartition<uint8_t, DI>(), out);
    return 0;
  }
  static HWY_INLINE void MakeSigns(const VF (&scales)[kTokenVectors], Signs* out) {
    VI signs[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) signs[i] = SignsOf(scales[i]);
    const hn::Repartition<uint8_t, DI> d;
    const auto middle = hn::Set(d, static_cast<uint8_t>(ValueMiddle(kBits)));
    hn::StoreU(hn::Xor(PackBytes<0>(signs), middle), d, reinterpret_cast<uint8_t*>(out->flips));
  }

 private:
  using V8 = hn::Vec<hn::Repartition<uint8_t, DI>>;

  static HWY_INLINE void StoreBytes(VI values, std::byte* at) {
    const hn::FixedTag<uint8_t, 16> d;
    // Highway 1.0.3's TruncateTo of 32 to 8 bits permutes words instead of bytes.
    hn::Vec<decltype(d)> bytes = {_mm512_cvtepi32_epi8(values.raw)};
    if constexpr (kBits == 4) {
      alignas(16) static constexpr uint8_t kOrder[16] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                         8, 10, 12, 14, 9, 11, 13, 15};
      bytes = hn::TableLookupBytes(bytes, hn::Load(d, kOrder));
    }
    hn::StoreU(bytes, d, reinterpret_cast<uint8_t*>(at));
  }
  // Where in a pair of vectors the given byte of each token of half a block lies, twice.
  static constexpr std::array<uint8_t, 64> PackOrder(size_t byte) {
    std::array<uint8_t, 64> order = {};
    for (size_t i = 0; i < 64; ++i) {
      const size_t in_eight = kBits == 8 ? i % 8 : i % 4 * 2 + i % 8 / 4;
      const size_t token = i / 8 % 4 * 8 + in_eight;
      order[i] = static_cast<uint8_t>(token / 16 * 64 + token % 16 * 4 + byte);
    }
    return order;
  }
  // One byte of every lane, in the order of multipliers.
  template <size_t kByte>
  static HWY_INLINE V8 PackBytes(const VI (&values)[4]) {
    alignas(64) static constexpr std::array<uint8_t, 64> kOrder = PackOrder(kByte);
    const __m512i order = _mm512_load_si512(kOrder.data());
    const __m512i low = _mm512_permutex2var_epi8(values[0].raw, order, values[1].raw);
    const __m512i high = _mm512_permutex2var_epi8(values[2].raw, order, values[3].raw);
    return V8{_mm512_mask_blend_epi64(0xF0, low, high)};
  }
};

#else  // pairs of 16-bit products; byte products would saturate

// A word is split into halves of 16 bits: of 8-bit codes the even and the odd bytes, of 4-bit codes
// the nibbles 0 and 4, 1 and 5, 2 and 6, 3 and 7. So the pairs of multipliers lie. One byte or two
// of them are the same here. Weights take the signs, so that codes are levels as they are.
template <size_t kCodeBits, size_t kMultiplierWidth>
struct IntegerDot {
  static constexpr size_t kBits = kCodeBits;
  static constexpr size_t kBytes = kMultiplierWidth;
  static constexpr size_t kSums = 1;
  static constexpr int64_t kMultiplierBytes = 2;
  static constexpr size_t kWordCodes = 32 / kBits;
  static constexpr size_t kParts = kWordCodes / 2;
  using D16 = hn::Repartition<int16_t, DI>;
  using V16 = hn::Vec<D16>;
  struct Signs {
    alignas(64) int32_t signs[kBlockTokens];
  };

  template <size_t kPart>
  static HWY_INLINE VI Codes(const uint32_t* word) {
    VU codes = hn::LoadU(DU(), word);
    if constexpr (kPart > 0) codes = hn::ShiftRight<static_cast<int>(kPart * kBits)>(codes);
    return hn::BitCast(DI(), hn::And(codes, hn::Set(DU(), kBits == 8 ? 0x00FF00FFu : 0x000F000Fu)));
  }
  static HWY_INLINE VI Multiplier(const std::byte* first, int64_t, size_t part, size_t) {
    return Broadcast(first + static_cast<int64_t>(4 * part));
  }
  static HWY_INLINE VI Flip(const Signs&, int64_t, size_t) { return hn::Zero(DI()); }
  static HWY_INLINE VI Levels(VI codes, VI) { return codes; }
  static HWY_INLINE VI AddKey(VI sum, VI codes, VI multipliers) {
    return hn::Add(sum, PairSums(codes, multipliers));
  }
  static HWY_INLINE VI AddValue(VI sum, VI levels, VI multipliers) {
    return AddKey(sum, levels, multipliers);
  }
  static HWY_INLINE VI Total(const VI (&sums)[1]) { return sums[0]; }

  static HWY_INLINE void StoreQueries(const VI (&values)[kLaneVectors], std::byte* row, int64_t,
                                      int64_t k) {
    const hn::Repartition<uint8_t, DI> d8;
    alignas(16) static constexpr uint8_t kOrder[2][16] = {
        {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15},
        {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15}};
    const auto order = hn::LoadDup128(d8, kOrder[kBits == 8 ? 0 : 1]);
    auto* out = reinterpret_cast<uint8_t*>(row + 2 * k);
    for (size_t i = 0; i < kLaneVectors; i += 2, out += 4 * kLanes) {
      const V16 both = Narrow(values[i], values[i + 1]);
      hn::StoreU(hn::TableLookupBytes(hn::BitCast(d8, both), order), d8, out);
    }
  }
  // Values matter in their lower 16 bits.
  // With s = -1 where the scale is negative, else 0: a weight w times its level is
  // (w ^ s - s) * code + (w & s) * -1 - (w ^ s - s) * middle, of which all but the first term
  // is the same for every dim.
  static HWY_INLINE int32_t StoreWeights(const VI (&values)[kTokenVectors], const Signs& signs,
                                         std::byte* row) {
    VI start = hn::Zero(DI());
    for (size_t i = 0; i < kTokenVectors; i += kLaneVectors) {
      VI multipliers[kLaneVectors];
      for (size_t v = 0; v < kLaneVectors; ++v) {
        const VI sign = hn::LoadU(DI(), signs.signs + (i + v) * kLanes);
        const VI value = hn::And(values[i + v], hn::Set(DI(), 0xFFFF));
        multipliers[v] = hn::Sub(hn::Xor(value, sign), sign);
        start = hn::Sub(start, hn::And(value, sign));
        if constexpr (ValueMiddle(kBits) != 0) {
          start = hn::Sub(start, hn::Mul(multipliers[v], hn::Set(DI(), ValueMiddle(kBits))));
        }
      }
      StoreQueries(multipliers, row, 0, static_cast<int64_t>(i * kLanes));
    }
    return hn::GetLane(hn::SumOfLanes(DI(), start));
  }
  static HWY_INLINE void MakeSigns(const VF (&scales)[kTokenVectors], Signs* out) {
    for (size_t i = 0; i < kTokenVectors; ++i) {
      hn::StoreU(SignsOf(scales[i]), DI(), out->signs + i * kLanes);
    }
  }

 private:
#if HWY_TARGET == HWY_AVX2
  static HWY_INLINE VI PairSums(VI a, VI b) { return VI{_mm256_madd_epi16(a.raw, b.raw)}; }
  // The lanes of both in order.
  static HWY_INLINE V16 Narrow(VI a, VI b) {
    return V16{_mm256_permute4x64_epi64(_mm256_packs_epi32(a.raw, b.raw), 0xD8)};
  }
#else
  static HWY_INLINE VI PairSums(VI a, VI b) {
    const int16x8_t x = vreinterpretq_s16_s32(a.raw);
    const int16x8_t y = vreinterpretq_s16_s32(b.raw);
    return VI{vpaddq_s32(vmull_s16(vget_low_s16(x), vget_low_s16(y)), vmull_high_s16(x, y))};
  }
  static HWY_INLINE V16 Narrow(VI a, VI b) {
    return V16{vcombine_s16(vmovn_s32(a.raw), vmovn_s32(b.raw))};
  }
#endif
};

#endif

// Vectors of lanes that a tile of sums is wide.
constexpr size_t kVectors = 4;
// Query rows that share each vector of codes: what the registers hold of sums of four vectors and
// of multipliers, and of scores as many vectors as of sums.
#if HWY_TARGET == HWY_AVX3_DL
template <class Dot>
constexpr size_t kMaxSumRows = 6 / Dot::kSums;
template <class Dot>
constexpr size_t kMaxScoreRows = Dot::kSums == 1 ? 3 : 2;
#else
template <class Dot>
constexpr size_t kMaxSumRows = 2;
template <class Dot>
constexpr size_t kMaxScoreRows = 2;
#endif

// Rows of the next tile when `left` are left, in tiles of about the same height.
template <int64_t kMax>
int64_t TileRows(int64_t left) {
  const int64_t tiles = (left + kMax - 1) / kMax;
  return (left + tiles - 1) / tiles;
}

// Sums of a tile: of kRows rows and kCount vectors of lanes.
template <class Dot, size_t kRows, size_t kCount = kVectors>
using TileSums = VI[kRows][kCount][Dot::kSums];

template <class Dot, size_t kRows, size_t kCount>
HWY_INLINE void StartSums(const int32_t (&starts)[kRows], VI (&sums)[kRows][kCount][Dot::kSums]) {
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t v = 0; v < kCount; ++v) {
      sums[r][v][0] = hn::Zero(DI());
      sums[r][v][Dot::kSums - 1] = hn::Set(DI(), starts[r]);
    }
  }
}

// x, of which the compiler is to know nothing. What it would compute ahead of a loop and keep, g++
// 12 puts into vector registers when it runs out of others, and then spills sums of the loop.
template <class T>
HWY_INLINE const T& Anew(const T& x) {
  const T* p = &x;
  asm volatile("" : "+r"(p));
  return *p;
}

// The largest |x| of 16 virtual lanes, as bits.
HWY_INLINE VU MagnitudeBits(VF x) { return hn::BitCast(DU(), hn::Abs(x)); }
template <size_t kCount>
HWY_INLINE uint32_t LargestBits(const VU (&lanes)[kCount]) {
  VU largest = lanes[0];
  for (size_t i = 1; i < kCount; ++i) largest = hn::Max(largest, lanes[i]);
  return hn::GetLane(hn::MaxOfLanes(DU(), largest));
}

// Calls Entries<bits, bytes>::Put with the kernels of every format and width that is multiplied as
// integers.
template <template <size_t, size_t> class Entries>
void FillIntegers(KernelTable* table) {
  const auto kernels = [table](size_t bits, size_t bytes) -> IntegerKvKernels& {
    return table->integer_kv[bytes - 1][KvFormatIndex(KvCodec::Affine(static_cast<int>(bits), 64))];
  };
  Entries<4, 1>::Put(kernels(4, 1));
  Entries<4, 2>::Put(kernels(4, 2));
  Entries<8, 1>::Put(kernels(8, 1));
  Entries<8, 2>::Put(kernels(8, 2));
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_INTEGER_DOT_INL_H_
