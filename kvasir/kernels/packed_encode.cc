// Encoding rows into packed formats in SIMD, and the rotation: the bits of affine_codec.h,
// turbo_codec.h and rotation.h. Deliberately row by row: a row of a head is all that a code needs.
#include <cmath>
#include <cstring>
#include <limits>
#include <utility>

#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"
#include "kvasir/tensor/turbo_codebooks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/packed_encode.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/math-inl.h"
#include "kvasir/kernels/rotation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

using DU = hn::RebindToUnsigned<DF>;
using DI = hn::RebindToSigned<DF>;
constexpr int64_t kStep = kLanes;
constexpr int64_t kMaxGroup = 128;
constexpr float kQuietNan = std::numeric_limits<float>::quiet_NaN();

// Writes the codes of dims [first_dim, first_dim + count) of a key row: in each of count / 8 units
// they are kBits neighbouring bytes of one lane.
template <size_t kBits>
void StoreKeyCodes(std::byte* plane, int64_t slot, int64_t first_dim, const uint32_t* codes,
                   int64_t count) {
  constexpr int64_t kUnitDims = 8;
  constexpr int64_t kUnitBytes = static_cast<int64_t>(kBits) * kUnitLanes * 4;
  // Bytes at a time: all that a word holds, where rows begin at words.
  constexpr size_t kChunk = kBits % 4 == 0 ? 4 : 1;
  const size_t first_byte = static_cast<size_t>(slot / kUnitLanes) * kBits;
  std::byte* unit = plane + first_dim / kUnitDims * kUnitBytes + slot % kUnitLanes * 4;
  for (int64_t d = 0; d < count; d += kUnitDims, unit += kUnitBytes) {
    uint64_t row = 0;
    for (size_t i = 0; i < kUnitDims; ++i) {
      row |= static_cast<uint64_t>(codes[d + static_cast<int64_t>(i)]) << (i * kBits);
    }
    for (size_t i = 0; i < kBits; i += kChunk) {
      const size_t byte = first_byte + i;
      std::memcpy(unit + byte / 4 * kUnitLanes * 4 + byte % 4, &row, kChunk);
      row >>= 8 * kChunk;
    }
  }
}

// The same of a value row: each 16 codes are the lanes of one word of a unit, or of two.
template <size_t kBits>
void StoreValueCodes(std::byte* plane, int64_t slot, int64_t first_dim, const uint32_t* codes,
                     int64_t count) {
  const DU d;
  constexpr int64_t kUnitWords = static_cast<int64_t>(kBits) * kUnitLanes;
  const int bit = static_cast<int>(slot % kLaneCodes) * static_cast<int>(kBits);
  const int shift = bit % 32;
  const auto mask = hn::Set(d, ((1u << kBits) - 1) << shift);
  // Where a code straddles two words, its upper bits; 0 where it does not.
  const uint32_t above =
      static_cast<uint32_t>((static_cast<uint64_t>((1u << kBits) - 1) << shift) >> 32);
  auto* const base =
      reinterpret_cast<uint32_t*>(plane) + slot / kLaneCodes * kUnitWords + bit / 32 * kUnitLanes;
  for (int64_t i = 0; i < count; i += kStep) {
    const int64_t dim = first_dim + i;
    uint32_t* const word = base + dim / kUnitLanes * 2 * kUnitWords + dim % kUnitLanes;
    const auto code = hn::LoadU(d, codes + i);
    const auto low = hn::AndNot(mask, hn::LoadU(d, word));
    hn::StoreU(hn::Or(low, hn::ShiftLeftSame(code, shift)), d, word);
    if (above == 0) continue;
    const auto high = hn::AndNot(hn::Set(d, above), hn::LoadU(d, word + kUnitLanes));
    hn::StoreU(hn::Or(high, hn::ShiftRightSame(code, 32 - shift)), d, word + kUnitLanes);
  }
}

template <bool kKeys, size_t kBits>
void StoreCodes(const EncodeArgs& args, int64_t slot, int64_t first_dim, const uint32_t* codes,
                int64_t count) {
  if constexpr (kKeys) {
    StoreKeyCodes<kBits>(args.plane, slot, first_dim, codes, count);
  } else {
    StoreValueCodes<kBits>(args.plane, slot, first_dim, codes, count);
  }
}

// QuantizeAffineGroup, before its rounding of scale and bias.
template <size_t kBits>
AffineGroup QuantizeGroup(const float* x, int64_t count, uint32_t* codes) {
  const DF d;
  VF low = hn::LoadU(d, x);
  VF high = low;
  // Stays 0 while everything is finite: 0 times infinity or NaN is NaN.
  VF poison = hn::Zero(d);
  for (int64_t i = 0; i < count; i += kStep) {
    const VF v = hn::LoadU(d, x + i);
    low = hn::Min(low, v);
    high = hn::Max(high, v);
    poison = hn::MulAdd(v, hn::Zero(d), poison);
  }
  const bool finite = hn::AllTrue(d, hn::Eq(poison, hn::Zero(d)));
  const AffineGroup group =
      finite ? AffineStepsOf(hn::GetLane(hn::MinOfLanes(d, low)),
                             hn::GetLane(hn::MaxOfLanes(d, high)), static_cast<int>(kBits))
             : AffineGroup{kQuietNan, kQuietNan};
  const VF scale = hn::Set(d, group.scale);
  const VF bias = hn::Set(d, group.bias);
  const VF top = hn::Set(d, static_cast<float>((1 << kBits) - 1));
  for (int64_t i = 0; i < count; i += kStep) {
    const VF code = hn::Round(hn::Div(hn::Sub(hn::LoadU(d, x + i), bias), scale));
    // A NaN is not above 0: code 0.
    const VF kept = hn::IfThenElseZero(hn::Gt(code, hn::Zero(d)), hn::Min(code, top));
    hn::StoreU(hn::BitCast(DU(), hn::ConvertTo(DI(), kept)), DU(), codes + i);
  }
  return group;
}

template <bool kKeys, size_t kBits>
void EncodeAffine(const EncodeArgs& args) noexcept {
  alignas(64) uint32_t codes[kMaxGroup];
  alignas(64) float rotated[kMaxRotationDim];
  const int64_t group = args.codec.group;
  for (int64_t i = 0; i < args.count; ++i) {
    const float* row = args.rows + i * args.row_stride;
    if (args.codec.rotated) {
      for (int64_t d = 0; d < args.dim; ++d) rotated[d] = row[d];
      RotateRow(rotated, args.dim);
      row = rotated;
    }
    for (int64_t d = 0; d < args.dim; d += group) {
      const AffineGroup steps = QuantizeGroup<kBits>(row + d, group, codes);
      StoreCodes<kKeys, kBits>(args, args.slot + i, d, codes, group);
      StoreAffineGroup(args.codec, args.plane, args.dim, d / group, static_cast<int>(args.slot + i),
                       steps);
    }
  }
}

// The 16-lane sum of squares.
float SumSquares(const float* x, int64_t dim) {
  VF lanes[kLaneVectors];
  for (VF& lane : lanes) lane = hn::Zero(DF());
  for (int64_t i = 0; i < dim; i += kVirtualLanes) {
    for (size_t v = 0; v < kLaneVectors; ++v) {
      const VF y = hn::LoadU(DF(), x + i + v * kLanes);
      lanes[v] = hn::MulAdd(y, y, lanes[v]);
    }
  }
  return SumLanes(lanes);
}

// The unit vector of x, rotated, to `out`; returns the norm, NaN if x is not finite (EncodeTurbo).
float RotatedUnit(const float* x, int64_t dim, float* out) {
  const DF d;
  VF largest = hn::Zero(d);
  for (int64_t i = 0; i < dim; i += kStep) {
    largest = MaxIgnoringNan(largest, hn::Abs(hn::LoadU(d, x + i)));
  }
  const float magnitude = hn::GetLane(hn::MaxOfLanes(d, largest));
  const VF divisor = hn::Set(d, magnitude > 0 ? magnitude : 1.0f);
  for (int64_t i = 0; i < dim; i += kStep) {
    hn::StoreU(hn::Div(hn::LoadU(d, x + i), divisor), d, out + i);
  }
  const float sum = SumSquares(out, dim);
  if (std::isnan(sum)) return kQuietNan;
  const float root = std::sqrt(sum);
  ScaleElements(out, dim, sum > 0 ? 1.0f / root : 0.0f);
  RotateRow(out, dim);
  return HWY_MIN(magnitude * root, std::numeric_limits<float>::max());
}

template <bool kKeys, size_t kBits>
void EncodeTurboRows(const EncodeArgs& args) noexcept {
  const DF d;
  constexpr size_t kThresholds = (size_t{1} << kBits) - 1;
  alignas(64) uint32_t codes[kMaxRotationDim];
  alignas(64) float unit[kMaxRotationDim];
  const float* const thresholds = TurboThresholds(args.dim, static_cast<int>(kBits));
  for (int64_t i = 0; i < args.count; ++i) {
    const float norm = RotatedUnit(args.rows + i * args.row_stride, args.dim, unit);
    for (int64_t k = 0; k < args.dim; k += kStep) {
      const VF v = hn::LoadU(d, unit + k);
      auto code = hn::Zero(DI());
      for (size_t t = 0; t < kThresholds; ++t) {
        // A true lane is -1.
        const auto below = hn::Lt(hn::Set(d, thresholds[t]), v);
        code = hn::Sub(code, hn::BitCast(DI(), hn::VecFromMask(d, below)));
      }
      if (std::isnan(norm)) code = hn::Zero(DI());
      hn::StoreU(hn::BitCast(DU(), code), DU(), codes + k);
    }
    StoreCodes<kKeys, kBits>(args, args.slot + i, 0, codes, args.dim);
    StoreTurboNorm(args.codec, args.plane, args.dim, static_cast<int>(args.slot + i), norm);
  }
}

void RotateRows(float* x, int64_t stride, int64_t rows, int64_t dim) noexcept {
  for (int64_t i = 0; i < rows; ++i) RotateRow(x + i * stride, dim);
}

void RotateRowsBack(float* x, int64_t stride, int64_t rows, int64_t dim) noexcept {
  for (int64_t i = 0; i < rows; ++i) RotateRowBack(x + i * stride, dim);
}

template <size_t... kBits>
void FillAffine(std::index_sequence<kBits...>, KernelTable* table) {
  ((table->kv[KvFormatIndex(KvCodec::Affine(kBits, 64))].encode_keys = EncodeAffine<true, kBits>),
   ...);
  ((table->kv[KvFormatIndex(KvCodec::Affine(kBits, 64))].encode_values =
        EncodeAffine<false, kBits>),
   ...);
}

template <size_t... kBits>
void FillTurbo(std::index_sequence<kBits...>, KernelTable* table) {
  ((table->kv[KvFormatIndex(KvCodec::Turbo(kBits))].encode_keys = EncodeTurboRows<true, kBits>),
   ...);
  ((table->kv[KvFormatIndex(KvCodec::Turbo(kBits))].encode_values = EncodeTurboRows<false, kBits>),
   ...);
}

}  // namespace

void FillPackedEncode(KernelTable* table) {
  FillAffine(std::index_sequence<2, 3, 4, 5, 6, 8>(), table);
  FillTurbo(std::index_sequence<2, 3, 4>(), table);
  table->rotate = RotateRows;
  table->rotate_back = RotateRowsBack;
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillPackedEncode)
#endif
