// Rows of 2, 3, 5 and 6 bits and turbo's as rows of 8 bits, for integer attention: codes become
// bytes, in the same places of their units. Deliberately only what kernels.h states for WidenArgs.
#include <utility>

#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codes.h"
#include "kvasir/tensor/turbo_codebooks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/widen_rows.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/packed_levels-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

using DB = hn::Repartition<uint8_t, DU>;
using VB = hn::Vec<DB>;

constexpr int64_t kUnitDims = 8;
constexpr size_t kByteWords = 8;  // words of a lane's codes, once they are bytes

// Four codes of every lane, each the lowest bits of a byte, clean; `unit` points to the lanes in
// word 0. Word kWord of what they are widened to.
template <size_t kBits, size_t kWord>
HWY_INLINE VU FourCodes(const uint32_t* unit) {
  constexpr size_t kFirstBit = 4 * kBits * kWord;
  constexpr size_t kShift = kFirstBit % 32;
  constexpr bool kIsSplit = kShift + 4 * kBits > 32;
  const DU d;
  const uint32_t* const word = unit + kFirstBit / 32 * kVirtualLanes;
  VU codes = hn::LoadU(d, word);
#if HWY_TARGET == HWY_AVX3_DL
  if constexpr (kIsSplit) {
    codes = VU{_mm512_shrdi_epi32(codes.raw, hn::LoadU(d, word + kVirtualLanes).raw, kShift)};
  }
  // Eight bits from anywhere in 64, which two lanes share.
  constexpr uint64_t kFrom = kIsSplit ? 0 : kShift;
  constexpr uint64_t kLane =
      kFrom | (kFrom + kBits) << 8 | (kFrom + 2 * kBits) << 16 | (kFrom + 3 * kBits) << 24;
  const __m512i from = _mm512_set1_epi64(static_cast<int64_t>(kLane | (kLane + 0x20202020u) << 32));
  const VU fields = VU{_mm512_multishift_epi64_epi8(from, codes.raw)};
  return hn::And(fields, hn::Set(d, ((1u << kBits) - 1) * 0x01010101u));
#else
  if constexpr (kShift != 0) codes = hn::ShiftRight<kShift>(codes);
  if constexpr (kIsSplit) {
    codes = hn::Or(codes, hn::ShiftLeft<32 - kShift>(hn::LoadU(d, word + kVirtualLanes)));
  }
  // Halves of two codes each, then each code in a byte.
  constexpr uint32_t kTwo = (1u << 2 * kBits) - 1;
  constexpr uint32_t kOnes = ((1u << kBits) - 1) * 0x00010001u;
  const VU halves = hn::Or(hn::And(codes, hn::Set(d, kTwo)),
                           hn::And(hn::ShiftLeft<16 - 2 * kBits>(codes), hn::Set(d, kTwo << 16)));
  return hn::Or(hn::And(halves, hn::Set(d, kOnes)),
                hn::And(hn::ShiftLeft<8 - kBits>(halves), hn::Set(d, kOnes << 8)));
#endif
}

// The bytes of affine codes, and the parameters of rows.
template <size_t kCodeBits>
struct AffineBytes {
  static constexpr size_t kBits = kCodeBits;
  static constexpr int32_t kOffset = KeyMiddle(8) - KeyMiddle(kBits);

  AffineBytes(const KvCodec&, int64_t) {}
  HWY_INLINE VB Of(VB codes) const {
    return hn::Add(codes, hn::Set(DB(), static_cast<uint8_t>(kOffset)));
  }
  HWY_INLINE VF Scale(VF scale) const { return scale; }
  HWY_INLINE VF Bias(VF scale, const PackedPlane& plane, int64_t g, int64_t token) const {
    return hn::MulAdd(hn::Set(DF(), static_cast<float>(-kOffset)), scale,
                      plane.Parameter(plane.biases, g, token));
  }
};

// The same of turbo.
template <size_t kCodeBits>
struct TurboCodeBytes {
  static constexpr size_t kBits = kCodeBits;

  TurboCodeBytes(const KvCodec& codec, int64_t dim)
      : levels(TurboBytesOf(dim, codec.bits)), table(hn::LoadDup128(DB(), levels.bytes.data())) {}
  HWY_INLINE VB Of(VB codes) const { return hn::TableLookupBytes(table, codes); }
  HWY_INLINE VF Scale(VF norm) const { return hn::Mul(norm, hn::Set(DF(), levels.unit)); }
  HWY_INLINE VF Bias(VF scale, const PackedPlane&, int64_t, int64_t) const {
    return hn::Mul(hn::Set(DF(), -128.0f), scale);
  }

  const TurboBytes& levels;
  VB table;
};

template <class Bytes, size_t kWord = 0>
HWY_INLINE void WidenLanes(const Bytes& bytes, const uint32_t* unit, uint8_t* out) {
  const VU codes = FourCodes<Bytes::kBits, kWord>(unit);
  hn::Store(bytes.Of(hn::BitCast(DB(), codes)), DB(), out + kWord * kUnitLanes * 4);
  if constexpr (kWord + 1 < kByteWords) WidenLanes<Bytes, kWord + 1>(bytes, unit, out);
}

template <class Bytes>
void Widen(const WidenArgs& args) noexcept {
  const PackedPlane plane(args.codec, args.plane, args.dim);
  const Bytes bytes(args.codec, args.dim);
  auto* out = reinterpret_cast<uint8_t*>(args.out);
  const uint32_t* unit = plane.codes;
  for (int64_t u = 0; u < args.dim / kUnitDims; ++u) {
    for (size_t lane = 0; lane < kUnitLanes; lane += kLanes) {
      WidenLanes(bytes, unit + lane, out + 4 * lane);
    }
    unit += Bytes::kBits * kUnitLanes;
    out += kByteWords * kUnitLanes * 4;
  }
  const int64_t groups = args.dim / plane.group;
  auto* const scales = reinterpret_cast<float*>(out);
  float* const biases = scales + groups * kBlockTokens;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t t = 0; t < kBlockTokens; t += kLanes) {
      const VF scale = bytes.Scale(plane.Parameter(plane.scales, g, t));
      hn::StoreU(scale, DF(), scales + g * kBlockTokens + t);
      hn::StoreU(bytes.Bias(scale, plane, g, t), DF(), biases + g * kBlockTokens + t);
    }
  }
}

template <size_t... kBits>
void FillAffine(std::index_sequence<kBits...>, KernelTable* table) {
  ((table->widen[KvFormatIndex(KvCodec::Affine(kBits, 64))] = Widen<AffineBytes<kBits>>), ...);
}
template <size_t... kBits>
void FillTurbo(std::index_sequence<kBits...>, KernelTable* table) {
  ((table->widen[KvFormatIndex(KvCodec::Turbo(kBits))] = Widen<TurboCodeBytes<kBits>>), ...);
}

void FillWidenRows(KernelTable* table) {
  FillAffine(std::index_sequence<2, 3, 5, 6>(), table);
  FillTurbo(std::index_sequence<2, 3, 4>(), table);
}

}  // namespace
}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillWidenRows)
#endif
