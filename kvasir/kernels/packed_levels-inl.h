// Vectors of levels from the units of a packed code plane (kv_codec.h): one shift, sometimes of two
// words, or a shuffle, then a look-up or a conversion. Included once per Highway target.
// Deliberately knows neither scales nor what the lanes stand for: tokens of keys, dims of values.
#if defined(KVASIR_KERNELS_PACKED_LEVELS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_PACKED_LEVELS_INL_H_
#undef KVASIR_KERNELS_PACKED_LEVELS_INL_H_
#else
#define KVASIR_KERNELS_PACKED_LEVELS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/math-inl.h"
#include "kvasir/tensor/kv_codec.h"
#include "kvasir/tensor/turbo_codebooks.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {

using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
using VU = hn::Vec<DU>;
using VI = hn::Vec<DI>;

// Each kind of levels: kBits, and Get, the levels of the lowest kBits of every lane; kClean says
// that nothing stands above them.

// Levels of affine codes: the codes themselves.
template <size_t kCodeBits>
struct CodeLevels {
  static constexpr size_t kBits = kCodeBits;
  CodeLevels(const KvCodec&, int64_t) {}
  template <bool kClean>
  HWY_INLINE VF Get(VU codes) const {
    if constexpr (!kClean) codes = hn::And(codes, hn::Set(DU(), (1u << kBits) - 1));
    return hn::ConvertTo(DF(), hn::BitCast(DI(), codes));
  }
};

// Levels of codes of a byte. The two in the middle of a word take one shuffle, which moves the byte
// down and clears the others, instead of a shift and a mask.
struct ByteLevels : CodeLevels<8> {
  ByteLevels(const KvCodec& codec, int64_t dim)
      : CodeLevels(codec, dim), second(Index(1)), third(Index(2)) {}

  template <size_t kByte>
  HWY_INLINE VF GetByte(VU words) const {
    static_assert(kByte == 1 || kByte == 2);
    return Get<true>(hn::TableLookupBytesOr0(words, kByte == 1 ? second : third));
  }

  // Shuffles work within 16 bytes; an index with its high bit set yields zero.
  static VU Index(uint32_t byte) {
    const VU word = hn::And(hn::Iota(DU(), 0), hn::Set(DU(), 3));
    return hn::Or(hn::ShiftLeft<2>(word), hn::Set(DU(), 0x80808000u + byte));
  }

  VU second;
  VU third;
};

// Levels that take arithmetic rather than a table.
template <size_t kBits>
using ComputedLevels = std::conditional_t<kBits == 8, ByteLevels, CodeLevels<kBits>>;

// The table that a codec of at most 4 bits looks levels up in: 16 entries that repeat.
HWY_INLINE const float* LevelTable(const KvCodec& codec, int64_t dim) {
  alignas(64) static constexpr float kCodes[3][16] = {
      {0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3, 0, 1, 2, 3},
      {0, 1, 2, 3, 4, 5, 6, 7, 0, 1, 2, 3, 4, 5, 6, 7},
      {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}};
  if (codec.kind == KvCodec::Kind::kAffine) return kCodes[codec.bits - 2];
  return TurboLevels(dim, codec.bits);
}

// Highway has no look-up that ignores the bits above an index, which is what saves the mask.
#if HWY_TARGET == HWY_AVX3_DL

template <size_t kCodeBits>
struct TableLevels {
  static constexpr size_t kBits = kCodeBits;
  TableLevels(const KvCodec& codec, int64_t dim) : table(hn::LoadU(DF(), LevelTable(codec, dim))) {}
  template <bool kClean>
  HWY_INLINE VF Get(VU codes) const {
    return VF{_mm512_permutexvar_ps(codes.raw, table.raw)};
  }
  VF table;
};
// One look-up is less work than a mask and a conversion.
template <size_t kBits>
using AffineLevels =
    std::conditional_t<kBits <= 4, TableLevels<kBits <= 4 ? kBits : 4>, ComputedLevels<kBits>>;

#elif HWY_TARGET == HWY_AVX2

template <size_t kCodeBits>
struct TableLevels {
  static constexpr size_t kBits = kCodeBits;
  TableLevels(const KvCodec& codec, int64_t dim)
      : low(hn::LoadU(DF(), LevelTable(codec, dim))),
        high(hn::LoadU(DF(), LevelTable(codec, dim) + kLanes)) {}
  template <bool kClean>
  HWY_INLINE VF Get(VU codes) const {
    const __m256 first = _mm256_permutevar8x32_ps(low.raw, codes.raw);
    if constexpr (kBits < 4) return VF{first};
    const __m256 second = _mm256_permutevar8x32_ps(high.raw, codes.raw);
    // The blend looks at the sign: bit 3 says which half of the table.
    const VF half = hn::BitCast(DF(), hn::ShiftLeft<28>(codes));
    return VF{_mm256_blendv_ps(first, second, half.raw)};
  }
  VF low;
  VF high;
};
template <size_t kBits>
using AffineLevels = ComputedLevels<kBits>;

#else

template <size_t kCodeBits>
struct TableLevels {
  static constexpr size_t kBits = kCodeBits;
  TableLevels(const KvCodec& codec, int64_t dim) : table(LevelTable(codec, dim)) {}
  template <bool kClean>
  HWY_INLINE VF Get(VU codes) const {
    const VU index = hn::And(codes, hn::Set(DU(), (1u << kBits) - 1));
    return hn::GatherIndex(DF(), table, hn::BitCast(DI(), index));
  }
  const float* table;
};
template <size_t kBits>
using AffineLevels = ComputedLevels<kBits>;

#endif

// Code kIndex of the lanes of `unit`, which points to the first of them in word 0 of the unit.
template <size_t kIndex, class Levels>
HWY_INLINE VF LevelAt(const Levels& levels, const uint32_t* unit) {
  constexpr size_t kFirstBit = kIndex * Levels::kBits;
  constexpr size_t kShift = kFirstBit % 32;
  constexpr size_t kEnd = kShift + Levels::kBits;
  const uint32_t* word = unit + kFirstBit / 32 * kVirtualLanes;
  VU codes = hn::LoadU(DU(), word);
  if constexpr (Levels::kBits == 8 && (kShift == 8 || kShift == 16)) {
    return levels.template GetByte<kShift / 8>(codes);
  }
  if constexpr (kShift != 0) codes = hn::ShiftRight<kShift>(codes);
  if constexpr (kEnd > 32) {
    const VU above = hn::LoadU(DU(), word + kVirtualLanes);
    codes = hn::Or(codes, hn::ShiftLeft<32 - kShift>(above));
  }
  return levels.template Get<kEnd == 32>(codes);
}

// The parts of one head's plane. Turbo is one group of all dims whose scale is the norm.
struct PackedPlane {
  const uint32_t* codes;
  const std::byte* scales;
  const std::byte* biases;  // null: none
  int64_t dim;
  int64_t group;
  bool wide;  // parameters are f32, not f16
  KvCodec codec;

  PackedPlane(const KvCodec& codec, const std::byte* plane, int64_t dim)
      : codes(reinterpret_cast<const uint32_t*>(plane)),
        scales(plane + codec.CodeBytes(dim)),
        biases(nullptr),
        dim(dim),
        group(dim),
        wide(true),
        codec(codec) {
    if (codec.kind != KvCodec::Kind::kAffine) return;
    group = codec.group;
    wide = codec.scales == KvCodec::Scales::kF32;
    biases = scales + static_cast<size_t>(dim / group * kBlockTokens) * codec.ScaleBytes();
  }

  // The scales or biases of group g of the tokens from `token` on.
  HWY_INLINE VF Parameter(const std::byte* array, int64_t g, int64_t token) const {
    const int64_t index = g * kBlockTokens + token;
    if (wide) return hn::LoadU(DF(), reinterpret_cast<const float*>(array) + index);
    return F16Codec::Decode(reinterpret_cast<const uint16_t*>(array) + index);
  }
};

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PACKED_LEVELS_INL_H_
