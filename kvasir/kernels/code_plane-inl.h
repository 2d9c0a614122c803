// Many rows times coded weights: the codes of a block are put together to bytes or words once, its
// scales and biases to float32, and every tile of rows multiplies with those (plane_tile-inl.h,
// matrix_tile-inl.h).
// Deliberately without products: how a plane lies depends on them, what is in it does not.
//
// A Layout has
//   kGroupBytes, kScaleFloats               of 16 outputs and 32 inputs, and of their scales
//   Store(codes, step, vector, group)       those of inputs 4 step .. 4 step + 3 of kLanes outputs
//   StoreScales(scales, vector, panel)      of kLanes outputs
#if defined(KVASIR_KERNELS_CODE_PLANE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_CODE_PLANE_INL_H_
#undef KVASIR_KERNELS_CODE_PLANE_INL_H_
#else
#define KVASIR_KERNELS_CODE_PLANE_INL_H_
#endif

#include <algorithm>

#include "hwy/highway.h"
#include "kvasir/kernels/coded_lines-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// The codes of a block, [panel][group] of all its panels, groups of a panel one after the other: as
// many bytes as kBlockBytes, so that they stay in the second-level cache.
template <class Layout>
struct CodePlane {
  static constexpr int64_t kMostGroups = kBlockBytes / Layout::kGroupBytes;
  static constexpr int64_t kScales = kMostGroups * 2 * Layout::kScaleFloats;

  alignas(64) uint8_t codes[kBlockBytes];
  // Likewise, [panel][group][parts][kScaleFloats]: of 32 inputs, or of the first and the last 16.
  alignas(64) float scales[kScales];
  alignas(64) float biases[kScales];
};

// What the groups of a panel are in a plane.
template <WeightFormat kFormat, class Layout>
struct PlaneMaker {
  using Code = Coding<kFormat>;
  using Lines = CodedLines<kFormat>;
  using Scales = CodedScales<kFormat>;
  static constexpr auto kVectors = std::make_index_sequence<kVecsPerPanel>();

  template <int kLine, bool kHigh, size_t... I>
  static HWY_INLINE void StoreLine(const ByteVec (&raw)[kVecsPerPanel],
                                   const ByteVec (&more)[kVecsPerPanel], uint8_t* codes,
                                   std::index_sequence<I...>) {
    (Layout::Store(Lines::template Codes<kLine, kHigh>(raw[I], more[I]), kLine + (kHigh ? 4 : 0), I,
                   codes),
     ...);
  }

  template <size_t kLine, bool kLow, bool kHigh>
  static HWY_INLINE void MakeLine(const std::byte* group, const ByteVec (&more)[kVecsPerPanel],
                                  uint8_t* codes) {
    ByteVec raw[kVecsPerPanel];
    Lines::Load(group, Lines::RawLine(kLine), 0, raw, kVectors);
    if constexpr (kLow) StoreLine<kLine, false>(raw, more, codes, kVectors);
    if constexpr (kHigh) StoreLine<kLine, true>(raw, more, codes, kVectors);
  }
  template <bool kLow, bool kHigh, size_t... kLine>
  static HWY_INLINE void MakeLines(const std::byte* group, const ByteVec (&more)[kVecsPerPanel],
                                   uint8_t* codes, std::index_sequence<kLine...>) {
    (MakeLine<kLine, kLow, kHigh>(group, more, codes), ...);
  }

  static HWY_INLINE void MakeGroup(const std::byte* group, uint8_t* codes) {
    // Not a plain 4: g++ 12 crashed on calls that depend on no argument of the template.
    constexpr auto kLines = std::make_index_sequence < Code::kIsByte ? 8 : 4 > ();
    ByteVec more[kVecsPerPanel];
    Lines::Load(group, Lines::MoreLine(false), 0, more, kVectors);
    if constexpr (Code::kHasPairs) {
      MakeLines<true, false>(group, more, codes, kLines);
      Lines::Load(group, Lines::MoreLine(true), 0, more, kVectors);
      MakeLines<false, true>(group, more, codes, kLines);
    } else {
      MakeLines<true, !Code::kIsByte>(group, more, codes, kLines);
    }
  }

  template <size_t... I>
  static HWY_INLINE void StoreScales(const FloatVec (&from)[kVecsPerPanel], float* to,
                                     std::index_sequence<I...>) {
    (Layout::StoreScales(from[I], I, to), ...);
  }

  // `block`: the first panel at the block's first unit. `first`: its group of the plane.
  static void Make(const CodedBlock& block, int64_t first, CodePlane<Layout>* plane) {
    const int64_t unit_groups = Code::kIsAffine ? block.unit_groups : Code::kUnitGroups;
    const std::byte* unit = block.weights;
    for (int64_t g = 0; g < block.groups; unit += Code::UnitBytes(unit_groups)) {
      const int64_t end = std::min(g + unit_groups, block.groups);
      for (int64_t at = 0; g < end; ++g, ++at) {
        GroupScales<kVecsPerPanel> scales;
        Scales::Load(block, unit, at, scales, kVectors);
        constexpr int64_t kParts = Code::kHasHalves ? 2 : 1;
        for (int64_t part = 0; part < kParts; ++part) {
          const int64_t to = ((first + g) * kParts + part) * Layout::kScaleFloats;
          StoreScales(scales.scale[part], plane->scales + to, kVectors);
          if constexpr (Code::kHasMins) {
            StoreScales(scales.bias[part], plane->biases + to, kVectors);
          }
        }
        MakeGroup(unit + Code::kScaleBytes + at * Code::kGroupBytes,
                  plane->codes + (first + g) * Layout::kGroupBytes);
      }
    }
  }
};

template <class Layout>
struct PlaneBlock {
  const int8_t* x_codes = nullptr;  // [rows, inputs], at the block's first group
  const float* x_scales = nullptr;  // [rows, inputs/32], likewise
  const int32_t* x_sums = nullptr;
  const int32_t* x_half_sums = nullptr;
  int64_t row_groups = 0;  // inputs/32 of a whole row
  int64_t groups = 0;      // of the block
  const CodePlane<Layout>* plane = nullptr;
  const WeightPrefetch* prefetch = &kNoFetch;
  int64_t fetch_steps = 0;  // of the block, and most of a group
  int64_t group_steps = 0;
};

// What a tile needs to know of a format, so that formats share it.
template <int kMost, int32_t kZeroCode, bool kHalves, bool kMins>
struct PlaneCode {
  static constexpr int kMostCode = kMost;
  // What codes are too large by when they are multiplied.
  static constexpr int32_t kZero = kMins ? 0 : kZeroCode;
  static constexpr int kParts = kHalves ? 2 : 1;
  static constexpr bool kHasMins = kMins;
};
template <WeightFormat kFormat>
using PlaneCodeOf = PlaneCode<Coding<kFormat>::kMostCode, Coding<kFormat>::kZero,
                              Coding<kFormat>::kHasHalves, Coding<kFormat>::kHasMins>;

// Fewer rows never make planes, so no tile is lower than this: rows are cut into tiles of equal
// height (RunPanels).
inline constexpr int kFewestPlaneRows = 9;
constexpr int LeastPlaneTile(int most) {
  int least = most;
  for (int rows = kFewestPlaneRows; rows <= kFewestPlaneRows + most * most; ++rows) {
    least = std::min(least, rows / ((rows + most - 1) / most));
  }
  return least;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_CODE_PLANE_INL_H_
