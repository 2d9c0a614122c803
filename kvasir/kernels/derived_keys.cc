#include "kvasir/kernels/derived_keys.h"

#include <algorithm>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/trigonometry.h"
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/derived_keys.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/codec-inl.h"
#include "kvasir/kernels/math-inl.h"
#include "kvasir/kernels/packed_levels-inl.h"
#include "kvasir/kernels/rotation-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

constexpr int kSlots = static_cast<int>(kLanes);
using DHalf = hn::Half<DF>;
using DD = hn::Rebind<double, DHalf>;
using VD = hn::Vec<DD>;

template <size_t kTerms>
HWY_INLINE VD Polynomial(const double (&terms)[kTerms], VD z) {
  const DD d;
  VD p = hn::Set(d, terms[0]);
  for (size_t i = 1; i < kTerms; ++i) p = hn::MulAdd(p, z, hn::Set(d, terms[i]));
  return p;
}

// SinCos of base/trigonometry.h.
HWY_INLINE void SinCosOf(VD x, VD& sin, VD& cos) {
  const DD d;
  const VD quotient = hn::Round(hn::Mul(x, hn::Set(d, kTwoOverPi)));
  VD rest = x;
  for (const double part : kHalfPiParts) rest = hn::NegMulAdd(quotient, hn::Set(d, part), rest);
  const VD z = hn::Mul(rest, rest);
  const VD sine = hn::MulAdd(hn::Mul(Polynomial(kSinTerms, z), z), rest, rest);
  const VD cosine = hn::MulAdd(Polynomial(kCosTerms, z), z, hn::Set(d, 1.0));
  // The quotient's last two bits, exact in floating point.
  const VD whole = hn::Floor(hn::Mul(quotient, hn::Set(d, 0.25)));
  const VD quadrant = hn::NegMulAdd(whole, hn::Set(d, 4.0), quotient);
  const auto is = [&](double number) { return hn::Eq(quadrant, hn::Set(d, number)); };
  const auto swaps = hn::Or(is(1), is(3));
  sin = hn::IfThenElse(swaps, cosine, sine);
  cos = hn::IfThenElse(swaps, sine, cosine);
  sin = hn::IfThenElse(hn::Or(is(2), is(3)), hn::Neg(sin), sin);
  cos = hn::IfThenElse(hn::Or(is(1), is(2)), hn::Neg(cos), cos);
}

// Rounded to float, of the angles position * frequency of kLanes slots.
HWY_INLINE void TurnOf(const double* positions, float frequency, VF& sin, VF& cos) {
  const DD d;
  const VD factor = hn::Set(d, static_cast<double>(frequency));
  VD low_sin, low_cos, high_sin, high_cos;
  SinCosOf(hn::Mul(hn::LoadU(d, positions), factor), low_sin, low_cos);
  SinCosOf(hn::Mul(hn::LoadU(d, positions + hn::Lanes(d)), factor), high_sin, high_cos);
  const DHalf half;
  sin = hn::Combine(DF(), hn::DemoteTo(half, high_sin), hn::DemoteTo(half, low_sin));
  cos = hn::Combine(DF(), hn::DemoteTo(half, high_cos), hn::DemoteTo(half, low_cos));
}

// Reads the values of one slot, [value_dim].
using ReadRow = void (*)(const DeriveKeysArgs& args, int slot, float* row);

template <class Codec>
void ReadDense(const DeriveKeysArgs& args, int slot, float* row) {
  const int64_t dim = args.layout->value_dim;
  const auto* const stored =
      reinterpret_cast<const typename Codec::Stored*>(args.values) + slot * dim;
  int64_t i = 0;
  for (; i + kSlots <= dim; i += kSlots) hn::StoreU(Codec::Decode(stored + i), DF(), row + i);
  if (i < dim)
    StorePartial(DecodePartial<Codec>(stored + i, static_cast<size_t>(dim - i)), row + i,
                 static_cast<size_t>(dim - i));
}

// DecodePackedValueRow of tensor/packed_codec.h: lanes are dims, whose codes of one slot lie at the
// same bits of neighbouring words.
template <class Levels>
void ReadPacked(const DeriveKeysArgs& args, int slot, float* row) {
  constexpr int64_t kBits = Levels::kBits;
  constexpr int64_t kUnitWords = kVirtualLanes * kBits;
  const DF d;
  const KvCodec& codec = args.layout->value_codec;
  const int64_t dim = args.layout->value_dim;
  const bool turbo = codec.kind == KvCodec::Kind::kTurbo;
  const Levels levels(codec, dim);
  const int64_t first_bit = slot % kLaneCodes * kBits;
  const auto shift = static_cast<int>(first_bit % 32);
  const uint32_t* const words = reinterpret_cast<const uint32_t*>(args.values) +
                                slot / kLaneCodes * kUnitWords + first_bit / 32 * kVirtualLanes;
  const int64_t group = turbo ? dim : codec.group;
  for (int64_t begin = 0; begin < dim; begin += group) {
    const AffineGroup parameters =
        turbo ? AffineGroup{LoadTurboNorm(codec, args.values, dim, slot), 0.0f}
              : LoadAffineGroup(codec, args.values, dim, begin / group, slot);
    const VF scale = hn::Set(d, parameters.scale);
    const VF bias = hn::Set(d, parameters.bias);
    for (int64_t i = begin; i < begin + group; i += kSlots) {
      const uint32_t* const word = words + i / kVirtualLanes * 2 * kUnitWords + i % kVirtualLanes;
      VU codes = hn::ShiftRightSame(hn::LoadU(DU(), word), shift);
      if (shift + kBits > 32) {
        const VU above = hn::LoadU(DU(), word + kVirtualLanes);
        codes = hn::Or(codes, hn::ShiftLeftSame(above, 32 - shift));
      }
      const VF value = hn::Mul(levels.template Get<false>(codes), scale);
      hn::StoreU(turbo ? value : hn::Add(value, bias), d, row + i);
    }
  }
  if (codec.rotates()) RotateRowBack(row, dim);
}

ReadRow ReaderOf(const KvCodec& codec) {
  switch (codec.kind) {
    case KvCodec::Kind::kF32:
      return ReadDense<F32Codec>;
    case KvCodec::Kind::kF16:
      return ReadDense<F16Codec>;
    case KvCodec::Kind::kBf16:
      return ReadDense<Bf16Codec>;
    case KvCodec::Kind::kTurbo:
      return codec.bits == 2   ? ReadPacked<TableLevels<2>>
             : codec.bits == 3 ? ReadPacked<TableLevels<3>>
                               : ReadPacked<TableLevels<4>>;
    case KvCodec::Kind::kAffine:
    case KvCodec::Kind::kFromValue:  // is no way to store values
      break;
  }
  switch (codec.bits) {
    case 2:
      return ReadPacked<AffineLevels<2>>;
    case 3:
      return ReadPacked<AffineLevels<3>>;
    case 4:
      return ReadPacked<AffineLevels<4>>;
    case 5:
      return ReadPacked<AffineLevels<5>>;
    case 6:
      return ReadPacked<AffineLevels<6>>;
    default:
      return ReadPacked<AffineLevels<8>>;
  }
}

// kLanes slots at a time: their values side by side, then dimension by dimension across slots.
void DeriveKeysOf(const DeriveKeysArgs& args) {
  const DF d;
  const hn::Rebind<int32_t, DF> di;
  const auto dim = static_cast<size_t>(args.layout->value_dim);
  const size_t pairs = args.derivation.inv_freq.size();
  const float* const norm = args.derivation.key_norm.data();
  const ReadRow read = ReaderOf(args.layout->value_codec);
  std::vector<float> rows(dim * kSlots);
  const auto stride = hn::Mul(hn::Iota(di, 0), hn::Set(di, static_cast<int32_t>(dim)));
  for (int first = 0; first < kBlockTokens; first += kSlots) {
    std::fill(rows.begin(), rows.end(), 0.0f);
    double positions[kSlots];
    for (int i = 0; i < kSlots; ++i) {
      const int slot = first + i;
      positions[i] = static_cast<double>(args.positions[static_cast<size_t>(slot)]);
      if (slot < args.begin || slot >= args.end) continue;
      read(args, slot, rows.data() + static_cast<size_t>(i) * dim);
    }
    float* const out = args.tile + first;
    const auto scaled = [&](size_t at) {
      return hn::Mul(hn::Set(d, norm[at]), hn::GatherIndex(d, rows.data() + at, stride));
    };
    const VF slots = hn::Iota(d, static_cast<float>(first));
    const auto is_wanted = hn::And(hn::Ge(slots, hn::Set(d, static_cast<float>(args.begin))),
                                   hn::Lt(slots, hn::Set(d, static_cast<float>(args.end))));
    const auto store = [&](size_t at, VF key) {
      hn::StoreU(hn::IfThenElseZero(is_wanted, key), d, out + at * kBlockTokens);
    };
    for (size_t pair = 0; pair < pairs; ++pair) {
      const VF x = scaled(pair);
      const VF y = scaled(pair + pairs);
      if (args.derivation.inv_freq[pair] == 0) {
        store(pair, x);
        store(pair + pairs, y);
        continue;
      }
      VF sin, cos;
      TurnOf(positions, args.derivation.inv_freq[pair], sin, cos);
      store(pair, hn::NegMulAdd(y, sin, hn::Mul(x, cos)));
      store(pair + pairs, hn::MulAdd(x, sin, hn::Mul(y, cos)));
    }
    for (size_t at = 2 * pairs; at < dim; ++at) store(at, scaled(at));
  }
}

}  // namespace

void DeriveKeysHere(const DeriveKeysArgs& args) { DeriveKeysOf(args); }

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
namespace kvasir {

void DeriveKeys(Isa isa, const DeriveKeysArgs& args) {
  isa = VectorsOf(isa);
#if HWY_TARGETS & HWY_AVX3_DL
  if (isa == Isa::kAvx512) return N_AVX3_DL::DeriveKeysHere(args);
#endif
#if HWY_TARGETS & HWY_AVX2
  if (isa == Isa::kAvx2) return N_AVX2::DeriveKeysHere(args);
#endif
#if HWY_TARGETS & HWY_NEON
  if (isa == Isa::kNeon) return N_NEON::DeriveKeysHere(args);
#endif
  DeriveKeyTile(args.derivation, *args.layout, args.values, args.positions, args.begin, args.end,
                args.tile);
}

}  // namespace kvasir
#endif  // HWY_ONCE
