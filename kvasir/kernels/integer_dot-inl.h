// Exact dot products of cache codes of 8 or 4 bits with integer multipliers, with what each
// instruction set offers. Included once per Highway target. Deliberately only sums: every way to
// compute them is the same, so no order is fixed here.
//
// The words of a unit (kv_codec.h) hold kWordCodes codes of one lane, of dims of a key or of slots
// of a value, whose multipliers are one per code and the same for all lanes. Each kind of dot has
//   kPlaneBits                 of a code in the plane that words come from
//   kParts, Codes<part, tight> the codes of a word in kParts vectors; tight: no register may keep
//                              what they are made of, as sums and operands take all of them
//   kSums                      sums that it keeps per vector of lanes
//   Multiplier                 what stands against one part in one of the sums, in every lane
//   StoreQueries, StoreWeights rows of `count` multipliers in the arrangement of Multiplier
//   kWeightBytes               of the weights of a row and group
//   kValuesStartAtZero         what StoreWeights says is always 0
//   Key, Level                 operands of codes of keys, and of values
//   AddKey, AddValue           sum + operands * multipliers
//   kKeySpan, kValueSpan       0, or codes of a lane whose products are added to short sums, of
//                              which Join makes what is added to a sum
//   KeyStart                   where the last sum of keys starts, given where that of codes would
//   Total                      of the first and the last sum, which starts there or, for values,
//                              at what StoreWeights says
// The values' codes are levels (integer_steps.h): those of tokens whose scale is negative count
// from the other end. Signs, made once per block and group, know these tokens.
#if defined(KVASIR_KERNELS_INTEGER_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_INTEGER_DOT_INL_H_
#undef KVASIR_KERNELS_INTEGER_DOT_INL_H_
#else
#define KVASIR_KERNELS_INTEGER_DOT_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <utility>

#include "hwy/highway.h"
#include "kvasir/kernels/byte_operands-inl.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/kernels.h"
#include "kvasir/kernels/pack_bytes-inl.h"
#include "kvasir/kernels/packed_levels-inl.h"
#include "kvasir/kernels/short_lanes-inl.h"
#include "kvasir/kernels/softmax_row-inl.h"
#include "kvasir/tensor/packed_codes.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

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

// x, of which the compiler is to know nothing. What it would compute ahead of a loop and keep, g++
// 12 puts into vector registers when it runs out of others, and then spills sums of the loop.
template <class T>
HWY_INLINE const T& Anew(const T& x) {
  const T* p = &x;
  asm volatile("" : "+r"(p));
  return *p;
}

// x, which has to be in a register now: g++ 12 would load it anew for each product.
HWY_INLINE VI InRegister(VI x) {
#if HWY_TARGET == HWY_AVX2 && !KVASIR_HAS_BYTE_DOT
  asm("" : "+x"(x.raw));
#endif
  return x;
}

// -1 where x has its sign bit set, else 0.
HWY_INLINE VI SignsOf(VF x) { return hn::ShiftRight<31>(hn::BitCast(DI(), x)); }

#if KVASIR_HAS_BYTE_DOT

// A multiplier of two bytes is 256 times the first plus the second, and each has a plane of bytes
// and a sum of its own. A word of 4-bit codes is the bytes of its even codes and those of its odd
// ones, and so the bytes of each 8 multipliers lie.
template <size_t kCodeBits, size_t kMultiplierWidth>
struct IntegerDot : ByteOperands<kCodeBits> {
  static constexpr size_t kBits = kCodeBits;
  static constexpr size_t kPlaneBits = kBits;
  static constexpr size_t kBytes = kMultiplierWidth;
  static constexpr size_t kSums = kBytes;
  static constexpr int64_t kMultiplierBytes = 1;  // from one to the next in a plane
  static constexpr int64_t kWeightBytes = int64_t{kBytes} * kBlockTokens;  // of a row and group
  static constexpr bool kValuesStartAtZero = ByteOperands<kBits>::Start::kIsZero;
  static constexpr size_t kWordCodes = 32 / kBits;
  static constexpr size_t kParts = kWordCodes / 4;
  static constexpr int64_t kKeySpan = 0;
  static constexpr int64_t kValueSpan = 0;
  using Signs = typename ByteOperands<kBits>::Signs;

  template <size_t kPart, bool kTight>
  static HWY_INLINE VI Codes(const uint32_t* word) {
    VU codes = hn::LoadU(DU(), kTight && kPart > 0 ? &Anew(*word) : word);
    if constexpr (kPart == 1) codes = hn::ShiftRight<4>(codes);
    if constexpr (kBits == 4) codes = hn::And(codes, LowNibbles<kTight>());
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
  static HWY_INLINE VI Level(VI codes, VI flip) { return hn::Xor(codes, flip); }
  static HWY_INLINE VI Total(VI first, VI last) {
    return kSums == 1 ? last : hn::Add(hn::ShiftLeft<8>(first), last);
  }

  // 16 multipliers from the k-th on.
  static HWY_INLINE void StoreQueries(const VI (&values)[kLaneVectors], std::byte* row,
                                      int64_t count, int64_t k) {
    if constexpr (kBytes == 2) {
      VI upper[kLaneVectors];
      for (size_t i = 0; i < kLaneVectors; ++i) {
        upper[i] = hn::ShiftRight<8>(hn::Add(values[i], hn::Set(DI(), 128)));
      }
      StoreSixteen(upper, row + k);
      row += count;
    }
    StoreSixteen(values, row + k);
  }
  // The multipliers of a block's tokens, of which the lowest kBytes count. Returns where the last
  // sum starts.
  static HWY_INLINE int32_t StoreWeights(const Shorts& values, const Signs& signs, std::byte* row) {
    auto* out = reinterpret_cast<uint8_t*>(row);
    int32_t start = 0;
    if constexpr (kBytes == 2) {
      start = 256 * StorePlane<1>(values, signs, out);
      out += kBlockTokens;
    }
    return start + StorePlane<0>(values, signs, out);
  }
  static HWY_INLINE void MakeSigns(const VF (&scales)[kTokenVectors], Signs* out) {
    VI signs[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) signs[i] = SignsOf(scales[i]);
    for (size_t i = 0; i < kTokenVectors; i += 4) {
      ByteOperands<kBits>::StoreSigns(PackBytes<kBits, 0>(signs + i), i * kLanes, out);
    }
  }

 private:
  template <bool kTight>
  static HWY_INLINE VU LowNibbles() {
    constexpr uint32_t kMask = 0x0F0F0F0Fu;
#if HWY_TARGET == HWY_AVX2
    alignas(32) static constexpr uint32_t kMasks[kLanes] = {kMask, kMask, kMask, kMask,
                                                            kMask, kMask, kMask, kMask};
    if constexpr (kTight) return hn::Load(DU(), Anew(kMasks));
#endif
    return hn::Set(DU(), kMask);
  }
  // One byte of every weight. Returns what of it is missing from the sums.
  template <size_t kByte>
  static HWY_INLINE int32_t StorePlane(const Shorts& values, const Signs& signs, uint8_t* out) {
    typename ByteOperands<kBits>::Start start;
    for (size_t i = 0; i < kTokenVectors; i += 4) {
      const V8 bytes = PackShorts<kBits, kByte>(values, i / 4);
      hn::StoreU(bytes, D8(), out + i * kLanes);
      start.Add(bytes, signs, i * kLanes);
    }
    return start.Get();
  }
  static HWY_INLINE void StoreSixteen(const VI (&values)[kLaneVectors], std::byte* at) {
    hn::StoreU(PackSixteen<kBits>(values), hn::FixedTag<uint8_t, 16>(),
               reinterpret_cast<uint8_t*>(at));
  }
};

#else  // pairs of 16-bit products; byte products would saturate

// A word is split into halves of 16 bits: of 8-bit codes the even and the odd bytes, of 4-bit codes
// the nibbles 0 and 4, 1 and 5, 2 and 6, 3 and 7. So the pairs of multipliers lie. One byte or two
// of them are the same here. Weights take the signs, so that codes are levels as they are.
template <size_t kCodeBits, size_t kMultiplierWidth>
struct IntegerDot {
  static constexpr size_t kBits = kCodeBits;
  static constexpr size_t kPlaneBits = kBits;
  static constexpr size_t kBytes = kMultiplierWidth;
  static constexpr size_t kSums = 1;
  static constexpr int64_t kMultiplierBytes = 2;
  static constexpr int64_t kWeightBytes = 2 * int64_t{kBlockTokens};
  static constexpr bool kValuesStartAtZero = false;
  static constexpr size_t kWordCodes = 32 / kBits;
  static constexpr size_t kParts = kWordCodes / 2;
  static constexpr int64_t kKeySpan = 0;
  static constexpr int64_t kValueSpan = 0;
  using DB = hn::Repartition<uint8_t, DI>;
  struct Signs {
    alignas(64) int16_t signs[kBlockTokens];
  };

  template <size_t kPart, bool>
  static HWY_INLINE VI Codes(const uint32_t* word) {
    VU codes = hn::LoadU(DU(), word);
    if constexpr (kPart > 0) codes = hn::ShiftRight<static_cast<int>(kPart * kBits)>(codes);
    return hn::BitCast(DI(), hn::And(codes, hn::Set(DU(), kBits == 8 ? 0x00FF00FFu : 0x000F000Fu)));
  }
  static HWY_INLINE VI Multiplier(const std::byte* first, int64_t, size_t part, size_t) {
    return Broadcast(first + static_cast<int64_t>(4 * part));
  }
  static HWY_INLINE int32_t KeyStart(int32_t start) { return start; }
  static HWY_INLINE VI Key(VI codes) { return codes; }
  static HWY_INLINE VI Flip(const Signs&, int64_t, size_t) { return hn::Zero(DI()); }
  static HWY_INLINE VI Level(VI codes, VI) { return codes; }
  static HWY_INLINE VI AddKey(VI sum, VI codes, VI multipliers) {
    return AddPairs(sum, codes, multipliers);
  }
  static HWY_INLINE VI AddValue(VI sum, VI levels, VI multipliers) {
    return AddKey(sum, levels, multipliers);
  }
  static HWY_INLINE VI Total(VI, VI last) { return last; }

  static HWY_INLINE void StoreQueries(const VI (&values)[kLaneVectors], std::byte* row, int64_t,
                                      int64_t k) {
    auto* out = reinterpret_cast<uint8_t*>(row + 2 * k);
    for (size_t i = 0; i < kLaneVectors; i += 2, out += 4 * kLanes) {
      hn::StoreU(InOrder(Narrow(values[i], values[i + 1])), DB(), out);
    }
  }
  // With s = -1 where the scale is negative, else 0: a weight w times its level is
  // (w ^ s - s) * code + (w & s) * -1 - (w ^ s - s) * middle, of which all but the first term
  // is the same for every dim.
  static HWY_INLINE int32_t StoreWeights(const Shorts& values, const Signs& signs, std::byte* row) {
    const DS d;
    VI missing = hn::Zero(DI());
    Shorts multipliers;
    for (size_t i = 0; i < kShortVectors; ++i) {
      const VS sign = LoadShorts(signs.signs, i);
      multipliers[i] = hn::Sub(hn::Xor(values[i], sign), sign);
      missing = AddPairProducts(missing, hn::And(values[i], sign), hn::Set(d, 1));
      if constexpr (ValueMiddle(kBits) != 0) {
        missing = AddPairProducts(missing, multipliers[i], hn::Set(d, ValueMiddle(kBits)));
      }
    }
    StoreMultipliers(multipliers, reinterpret_cast<uint8_t*>(row));
    return -hn::GetLane(hn::SumOfLanes(DI(), missing));
  }
  static HWY_INLINE void MakeSigns(const VF (&scales)[kTokenVectors], Signs* out) {
    VI signs[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) signs[i] = SignsOf(scales[i]);
    StoreShorts(signs, out->signs);
  }

 private:
#if HWY_TARGET == HWY_AVX2
  static HWY_INLINE VI AddPairs(VI sum, VI a, VI b) {
    return VI{AddInts(sum.raw, _mm256_madd_epi16(a.raw, b.raw))};
  }
  // The lanes of both in order.
  static HWY_INLINE VS Narrow(VI a, VI b) {
    return VS{_mm256_permute4x64_epi64(_mm256_packs_epi32(a.raw, b.raw), 0xD8)};
  }
  static HWY_INLINE void StoreMultipliers(const Shorts& shorts, uint8_t* out) {
    for (size_t i = 0; i < kShortVectors; ++i) {
      // Eight tokens, and the eight that are sixteen tokens behind them.
      const auto bytes = InOrder(VS{_mm256_permute4x64_epi64(shorts[i].raw, 0xD8)});
      uint8_t* const first = out + 2 * FirstOf(i) * kLanes;
      hn::StoreU(hn::LowerHalf(bytes), hn::Half<DB>(), first);
      hn::StoreU(hn::UpperHalf(hn::Half<DB>(), bytes), hn::Half<DB>(),
                 first + 2 * kLaneVectors * kLanes);
    }
  }
#else
  static HWY_INLINE VI AddPairs(VI sum, VI a, VI b) {
    const int16x8_t x = vreinterpretq_s16_s32(a.raw);
    const int16x8_t y = vreinterpretq_s16_s32(b.raw);
    const int32x4_t low = vmull_s16(vget_low_s16(x), vget_low_s16(y));
    return VI{vaddq_s32(sum.raw, vpaddq_s32(low, vmull_high_s16(x, y)))};
  }
  static HWY_INLINE VS Narrow(VI a, VI b) {
    return VS{vcombine_s16(vmovn_s32(a.raw), vmovn_s32(b.raw))};
  }
  static HWY_INLINE void StoreMultipliers(const Shorts& shorts, uint8_t* out) {
    for (size_t i = 0; i < kShortVectors; i += 2) {
      // Eight tokens, and the eight that are sixteen tokens behind them.
      const int16x8_t a = shorts[i].raw;
      const int16x8_t b = shorts[i + 1].raw;
      uint8_t* const first = out + 2 * FirstOf(i) * kLanes;
      hn::StoreU(InOrder(VS{vcombine_s16(vget_low_s16(a), vget_low_s16(b))}), DB(), first);
      hn::StoreU(InOrder(VS{vcombine_s16(vget_high_s16(a), vget_high_s16(b))}), DB(),
                 first + 2 * kLaneVectors * kLanes);
    }
  }
#endif
  // Multipliers of each eight codes as pairs of words take them.
  static HWY_INLINE hn::Vec<DB> InOrder(VS values) {
    alignas(16) static constexpr uint8_t kOrder[2][16] = {
        {0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15},
        {0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15}};
    const auto order = hn::LoadDup128(DB(), kOrder[kBits == 8 ? 0 : 1]);
    return hn::TableLookupBytes(hn::BitCast(DB(), values), order);
  }
};

#if HWY_TARGET == HWY_AVX2
// Codes of 4 bits and multipliers of a byte, whose products in pairs do not saturate: a word is the
// bytes of its even codes and those of its odd ones. Pairs are added in 16 bits as long as they
// fit: of 32 dims of a key, 8 * 2 * 15 * 127 = 30480, and of 16 slots of a value, whose levels are
// -16 to 15 and weights up to 255: 4 * 2 * 16 * 255 = 32640.
template <>
struct IntegerDot<4, 1> {
  static constexpr size_t kBits = 4;
  static constexpr size_t kPlaneBits = 4;
  static constexpr size_t kBytes = 1;
  static constexpr size_t kSums = 1;
  static constexpr int64_t kMultiplierBytes = 1;
  static constexpr int64_t kWeightBytes = kBlockTokens;
  static constexpr bool kValuesStartAtZero = true;
  static constexpr size_t kWordCodes = 8;
  static constexpr size_t kParts = 2;
  static constexpr int64_t kKeySpan = 32;
  static constexpr int64_t kValueSpan = 16;
  struct Signs {
    alignas(64) std::byte flips[kBlockTokens];
  };

  template <size_t kPart, bool>
  static HWY_INLINE VI Codes(const uint32_t* word) {
    VU codes = hn::LoadU(DU(), word);
    if constexpr (kPart == 1) codes = hn::ShiftRight<4>(codes);
    return hn::BitCast(DI(), hn::And(codes, hn::Set(DU(), 0x0F0F0F0Fu)));
  }
  static HWY_INLINE VI Multiplier(const std::byte* first, int64_t, size_t part, size_t) {
    return Broadcast(first + static_cast<int64_t>(4 * part));
  }
  static HWY_INLINE int32_t KeyStart(int32_t start) { return start; }
  static HWY_INLINE VI Key(VI codes) { return codes; }
  static HWY_INLINE VI Flip(const Signs& signs, int64_t k, size_t part) {
    return Broadcast(signs.flips + k + static_cast<int64_t>(4 * part));
  }
  static HWY_INLINE VI Level(VI codes, VI flip) { return hn::Xor(codes, flip); }
  static HWY_INLINE VI AddKey(VI sum, VI codes, VI multipliers) {
    return VI{AddShorts(sum.raw, _mm256_maddubs_epi16(codes.raw, multipliers.raw))};
  }
  static HWY_INLINE VI AddValue(VI sum, VI levels, VI multipliers) {
    return VI{AddShorts(sum.raw, _mm256_maddubs_epi16(multipliers.raw, levels.raw))};
  }
  static HWY_INLINE VI Join(VI shorts) {
    return VI{_mm256_madd_epi16(shorts.raw, _mm256_set1_epi16(1))};
  }
  static HWY_INLINE VI Total(VI, VI last) { return last; }

  static HWY_INLINE void StoreQueries(const VI (&values)[kLaneVectors], std::byte* row, int64_t,
                                      int64_t k) {
    hn::StoreU(PackSixteen<kBits>(values), hn::FixedTag<uint8_t, 16>(),
               reinterpret_cast<uint8_t*>(row + k));
  }
  static HWY_INLINE int32_t StoreWeights(const Shorts& values, const Signs&, std::byte* row) {
    for (size_t i = 0; i < kTokenVectors; i += 4) {
      hn::StoreU(PackShorts<kBits, 0>(values, i / 4), D8(),
                 reinterpret_cast<uint8_t*>(row) + i * kLanes);
    }
    return 0;
  }
  static HWY_INLINE void MakeSigns(const VF (&scales)[kTokenVectors], Signs* out) {
    VI signs[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) signs[i] = SignsOf(scales[i]);
    for (size_t i = 0; i < kTokenVectors; i += 4) {
      hn::Store(PackBytes<kBits, 0>(signs + i), D8(),
                reinterpret_cast<uint8_t*>(out->flips) + i * kLanes);
    }
  }
};
#endif

// So many tiles are worth laying out their codes: what it takes is what some five save.
inline constexpr int64_t kLaidOutTiles = 8;

// Codes of a plane that was laid out for many tiles: the parts of a word, each of which is a word.
template <class Dot>
struct LaidOut : Dot {
  static constexpr size_t kWordCodes = Dot::kWordCodes / Dot::kParts;
  static constexpr size_t kPlaneBits = 32 / kWordCodes;
  static constexpr size_t kParts = 1;

  template <size_t, bool>
  static HWY_INLINE VI Codes(const uint32_t* word) {
    return hn::BitCast(DI(), hn::LoadU(DU(), word));
  }

  // The words of `count` codes that lie one after the other.
  static HWY_INLINE void LayOut(const uint32_t* words, int64_t count, uint32_t* to) {
    constexpr int64_t kUnit = kUnitLanes * static_cast<int64_t>(Dot::kWordCodes);
    for (int64_t i = 0; i < count; i += kUnit, words += kUnitLanes) {
      to = LayOutParts(words, to, std::make_index_sequence<Dot::kParts>());
    }
  }

 private:
  template <size_t... kPart>
  static HWY_INLINE uint32_t* LayOutParts(const uint32_t* words, uint32_t* to,
                                          std::index_sequence<kPart...>) {
    for (size_t v = 0; v < kLaneVectors; ++v) {
      (hn::StoreU(hn::BitCast(DU(), Dot::template Codes<kPart, false>(words + v * kLanes)), DU(),
                  to + kPart * kUnitLanes + v * kLanes),
       ...);
    }
    return to + Dot::kParts * kUnitLanes;
  }
};

#endif

// Query rows of a tile, which share each vector of codes, times the sums of each, at most, and the
// vectors that a tile of more than two is wide.
#if !KVASIR_HAS_BYTE_DOT
constexpr size_t kSumTile = 2;
constexpr size_t kScoreTile = 2;
constexpr size_t kTileWidth = 4;
#elif HWY_TARGET == HWY_AVX3_DL
// 24 sums, four vectors of codes, a multiplier and what makes codes fill 32 registers. Tiles of
// scores hold as many scores as sums.
constexpr size_t kSumTile = 6;
constexpr size_t kScoreTile = 3;
constexpr size_t kTileWidth = 4;
#elif HWY_TARGET == HWY_AVX2
// 12 sums, two vectors of codes, a multiplier and what makes codes fill 16 registers.
constexpr size_t kSumTile = 6;
constexpr size_t kScoreTile = 6;
constexpr size_t kTileWidth = 2;
#else
// 24 sums would fit as with AVX-512, but g++ 12 orders loads so that it spills: per product more
// instructions than with 16.
constexpr size_t kSumTile = 4;
constexpr size_t kScoreTile = 3;
constexpr size_t kTileWidth = 4;
#endif
template <class Dot>
constexpr size_t kMaxSumRows = kSumTile / Dot::kSums;
template <class Dot>
constexpr size_t kMaxScoreRows = (kScoreTile + Dot::kSums - 1) / Dot::kSums;
// Few rows take four vectors everywhere: the latency of a product needs eight sums at once.
template <class Dot, size_t kRows>
constexpr size_t kVectors = kRows* Dot::kSums <= 2 ? 4 : kTileWidth;

// Rows of the next tile when `left` are left, in tiles of about the same height.
template <int64_t kMax>
int64_t TileRows(int64_t left) {
  const int64_t tiles = (left + kMax - 1) / kMax;
  return (left + tiles - 1) / tiles;
}

// Tiles of kMax rows that `left` rows begin with before others have to share what is left.
template <int64_t kMax>
int64_t FullTiles(int64_t left) {
  return left % kMax == 0 ? left / kMax : HWY_MAX(left / kMax - 1, 0);
}

// Sums of a tile: of kRows rows and kCount vectors of lanes.
template <class Dot, size_t kRows, size_t kCount = kVectors<Dot, kRows>>
using TileSums = VI[kRows][kCount][Dot::kSums];

template <class Dot, size_t kRows, size_t kCount>
HWY_INLINE void StartSums(const int32_t (&starts)[kRows], VI (&sums)[kRows][kCount][Dot::kSums]) {
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) {
      sums[r][v][0] = hn::Zero(DI());
      sums[r][v][Dot::kSums - 1] = hn::Set(DI(), starts[r]);
    }
  }
}

// Adds what was added up in short sums to a tile's sums.
template <class Dot, size_t kRows, size_t kCount>
HWY_INLINE void JoinSums(const VI (&shorts)[kRows][kCount][1], VI (&sums)[kRows][kCount][1]) {
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) {
      sums[r][v][0] = hn::Add(sums[r][v][0], Dot::Join(shorts[r][v][0]));
    }
  }
}

// Adds products of one part of a word to a tile's sums. Operands: Code<tight>(v) of
// vector v, Multiplier(r, s) of row r against sum s, and Add. The fewer of the two stay in
// registers, the others come one after the other.
template <class Dot, size_t kRows, size_t kCount, class Operands>
HWY_INLINE void AddProducts(const Operands& operands, VI (&sums)[kRows][kCount][Dot::kSums]) {
  constexpr size_t kSums = Dot::kSums;
  // Unrolled early, as sums that a loop indexes would go through memory.
  if constexpr (kCount < kRows * kSums) {
    constexpr bool kTight = kRows * kSums > 4;
    VI codes[kCount];
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) codes[v] = operands.template Code<kTight>(v);
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (size_t s = 0; s < kSums; ++s) {
        const VI multiplier = operands.Multiplier(r, s);
#pragma GCC unroll 8
        for (size_t v = 0; v < kCount; ++v) {
          sums[r][v][s] = Operands::Add(sums[r][v][s], codes[v], multiplier);
        }
      }
    }
  } else {
    VI multipliers[kRows][kSums];
#pragma GCC unroll 8
    for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
      for (size_t s = 0; s < kSums; ++s) multipliers[r][s] = operands.Multiplier(r, s);
    }
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) {
      const VI codes = InRegister(operands.template Code<false>(v));
#pragma GCC unroll 8
      for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (size_t s = 0; s < kSums; ++s) {
          sums[r][v][s] = Operands::Add(sums[r][v][s], codes, multipliers[r][s]);
        }
      }
    }
  }
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
