// How every SIMD matmul walks its outputs: groups of panels, blocks of inputs that stay in the
// second-level cache, tiles of rows whose accumulators stay in registers.
// Deliberately without arithmetic: a Kernel brings the tile, this file only cuts the work. Cutting
// never changes bits: an accumulator that rests in `out` between two blocks keeps its value.
#if defined(KVASIR_KERNELS_MATMUL_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_MATMUL_TILES_INL_H_
#undef KVASIR_KERNELS_MATMUL_TILES_INL_H_
#else
#define KVASIR_KERNELS_MATMUL_TILES_INL_H_
#endif

#include <algorithm>
#include <utility>

#include "hwy/highway.h"
#include "kvasir/kernels/kernels.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

namespace hn = hwy::HWY_NAMESPACE;

using FloatTag = hn::CappedTag<float, kPanelOutputs>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr int kLanes = HWY_MIN(HWY_LANES(float), kPanelOutputs);
inline constexpr int kVecsPerPanel = kPanelOutputs / kLanes;

// Where a tile leaves its sums.
struct TileOutput {
  float* out = nullptr;  // first row and output of the tile
  int64_t stride = 0;
  const float* bias = nullptr;  // set with the last block of inputs
  bool resume = false;          // go on from the sums in `out` instead of from zero
};

// Loops over registers are unrolled by fold expressions, so that arrays of vectors are registers
// at every optimisation level.
template <int C, size_t... I>
HWY_INLINE void LoadRow(const TileOutput& to, const float* out, FloatVec (&acc)[C],
                        std::index_sequence<I...>) {
  const FloatTag d;
  ((acc[I] = to.resume ? hn::LoadU(d, out + I * kLanes) : hn::Zero(d)), ...);
}

template <int R, int C, size_t... I>
HWY_INLINE void LoadTile(const TileOutput& to, FloatVec (&acc)[R][C], std::index_sequence<I...>) {
  (LoadRow(to, to.out + I * to.stride, acc[I], std::make_index_sequence<C>()), ...);
}

template <int C, size_t... I>
HWY_INLINE void StoreRow(const TileOutput& to, float* out, FloatVec (&acc)[C],
                         std::index_sequence<I...>) {
  const FloatTag d;
  if (to.bias != nullptr) {
    ((acc[I] = hn::Add(acc[I], hn::LoadU(d, to.bias + I * kLanes))), ...);
  }
  (hn::StoreU(acc[I], d, out + I * kLanes), ...);
}

template <int R, int C, size_t... I>
HWY_INLINE void StoreTile(const TileOutput& to, FloatVec (&acc)[R][C], std::index_sequence<I...>) {
  (StoreRow(to, to.out + I * to.stride, acc[I], std::make_index_sequence<C>()), ...);
}

// The lines of a tile to write, into the first-level cache: stores wait for theirs one by one.
template <int P, size_t... I>
HWY_INLINE void FetchToWrite(const TileOutput& to, std::index_sequence<I...>) {
  static_assert(kPanelOutputs * sizeof(float) == 64);
  for (int64_t panel = 0; panel < P; ++panel) {
    (__builtin_prefetch(to.out + I * to.stride + panel * kPanelOutputs, 1), ...);
  }
}

enum class Fetch { kNothing, kToFirstLevel, kToSecondLevel };

// Weights to come, fetched into a cache while a row tile computes: step i of the tile touches
// from + i * step of every panel.
struct WeightPrefetch {
  Fetch fetch = Fetch::kNothing;
  const std::byte* from = nullptr;
  int64_t panel_stride = 0;
  int64_t step = 0;
};
// Blocks point at theirs: a copy, written in parts just before a tile and read as a whole, would
// wait for every store before it, which are the sums of the tile before (store forwarding).
inline constexpr WeightPrefetch kNoFetch;

template <Fetch kFetch, size_t... I>
HWY_INLINE void PrefetchPanels(const WeightPrefetch& next, int64_t i, std::index_sequence<I...>) {
  (__builtin_prefetch(next.from + static_cast<int64_t>(I) * next.panel_stride + i * next.step, 0,
                      kFetch == Fetch::kToFirstLevel ? 3 : 2),
   ...);
}

// Rows [row_begin, row_end) of some panels. `output` is where row_begin's first output goes.
struct PanelSpan {
  int64_t row_begin = 0;
  int64_t row_end = 0;
  int64_t panel = 0;
  int panels = 0;
  TileOutput output;
  bool is_stream = false;  // one of panels that are read one by one
};

// Bytes of weights that many row tiles reuse: an eighth of a second-level cache of 1 MiB, which has
// the next ones besides. A quarter of it, what a first-level cache has, costs 1 to 6 %: at the ends
// of a block sums go to memory and back.
inline constexpr int64_t kBlockBytes = 128 << 10;

// The first row tiles of a block share out the fetching of the next; more of them would touch
// every line more often than it helps.
inline constexpr int64_t kFetchingTiles = 4;

// How far ahead a single row tile fetches in each of its panels: whole units, as the last so many
// of a tile fetch as many of the next, and a part of one that neither fetched would be waited for.
template <class Kernel>
int64_t AheadUnits(const MatmulArgs& args, int panels) {
  const int64_t unit_bytes = Kernel::UnitBytes(args);
  const int64_t nearest = (Kernel::kAheadBytes / panels + unit_bytes / 2) / unit_bytes;
  return std::max<int64_t>(nearest, 1);
}

// Few rows read panels one by one where a CPU does it best so: they follow each other in memory,
// one long stream that is foreseen without hints, which hold up more than they help then. More than
// one row only where a panel leaves room for what all multiply with in a first-level cache of 32
// KiB; from the second it would come between the stream's lines.
inline constexpr int64_t kStreamSetBytes = 24 << 10;

template <class Kernel>
bool ReadsOneStream(const MatmulArgs& args) {
  if (!args.may_stream || args.rows > Kernel::kStreamRows) return false;
  // Codes of 8 bits, a scale and a sum for 32 of them.
  const int64_t inputs = args.weights->inputs();
  const int64_t row_bytes = inputs + inputs / kQuantGroup * 8;
  const auto panel_bytes = static_cast<int64_t>(args.weights->panel_bytes());
  return args.rows == 1 || panel_bytes + args.rows * row_bytes <= kStreamSetBytes;
}

// What row tile `tile` of `tiles` fetches while it computes on units [begin, begin + count).
template <class Kernel>
WeightPrefetch NextWeights(const MatmulArgs& args, const PanelSpan& span, int64_t begin,
                           int64_t count, int64_t tile, int64_t tiles) {
  if (span.is_stream) return {};
  const int64_t shares = std::min(tiles, kFetchingTiles);
  const int64_t panel_bytes = static_cast<int64_t>(args.weights->panel_bytes());
  const int64_t unit_bytes = Kernel::UnitBytes(args);
  if (tiles == 1) {
    // The last units of these panels fetch the first of the next; behind one alone lies the next.
    const bool is_last = span.panels > 1 && begin + count == Kernel::Units(args);
    const std::byte* const next =
        is_last ? args.weights->panel(span.panel + span.panels)
                : args.weights->panel(span.panel) +
                      (begin + AheadUnits<Kernel>(args, span.panels)) * unit_bytes;
    return {args.fetch_into == CacheLevel::kFirst ? Fetch::kToFirstLevel : Fetch::kToSecondLevel,
            next, panel_bytes, Kernel::kStepBytes};
  }
  if (tile >= shares) return {};
  const std::byte* next = args.weights->panel(span.panel) + (begin + count) * unit_bytes;
  if (begin + count == Kernel::Units(args)) {
    if (span.panel + 2 * span.panels > args.weights->panels()) return {};
    next = args.weights->panel(span.panel + span.panels);
  }
  // Steps rounded up: the last line of a share must not be left to be waited for.
  return {Fetch::kToSecondLevel, next + count * unit_bytes * tile / shares, panel_bytes,
          (Kernel::kStepBytes + shares - 1) / shares};
}

// A Kernel has
//   kTileRows                       most rows of a tile
//   MaxPanels(rows, is_alone)       most panels of a tile of `rows` rows, the only row tile or one
//                                   of several: 1, 2 or 4
//   Units(args)                     inputs, counted in steps that cannot be cut
//   BlockUnits(args, panels)        units of a block of weights that many row tiles reuse
//   UnitBytes(args), kStepBytes     bytes in one panel of a unit, of a prefetch step in its loop
//   kAheadBytes                     how much of its panels a single row tile, which reads them from
//                                   end to end, has on the way
//   kStreamRows                     most rows that may read panels one by one (ReadsOneStream); 0
//                                   where panels are no stream, or it takes longer
//   Block(args, panel, panels, begin, count), then
//   block.Run(row, rows, prefetch, output)    one tile, which reads what the block holds where it
//                                             is: a copy would wait as one of WeightPrefetch would
template <class Kernel>
void RunPanels(const MatmulArgs& args, const PanelSpan& span) {
  const int64_t rows = span.row_end - span.row_begin;
  const int64_t tiles = (rows + Kernel::kTileRows - 1) / Kernel::kTileRows;
  const int64_t units = Kernel::Units(args);
  // A single row tile reads each panel from end to end; what it fetches changes near the end.
  const int64_t ahead = AheadUnits<Kernel>(args, span.panels);
  const int64_t block = tiles > 1          ? Kernel::BlockUnits(args, span.panels)
                        : span.panels == 1 ? units
                                           : std::max(units - ahead, ahead);
  int64_t begin = 0;
  do {
    const int64_t count = std::min(block, units - begin);
    typename Kernel::Block weights(args, span.panel, span.panels, begin, count);
    TileOutput output = span.output;
    output.resume = begin > 0;
    if (begin + count < units) output.bias = nullptr;
    for (int64_t tile = 0; tile < tiles; ++tile) {
      // Tiles of equal height: 7 rows are 4 and 3, not 6 and 1.
      const int64_t row = rows * tile / tiles;
      const int64_t tile_rows = rows * (tile + 1) / tiles - row;
      output.out = span.output.out + row * output.stride;
      weights.Run(span.row_begin + row, tile_rows,
                  NextWeights<Kernel>(args, span, begin, count, tile, tiles), output);
    }
    begin += count;
  } while (begin < units);
}

// The last panel of a matrix whose outputs are no multiple of 16, through a tile of its own.
template <class Kernel>
void RunPartialPanel(const MatmulArgs& args, int64_t panel) {
  const int64_t first = panel * kPanelOutputs;
  const int64_t valid = args.weights->outputs() - first;
  float bias[kPanelOutputs] = {};
  if (args.bias != nullptr) std::copy_n(args.bias + first, valid, bias);
  float tile[Kernel::kTileRows * kPanelOutputs];
  for (int64_t row = 0; row < args.rows; row += Kernel::kTileRows) {
    const int64_t row_end = std::min<int64_t>(row + Kernel::kTileRows, args.rows);
    RunPanels<Kernel>(
        args, {row, row_end, panel, 1, {tile, kPanelOutputs, args.bias ? bias : nullptr, false}});
    for (int64_t r = row; r < row_end; ++r) {
      std::copy_n(tile + (r - row) * kPanelOutputs, valid, args.out + r * args.out_stride + first);
    }
  }
}

template <class Kernel>
void RunMatmul(const MatmulArgs& args) noexcept {
  if (args.rows == 0) return;
  const int64_t full_end = std::min(args.panel_end, args.weights->outputs() / kPanelOutputs);
  const int64_t tiles = (args.rows + Kernel::kTileRows - 1) / Kernel::kTileRows;
  const bool is_stream = ReadsOneStream<Kernel>(args);
  const int most = is_stream ? 1 : Kernel::MaxPanels((args.rows + tiles - 1) / tiles, tiles == 1);
  int64_t panel = args.panel_begin;
  while (panel < full_end) {
    int panels = most;
    while (panels > full_end - panel) panels /= 2;
    const int64_t first = panel * kPanelOutputs;
    RunPanels<Kernel>(args, {0,
                             args.rows,
                             panel,
                             panels,
                             {args.out + first, args.out_stride,
                              args.bias != nullptr ? args.bias + first : nullptr, false},
                             is_stream});
    panel += panels;
  }
  if (panel < args.panel_end) RunPartialPanel<Kernel>(args, panel);
}

// Calls Tile::Run<rows, panels>(arguments...) for a tile shape known only at run time.
// REQUIRES: rows in [Tile::kLeastRows, Tile::kTileRows]
template <class Tile, int kPanels, class... Args>
HWY_INLINE void CallForRows(int64_t rows, const Args&... arguments) {
  static_assert(Tile::kTileRows <= 6);
  switch (rows) {
#define KVASIR_TILE_CASE(R)                                                                   \
  case R:                                                                                     \
    if constexpr (R >= Tile::kLeastRows && R <= Tile::kTileRows) {                            \
      return Tile::template Run<R, HWY_MIN(kPanels, Tile::MaxPanels(R, true))>(arguments...); \
    }                                                                                         \
    return;
    KVASIR_TILE_CASE(1)
    KVASIR_TILE_CASE(2)
    KVASIR_TILE_CASE(3)
    KVASIR_TILE_CASE(4)
    KVASIR_TILE_CASE(5)
    KVASIR_TILE_CASE(6)
#undef KVASIR_TILE_CASE
    default:
      return;
  }
}

template <class Tile, class... Args>
HWY_INLINE void CallTile(int64_t rows, int panels, const Args&... arguments) {
  if (panels == 4) return CallForRows<Tile, 4>(rows, arguments...);
  if (panels == 2) return CallForRows<Tile, 2>(rows, arguments...);
  return CallForRows<Tile, 1>(rows, arguments...);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_MATMUL_TILES_INL_H_
