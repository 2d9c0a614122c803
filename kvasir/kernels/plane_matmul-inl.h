// Which rows go through planes of codes (code_plane-inl.h), and the kernel that takes them there.
// Deliberately chooses by numbers of rows that were measured: what is chosen changes no bit.
#if defined(KVASIR_KERNELS_PLANE_MATMUL_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_PLANE_MATMUL_INL_H_
#undef KVASIR_KERNELS_PLANE_MATMUL_INL_H_
#else
#define KVASIR_KERNELS_PLANE_MATMUL_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "hwy/highway.h"
#include "kvasir/kernels/code_plane-inl.h"
#if HWY_TARGET == HWY_NEON
#include "kvasir/kernels/matrix_tile-inl.h"
#else
#include "kvasir/kernels/plane_tile-inl.h"
#endif

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// With AVX-512 what planes spare depends on the CPU: where products share ports with conversions,
// additions and scales (Intel's), those of tiles as well; elsewhere (Zen 4) only what puts codes
// together.
enum class Ports { kShared, kApart };

#if KVASIR_HAS_PLANES

template <WeightFormat kFormat>
struct PlaneKernel : CodedUnits<kFormat> {
  using Code = Coding<kFormat>;
#if HWY_TARGET == HWY_NEON
  using Tile = MatrixTile<PlaneCodeOf<kFormat>>;
#else
  using Tile = PlaneTile<PlaneCodeOf<kFormat>>;
#endif
  using Layout = typename Tile::Layout;
  static constexpr int kTileRows = Tile::kTileRows;
  static constexpr int64_t kStepBytes = 64;
  static constexpr int64_t kAheadBytes = 0;  // of single row tiles, which there are none of
  static constexpr int kStreamRows = 0;
  static constexpr int MaxPanels(int64_t rows, bool is_alone) {
    return Tile::MaxPanels(rows, is_alone);
  }
  using CodedUnits<kFormat>::UnitGroups;
  using CodedUnits<kFormat>::UnitBytes;
  static int64_t BlockUnits(const MatmulArgs& args, int panels) {
    return CodePlane<Layout>::kMostGroups / (panels * UnitGroups(args));
  }

  class Block {
   public:
    Block(const MatmulArgs& args, int64_t panel, int panels, int64_t begin, int64_t count)
        : args_(args), panels_(panels), first_group_(begin * UnitGroups(args)) {
      CodedBlock coded;
      coded.unit_groups = UnitGroups(args);
      block_.row_groups = args.weights->inputs() / kQuantGroup;
      block_.groups = std::min(count * coded.unit_groups, block_.row_groups - first_group_);
      coded.groups = block_.groups;
      coded.SetAffine(args.weights->affine());
      for (int p = 0; p < panels; ++p) {
        coded.weights = args.weights->panel(panel + p) + begin * UnitBytes(args);
        PlaneMaker<kFormat, Layout>::Make(coded, p * block_.groups, &plane_);
      }
      block_.plane = &plane_;
      fetch_steps_ = (count * UnitBytes(args) + kStepBytes - 1) / kStepBytes;
    }

    void Run(int64_t row, int64_t rows, const WeightPrefetch& prefetch, const TileOutput& output) {
      const int64_t group = row * block_.row_groups + first_group_;
      block_.x_codes = args_.x_codes + group * kQuantGroup;
      block_.x_scales = args_.x_scales + group;
      block_.x_sums = args_.x_sums + group;
      if constexpr (Code::kHasHalves) block_.x_half_sums = args_.x_half_sums + group;
      block_.prefetch = &prefetch;
      block_.fetch_steps = prefetch.fetch == Fetch::kNothing ? 0 : fetch_steps_;
      block_.group_steps = (block_.fetch_steps + block_.groups - 1) / block_.groups;
      CallTile<Tile>(rows, panels_, block_, output);
    }

   private:
    const MatmulArgs& args_;
    const int panels_;
    const int64_t first_group_;
    int64_t fetch_steps_ = 0;
    PlaneBlock<Layout> block_;
    CodePlane<Layout> plane_;
  };
};

// Rows that are worth a plane: what it takes is what one to three tiles take to put codes together.
// 0: never.
template <WeightFormat kFormat, Ports kPorts>
constexpr int64_t PlaneRows() {
  using Code = Coding<kFormat>;
  constexpr bool kIsNibble = Code::kIsPlain && !Code::kIsByte;
#if KVASIR_HAS_MATRIX_DOT
  return 17;  // by count: five tiles spare more than it takes
#elif KVASIR_HAS_BYTE_DOT
  // Codes that are bytes already spare less.
  if (Code::kIsQ8 && HWY_TARGET == HWY_AVX2) return 0;
  if (kPorts == Ports::kApart) {
    if (Code::kIsByte || kIsNibble) return 0;
    return Code::kIsIq4 ? 65 : 17;
  }
  if (Code::kIsByte) return 65;
  if (Code::kIsQ4) return 33;
  if (Code::kIsIq4) return 17;
#else
  if (Code::kIsQ4) return 0;
  if (Code::kMostCode == 255) return 33;
#endif
  return kIsNibble ? 13 : kFewestPlaneRows;
}

#endif  // KVASIR_HAS_PLANES

// Few rows, and the last panel where it is a partial one, go by tiles of FewRows; all rows do where
// planes are never worth it, as on NEON without products of matrices.
template <WeightFormat kFormat, Ports kPorts, class FewRows>
void RunByRows(const MatmulArgs& args) noexcept {
  MatmulArgs rest = args;
#if KVASIR_HAS_PLANES
  constexpr int64_t kPlaneRows = PlaneRows<kFormat, kPorts>();
  if constexpr (kPlaneRows > 0) {
    if (args.rows >= kPlaneRows && args.weights->inputs() > 0) {
      const int64_t full_end = args.weights->outputs() / kPanelOutputs;
      MatmulArgs whole = args;
      whole.panel_end = std::min(args.panel_end, full_end);
      RunMatmul<PlaneKernel<kFormat>>(whole);
      rest.panel_begin = std::max(args.panel_begin, full_end);
    }
  }
#endif
  RunMatmul<FewRows>(rest);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PLANE_MATMUL_INL_H_
