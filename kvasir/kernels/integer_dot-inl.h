// Exact dot products of cache codes of 8 or 4 bits with integer multipliers, with what each
// instruction set offers. Included once per Highway target. Deliberately only sums: every way to
// compute them is the same, so no order is fixed here.
//
// The words of a unit (kv_codec.h) hold kWordCodes codes of one lane, of dims of a key or of slots
// of a value, whose multipliers are one per code and the same for all lanes. A row of `count`
// multipliers, a multiple of 16, is 2 * count bytes in an arrangement of its own.
#if defined(KVASIR_KERNELS_INTEGER_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_INTEGER_DOT_INL_H_
#undef KVASIR_KERNELS_INTEGER_DOT_INL_H_
#else
#define KVASIR_KERNELS_INTEGER_DOT_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"
#include "kvasir/kernels/packed_levels-inl.h"

// Highway's name for AVX-512 with VNNI leaves out the VNNI it detects.
#if HWY_TARGET == HWY_AVX3_DL
#define KVASIR_BEFORE_INTEGER() \
  HWY_PUSH_ATTRIBUTES(HWY_TARGET_STR ",avx512vnni") static_assert(true, "")
#else
#define KVASIR_BEFORE_INTEGER() HWY_BEFORE_NAMESPACE()
#endif

KVASIR_BEFORE_INTEGER();
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

#if HWY_TARGET == HWY_AVX3_DL

// A multiplier is 256 times a signed byte plus a signed byte, and each of them has a plane of
// bytes. A word of 4 bit codes is the bytes of its even codes and those of its odd ones, and so the
// bytes of each 8 multipliers lie.
template <size_t kCodeBits>
struct IntegerDot {
  static constexpr size_t kBits = kCodeBits;
  static constexpr size_t kPlanes = 2;
  static constexpr size_t kWordCodes = 32 / kBits;
  static constexpr size_t kParts = kWordCodes / 4;

  struct Sum {
    VI planes[kPlanes];
  };
  struct Codes {
    VI parts[kParts];
  };
  struct Multipliers {
    VI words[kParts][kPlanes];
  };

  static HWY_INLINE Sum Zero() {
    Sum sum;
    for (VI& plane : sum.planes) plane = hn::Zero(DI());
    return sum;
  }
  static HWY_INLINE Codes Load(const uint32_t* word) {
    const VU raw = hn::LoadU(DU(), word);
    Codes out;
    if constexpr (kBits == 8) {
      out.parts[0] = hn::BitCast(DI(), raw);
    } else {
      const VU mask = hn::Set(DU(), 0x0F0F0F0Fu);
      out.parts[0] = hn::BitCast(DI(), hn::And(raw, mask));
      out.parts[1] = hn::BitCast(DI(), hn::And(hn::ShiftRight<4>(raw), mask));
    }
    return out;
  }
  // Those of the codes [k, k + kWordCodes) of a row of `count`.
  static HWY_INLINE Multipliers LoadMultipliers(const std::byte* row, int64_t count, int64_t k) {
    Multipliers out;
    for (size_t i = 0; i < kParts; ++i) {
      for (size_t plane = 0; plane < kPlanes; ++plane) {
        out.words[i][plane] =
            Broadcast(row + static_cast<int64_t>(plane) * count + k + static_cast<int64_t>(4 * i));
      }
    }
    return out;
  }
  static HWY_INLINE void Add(const Codes& codes, const Multipliers& multipliers, Sum& sum) {
    for (size_t i = 0; i < kParts; ++i) {
      for (size_t plane = 0; plane < kPlanes; ++plane) {
        sum.planes[plane].raw = _mm512_dpbusd_epi32(sum.planes[plane].raw, codes.parts[i].raw,
                                                    multipliers.words[i][plane].raw);
      }
    }
  }
  static HWY_INLINE VI Total(const Sum& sum) {
    return hn::Add(hn::ShiftLeft<8>(sum.planes[0]), sum.planes[1]);
  }

  // 16 multipliers from the k-th on.
  static HWY_INLINE void Store(const VI (&values)[1], std::byte* row, int64_t count, int64_t k) {
    const VI high = hn::ShiftRight<8>(hn::Add(values[0], hn::Set(DI(), 128)));
    StoreBytes(high, row + k);
    StoreBytes(values[0], row + count + k);
  }
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
};

#else  // pairs of 16 bit products; byte products would saturate

// A word is split into halves of 16 bits: of 8 bit codes the even and the odd bytes, of 4 bit codes
// the nibbles 0 and 4, 1 and 5, 2 and 6, 3 and 7. So the pairs of multipliers lie.
template <size_t kCodeBits>
struct IntegerDot {
  static constexpr size_t kBits = kCodeBits;
  static constexpr size_t kWordCodes = 32 / kBits;
  static constexpr size_t kParts = kWordCodes / 2;
  using D16 = hn::Repartition<int16_t, DI>;
  using V16 = hn::Vec<D16>;

  struct Sum {
    // Implicit ones lack the target of NEON's vectors under GCC.
    HWY_INLINE Sum() {}
    HWY_INLINE explicit Sum(VI value) : total(value) {}
    VI total;
  };
  struct Codes {
    HWY_INLINE Codes() {}
    V16 parts[kParts];
  };
  struct Multipliers {
    HWY_INLINE Multipliers() {}
    V16 words[kParts];
  };

  static HWY_INLINE Sum Zero() { return Sum(hn::Zero(DI())); }
  static HWY_INLINE Codes Load(const uint32_t* word) {
    VU raw = hn::LoadU(DU(), word);
    const VU mask = hn::Set(DU(), kBits == 8 ? 0x00FF00FFu : 0x000F000Fu);
    Codes out;
    for (size_t i = 0; i < kParts; ++i) {
      out.parts[i] = hn::BitCast(D16(), hn::And(raw, mask));
      raw = hn::ShiftRight<static_cast<int>(kBits)>(raw);
    }
    return out;
  }
  static HWY_INLINE Multipliers LoadMultipliers(const std::byte* row, int64_t, int64_t k) {
    Multipliers out;
    for (size_t i = 0; i < kParts; ++i) {
      out.words[i] = hn::BitCast(D16(), Broadcast(row + 2 * k + static_cast<int64_t>(4 * i)));
    }
    return out;
  }
  static HWY_INLINE void Add(const Codes& codes, const Multipliers& multipliers, Sum& sum) {
    for (size_t i = 0; i < kParts; ++i) {
      sum.total = hn::Add(sum.total, PairSums(codes.parts[i], multipliers.words[i]));
    }
  }
  static HWY_INLINE VI Total(const Sum& sum) { return sum.total; }

  static HWY_INLINE void Store(const VI (&values)[kLaneVectors], std::byte* row, int64_t,
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

 private:
#if HWY_TARGET == HWY_AVX2
  static HWY_INLINE VI PairSums(V16 a, V16 b) { return VI{_mm256_madd_epi16(a.raw, b.raw)}; }
  // The lanes of both in order.
  static HWY_INLINE V16 Narrow(VI a, VI b) {
    return V16{_mm256_permute4x64_epi64(_mm256_packs_epi32(a.raw, b.raw), 0xD8)};
  }
#else
  static HWY_INLINE VI PairSums(V16 a, V16 b) {
    return VI{vpaddq_s32(vmull_s16(vget_low_s16(a.raw), vget_low_s16(b.raw)),
                         vmull_high_s16(a.raw, b.raw))};
  }
  static HWY_INLINE V16 Narrow(VI a, VI b) {
    return V16{vcombine_s16(vmovn_s32(a.raw), vmovn_s32(b.raw))};
  }
#endif
};

#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_INTEGER_DOT_INL_H_
