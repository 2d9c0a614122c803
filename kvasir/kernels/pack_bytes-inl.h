// Bytes of 32-bit lanes, packed: PackBytes takes one byte of each lane of four vectors, PackSixteen
// the lowest of each of 16 lanes, PackShorts one byte of each of so many shorts
// (short_lanes-inl.h). Included once per Highway target. Deliberately only where bytes are
// multiplied, whose operands these are.
//
// With kBits = 8 the bytes are in the order of the lanes, with kBits = 4 those of the even lanes of
// each eight stand before those of the odd ones: the order in which a word of 4-bit codes falls
// apart into bytes.
#if defined(KVASIR_KERNELS_PACK_BYTES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_PACK_BYTES_INL_H_
#undef KVASIR_KERNELS_PACK_BYTES_INL_H_
#else
#define KVASIR_KERNELS_PACK_BYTES_INL_H_
#endif

#include <array>
#include <cstdint>

#include "hwy/highway.h"
#include "kvasir/kernels/byte_dot-inl.h"
#include "kvasir/kernels/packed_levels-inl.h"
#include "kvasir/kernels/short_lanes-inl.h"

#if KVASIR_HAS_BYTE_DOT || HWY_TARGET == HWY_AVX2
KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using D8 = hn::Repartition<uint8_t, DI>;
using V8 = hn::Vec<D8>;
using V8x16 = hn::Vec<hn::FixedTag<uint8_t, 16>>;

// Where among 16 bytes in the order of lanes each byte of the result lies.
alignas(16) inline constexpr uint8_t kEvenLanesFirst[16] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                            8, 10, 12, 14, 9, 11, 13, 15};

#if HWY_TARGET == HWY_AVX3_DL

// Where in a pair of vectors the given byte of each of their lanes lies, twice.
template <size_t kBits>
constexpr std::array<uint8_t, 64> PackOrder(size_t byte) {
  std::array<uint8_t, 64> order = {};
  for (size_t i = 0; i < 64; ++i) {
    const size_t in_eight = kBits == 8 ? i % 8 : i % 4 * 2 + i % 8 / 4;
    const size_t lane = i / 8 % 4 * 8 + in_eight;
    order[i] = static_cast<uint8_t>(lane / 16 * 64 + lane % 16 * 4 + byte);
  }
  return order;
}
template <size_t kBits, size_t kByte>
HWY_INLINE V8 PackBytes(const VI* values) {
  alignas(64) static constexpr std::array<uint8_t, 64> kOrder = PackOrder<kBits>(kByte);
  const __m512i order = _mm512_load_si512(kOrder.data());
  const __m512i low = _mm512_permutex2var_epi8(values[0].raw, order, values[1].raw);
  const __m512i high = _mm512_permutex2var_epi8(values[2].raw, order, values[3].raw);
  return V8{_mm512_mask_blend_epi64(0xF0, low, high)};
}

// Where in the two short vectors of a block the given byte of each token lies.
template <size_t kBits>
constexpr std::array<uint8_t, 64> PackShortsOrder(size_t byte) {
  std::array<uint8_t, 64> order = {};
  for (size_t i = 0; i < 64; ++i) {
    const size_t in_eight = kBits == 8 ? i % 8 : i % 4 * 2 + i % 8 / 4;
    const size_t token = i / 8 * 8 + in_eight;
    const size_t lane = token / 32 * 32 + token % 16 / 4 * 8 + token / 16 % 2 * 4 + token % 4;
    order[i] = static_cast<uint8_t>(2 * lane + byte);
  }
  return order;
}
// The i-th vector of bytes of a block.
template <size_t kBits, size_t kByte>
HWY_INLINE V8 PackShorts(const Shorts& shorts, size_t) {
  alignas(64) static constexpr std::array<uint8_t, 64> kOrder = PackShortsOrder<kBits>(kByte);
  return V8{
      _mm512_permutex2var_epi8(shorts[0].raw, _mm512_load_si512(kOrder.data()), shorts[1].raw)};
}

template <size_t kBits>
HWY_INLINE V8x16 PackSixteen(const VI (&values)[1]) {
  // Highway 1.0.3's TruncateTo of 32 to 8 bits permutes words instead of bytes.
  const V8x16 bytes{_mm512_cvtepi32_epi8(values[0].raw)};
  if constexpr (kBits == 8) return bytes;
  return hn::TableLookupBytes(bytes, hn::Load(hn::FixedTag<uint8_t, 16>(), kEvenLanesFirst));
}

#elif HWY_TARGET == HWY_AVX2

// Byte kByte (0 or 1) of the lanes of both, each in 16 bits: of each half of `a` before that of `b`
// of the same half.
template <size_t kByte>
HWY_INLINE __m256i PackPair(VI a, VI b) {
  const VI mask = hn::Set(DI(), 0xFF << (8 * kByte));
  const __m256i pair = _mm256_packus_epi32(hn::And(a, mask).raw, hn::And(b, mask).raw);
  return kByte == 0 ? pair : _mm256_srli_epi16(pair, 8);
}
template <size_t kBits, size_t kByte>
HWY_INLINE V8 PackBytes(const VI* values) {
  alignas(32) static constexpr int32_t kWords[8] = {0, 4, 1, 5, 2, 6, 3, 7};
  const __m256i halves = _mm256_packus_epi16(PackPair<kByte>(values[0], values[1]),
                                             PackPair<kByte>(values[2], values[3]));
  const V8 bytes{_mm256_permutevar8x32_epi32(halves, hn::Load(DI(), kWords).raw)};
  if constexpr (kBits == 8) return bytes;
  return hn::TableLookupBytes(bytes, hn::LoadDup128(D8(), kEvenLanesFirst));
}

template <size_t kBits, size_t kByte>
HWY_INLINE V8 PackShorts(const Shorts& shorts, size_t i) {
  alignas(32) static constexpr int32_t kWords[8] = {0, 4, 2, 6, 1, 5, 3, 7};
  __m256i a = shorts[2 * i].raw;
  __m256i b = shorts[2 * i + 1].raw;
  if constexpr (kByte == 1) {
    a = _mm256_srli_epi16(a, 8);
    b = _mm256_srli_epi16(b, 8);
  } else {
    a = _mm256_and_si256(a, _mm256_set1_epi16(0xFF));
    b = _mm256_and_si256(b, _mm256_set1_epi16(0xFF));
  }
  const __m256i halves = _mm256_packus_epi16(a, b);
  const V8 bytes{_mm256_permutevar8x32_epi32(halves, hn::Load(DI(), kWords).raw)};
  if constexpr (kBits == 8) return bytes;
  return hn::TableLookupBytes(bytes, hn::LoadDup128(D8(), kEvenLanesFirst));
}

template <size_t kBits>
HWY_INLINE V8x16 PackSixteen(const VI (&values)[2]) {
  const __m256i pair = PackPair<0>(values[0], values[1]);
  const __m128i words =
      _mm_packus_epi16(_mm256_castsi256_si128(pair), _mm256_extracti128_si256(pair, 1));
  const V8x16 bytes{_mm_shuffle_epi32(words, 0xD8)};
  if constexpr (kBits == 8) return bytes;
  return hn::TableLookupBytes(bytes, hn::Load(hn::FixedTag<uint8_t, 16>(), kEvenLanesFirst));
}

#else

template <size_t kBits, size_t kByte>
HWY_INLINE V8 PackBytes(const VI* values) {
  const uint16x8_t low = vuzp1q_u16(vreinterpretq_u16_s32(values[0].raw),  //
                                    vreinterpretq_u16_s32(values[1].raw));
  const uint16x8_t high =
      vuzp1q_u16(vreinterpretq_u16_s32(values[2].raw), vreinterpretq_u16_s32(values[3].raw));
  const uint8x16_t a = vreinterpretq_u8_u16(low);
  const uint8x16_t b = vreinterpretq_u8_u16(high);
  const V8 bytes{kByte == 0 ? vuzp1q_u8(a, b) : vuzp2q_u8(a, b)};
  if constexpr (kBits == 8) return bytes;
  return hn::TableLookupBytes(bytes, hn::Load(D8(), kEvenLanesFirst));
}

template <size_t kBits, size_t kByte>
HWY_INLINE V8 PackShorts(const Shorts& shorts, size_t i) {
  VI values[kTokenVectors];
  WidenAll(shorts, values);
  return PackBytes<kBits, kByte>(values + 4 * i);
}

template <size_t kBits>
HWY_INLINE V8x16 PackSixteen(const VI (&values)[4]) {
  return PackBytes<kBits, 0>(values);
}

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_HAS_BYTE_DOT

#endif  // KVASIR_KERNELS_PACK_BYTES_INL_H_
