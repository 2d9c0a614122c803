// How coded rows (coded_row.h) lie in a panel, and the scales and biases of one group of a format
// that is known when compiling.
// Deliberately without codes and products: coded_matmul-inl.h.
#if defined(KVASIR_KERNELS_CODED_SCALES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_CODED_SCALES_INL_H_
#undef KVASIR_KERNELS_CODED_SCALES_INL_H_
#else
#define KVASIR_KERNELS_CODED_SCALES_INL_H_
#endif

#include <type_traits>

#include "hwy/highway.h"
#include "kvasir/kernels/coded_dot-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

inline constexpr int64_t kSuperGroups = kSuperblockInputs / kQuantGroup;

// What is known of a format when compiling.
template <WeightFormat kFormat>
struct Coding {
  static constexpr int kBits = CodeBits(kFormat);
  static constexpr bool kIsQ8 = kFormat == WeightFormat::kQ8;  // planes only, q4 too
  static constexpr bool kIsQ4 = kFormat == WeightFormat::kQ4;
  static constexpr bool kIsByte = kBits == 8;
  // Lines that codes are put together of (coded_row.h): low and high nibbles, then pairs of bits of
  // each half of a group, then a bit of all of it, which may be all that there is.
  static constexpr bool kHasPairs = kBits == 2 || kBits == 3 || kBits == 6;
  static constexpr int kPairLine = kBits == 6 ? 4 : 0;
  static constexpr int kBitLine = kBits - 1;  // of 1, 3 and 5 bits
  static constexpr bool kIsAffine = IsAffine(kFormat);
  static constexpr bool kIsIq4 = kFormat == WeightFormat::kIq4Nl || kFormat == WeightFormat::kIq4Xs;
  static constexpr bool kIsMxfp4 = kFormat == WeightFormat::kMxfp4;
  static constexpr bool kIsMicroscaled = kIsMxfp4 || kFormat == WeightFormat::kNvfp4;
  static constexpr bool kHasHalfScales =
      kIsQ8 || kIsQ4 || kFormat == WeightFormat::kQ5 || kFormat == WeightFormat::kIq4Nl;
  // Scales of 16 inputs.
  static constexpr bool kHasHalves =
      kFormat == WeightFormat::kQ2K || kFormat == WeightFormat::kQ3K ||
      kFormat == WeightFormat::kQ6K || kFormat == WeightFormat::kNvfp4;
  static constexpr bool kHasMins = kIsAffine || kFormat == WeightFormat::kQ2K ||
                                   kFormat == WeightFormat::kQ4K || kFormat == WeightFormat::kQ5K;
  // Neither put together of lines nor looked up.
  static constexpr bool kIsPlain = (kBits == 4 || kBits == 8) && !kIsIq4 && !kIsMicroscaled;
  // Of what is multiplied: codes, or what a table has instead.
  static constexpr int kMostCode = kIsByte || kIsIq4 ? 255
                                   : kBits == 6      ? 63
                                   : kBits == 5      ? 31
                                   : kIsMicroscaled  ? 24
                                                     : 15;
  // What stands for zero there, where there are no biases.
  static constexpr int32_t kZero = kIsQ8 || kIsIq4  ? 128
                                   : kIsMicroscaled ? 12
                                                    : -CodeLevel(kFormat, 0);
  // A line of scales before the codes that it is for (GroupUnits), not a superblock.
  static constexpr bool kHasScaleLine = !IsSuperblocked(kFormat);
  static constexpr int64_t kGroupBytes = kBits * 64;
  // Groups that lie together with their scales; of the affine formats those that share them, which
  // a matrix says.
  static constexpr int64_t kUnitGroups = kIsAffine       ? 0
                                         : kHasScaleLine ? UnitsOf(kFormat).groups
                                                         : kSuperGroups;
  // Scales before the codes of a unit.
  static constexpr int64_t kSubScales = (kHasHalves ? 2 : 1) * kSuperGroups * kPanelOutputs;
  static constexpr bool kHasNibbleScales = kFormat == WeightFormat::kQ2K;  // and mins, of a byte
  static constexpr int64_t kSmallBytes = (kHasMins && !kHasNibbleScales ? 2 : 1) * kSubScales;
  static constexpr int64_t kScaleBytes = kHasScaleLine ? 64 : kSmallBytes + (kHasMins ? 64 : 32);
  static constexpr int64_t UnitBytes(int64_t groups) { return kScaleBytes + groups * kGroupBytes; }
  static int64_t UnitGroupsOf(const PackedMatrix& weights) {
    return kIsAffine ? weights.affine().group_inputs / kQuantGroup : kUnitGroups;
  }
  // Prefetches: enough to touch each line of a unit; kSteps a group and one more for a scale line.
  static constexpr int64_t kSteps =
      kHasScaleLine ? kGroupBytes / 64 : (UnitBytes(kSuperGroups) / kSuperGroups + 63) / 64;
  static constexpr int64_t kStepBytes =
      kHasScaleLine ? 64 : UnitBytes(kSuperGroups) / (kSuperGroups * kSteps);
  using Dot = std::conditional_t<kMostCode == 255, ByteDot,
                                 std::conditional_t<(kMostCode > 15), SmallDot, NibbleDot>>;
};

// How kernels of a format cut rows of weights (matmul_tiles-inl.h).
template <WeightFormat kFormat>
struct CodedUnits {
  static int64_t UnitGroups(const MatmulArgs& args) {
    return Coding<kFormat>::UnitGroupsOf(*args.weights);
  }
  static int64_t UnitBytes(const MatmulArgs& args) {
    return Coding<kFormat>::UnitBytes(UnitGroups(args));
  }
  static int64_t Units(const MatmulArgs& args) {
    const int64_t groups = UnitGroups(args);
    return (args.weights->inputs() / kQuantGroup + groups - 1) / groups;
  }
};

struct CodedBlock {
  const int8_t* x_codes = nullptr;  // [rows, inputs], at the block's first group
  const float* x_scales = nullptr;  // [rows, inputs/32], likewise
  const int32_t* x_sums = nullptr;
  const int32_t* x_half_sums = nullptr;
  int64_t row_groups = 0;              // inputs/32 of a whole row
  const std::byte* weights = nullptr;  // the first panel at the block's first unit
  int64_t panel_bytes = 0;
  int64_t groups = 0;  // of the block
  int64_t unit_groups = 0;
  const WeightPrefetch* prefetch = &kNoFetch;
  // AffineScales
  bool is_half = true;  // scales of an affine format are f16, else bf16
  bool has_zeros = false;

  HWY_INLINE void SetAffine(const AffineScales& affine) {
    is_half = affine.dtype == DType::kF16;
    has_zeros = affine.has_zeros;
  }
};

// The scales and biases of one group; the second ones where its last 16 inputs have their own.
template <int C>
struct GroupScales {
  // Implicit ones lack the target of NEON's vectors under GCC.
  HWY_INLINE GroupScales() {}
  FloatVec scale[2][C];
  FloatVec bias[2][C];
};

template <WeightFormat kFormat>
struct CodedScales {
  using Code = Coding<kFormat>;

  // Those of group `at` of a unit; `unit`: of the first panel.
  template <int C, size_t... I>
  static HWY_INLINE void Load(const CodedBlock& block, const std::byte* unit, int64_t at,
                              GroupScales<C>& to, std::index_sequence<I...> columns) {
    if constexpr (Code::kIsAffine) {
      LoadAffine(block, unit, to, columns);
    } else if constexpr (Code::kHasHalfScales) {
      LoadHalves(unit, at, block.panel_bytes, to, columns);
    } else if constexpr (Code::kIsMicroscaled) {
      LoadMicroscales(unit, at, block.panel_bytes, to, columns);
    } else {
      LoadSuper(unit, at, block.panel_bytes, to, columns);
    }
  }

  static HWY_INLINE FloatVec LoadHalf(const uint16_t* from) {
    const hn::Rebind<hwy::float16_t, FloatTag> half;
    return hn::PromoteTo(FloatTag(),
                         hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(from)));
  }
  static HWY_INLINE FloatVec LoadBf16(const uint16_t* from) {
    const hn::Rebind<uint16_t, FloatTag> narrow;
    const hn::RebindToUnsigned<FloatTag> wide;
    return hn::BitCast(FloatTag(), hn::ShiftLeft<16>(hn::PromoteTo(wide, hn::LoadU(narrow, from))));
  }
  template <class Narrow>
  static HWY_INLINE IntVec LoadSmallInts(const std::byte* from) {
    const hn::Rebind<Narrow, IntTag> narrow;
    return hn::PromoteTo(IntTag(), hn::LoadU(narrow, reinterpret_cast<const Narrow*>(from)));
  }
  template <class Narrow>
  static HWY_INLINE FloatVec LoadSmall(const std::byte* from) {
    return hn::ConvertTo(FloatTag(), LoadSmallInts<Narrow>(from));
  }

  // `unit`: of the first panel.
  template <int C, size_t... I>
  static HWY_INLINE void LoadAffine(const CodedBlock& block, const std::byte* unit,
                                    GroupScales<C>& to, std::index_sequence<I...>) {
    const auto* const from = reinterpret_cast<const uint16_t*>(unit);
    const int64_t stride = block.panel_bytes / 2;
    const auto at = [&](size_t i) {
      return from + static_cast<int64_t>(i / kVecsPerPanel) * stride + (i % kVecsPerPanel) * kLanes;
    };
    if (block.is_half) {
      ((to.scale[0][I] = LoadHalf(at(I)), to.bias[0][I] = LoadHalf(at(I) + kPanelOutputs)), ...);
    } else {
      ((to.scale[0][I] = LoadBf16(at(I)), to.bias[0][I] = LoadBf16(at(I) + kPanelOutputs)), ...);
    }
    if (block.has_zeros) {
      ((to.bias[0][I] = hn::Neg(hn::Mul(to.scale[0][I], to.bias[0][I]))), ...);
    }
  }

  // Scales of f16, one for each group.
  template <int C, size_t... I>
  static HWY_INLINE void LoadHalves(const std::byte* unit, int64_t at, int64_t panel_bytes,
                                    GroupScales<C>& to, std::index_sequence<I...>) {
    const auto* const from = reinterpret_cast<const uint16_t*>(unit) + at * kPanelOutputs;
    ((to.scale[0][I] = LoadHalf(from + static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes / 2 +
                                (I % kVecsPerPanel) * kLanes)),
     ...);
  }

  // MicroscaleOf of kLanes scales.
  static HWY_INLINE FloatVec LoadMicroscale(const uint8_t* from) {
    const FloatTag d;
    if constexpr (Code::kIsMxfp4) {
      const IntTag wide;
      const IntVec scale = hn::PromoteTo(wide, hn::LoadU(hn::Rebind<uint8_t, IntTag>(), from));
      const IntVec one = hn::Set(wide, 1);
      return hn::BitCast(d,
                         hn::IfThenElse(hn::Gt(scale, one), hn::ShiftLeft<23>(hn::Sub(scale, one)),
                                        hn::ShiftLeft<21>(hn::Add(scale, one))));
    } else {
      const hn::Rebind<uint16_t, FloatTag> narrow;
      const auto scale = hn::PromoteTo(narrow, hn::LoadU(hn::Rebind<uint8_t, FloatTag>(), from));
      const auto bits = hn::Or(hn::ShiftLeft<8>(hn::And(scale, hn::Set(narrow, 0x80))),
                               hn::ShiftLeft<7>(hn::And(scale, hn::Set(narrow, 0x7F))));
      const auto half = hn::BitCast(hn::Rebind<hwy::float16_t, FloatTag>(), bits);
      return hn::Mul(hn::PromoteTo(d, half), hn::Set(d, 128.0f));
    }
  }

  template <int C, size_t... I>
  static HWY_INLINE void LoadMicroscales(const std::byte* unit, int64_t at, int64_t panel_bytes,
                                         GroupScales<C>& to, std::index_sequence<I...>) {
    constexpr int64_t kParts = Code::kHasHalves ? 2 : 1;
    const auto* const from = reinterpret_cast<const uint8_t*>(unit) + at * kParts * kPanelOutputs;
    for (int64_t part = 0; part < kParts; ++part) {
      ((to.scale[part][I] = LoadMicroscale(from + part * kPanelOutputs +
                                           static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes +
                                           (I % kVecsPerPanel) * kLanes)),
       ...);
    }
  }

  // `scales`: the superblock's small scales in the first panel; `at`: the group in it.
  template <int C>
  static HWY_INLINE void LoadColumn(const std::byte* scales, int64_t at, size_t i,
                                    GroupScales<C>& to) {
    const size_t lane = (i % kVecsPerPanel) * kLanes;
    const auto* halves = reinterpret_cast<const uint16_t*>(scales + Code::kSmallBytes) + lane;
    const FloatVec d = LoadHalf(halves);
    constexpr int64_t kParts = Code::kHasHalves ? 2 : 1;
    for (int64_t part = 0; part < kParts; ++part) {
      const std::byte* const scale = scales + (kParts * at + part) * kPanelOutputs + lane;
      if constexpr (Code::kHasNibbleScales) {
        const IntVec both = LoadSmallInts<uint8_t>(scale);
        const IntVec low = hn::And(both, hn::Set(IntTag(), 15));
        to.scale[part][i] = hn::Mul(d, hn::ConvertTo(FloatTag(), low));
        to.bias[part][i] = hn::Neg(hn::Mul(LoadHalf(halves + kPanelOutputs),
                                           hn::ConvertTo(FloatTag(), hn::ShiftRight<4>(both))));
      } else if constexpr (Code::kHasMins) {
        to.scale[part][i] = hn::Mul(d, LoadSmall<uint8_t>(scale));
        to.bias[part][i] = hn::Neg(hn::Mul(LoadHalf(halves + kPanelOutputs),
                                           LoadSmall<uint8_t>(scale + Code::kSubScales)));
      } else {
        to.scale[part][i] = hn::Mul(d, LoadSmall<int8_t>(scale));
      }
    }
  }
  template <int C, size_t... I>
  static HWY_INLINE void LoadSuper(const std::byte* scales, int64_t at, int64_t panel_bytes,
                                   GroupScales<C>& to, std::index_sequence<I...>) {
    (LoadColumn(scales + static_cast<int64_t>(I / kVecsPerPanel) * panel_bytes, at, I, to), ...);
  }
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_CODED_SCALES_INL_H_
