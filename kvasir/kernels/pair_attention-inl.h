// Attention tiles over rows of bf16 in sums of pairs (kernels.h, PairKvKernels), as the register
// tiles of matmuls: a block's keys or values are laid out as panels first, once for all rows.
// Deliberately without a Math: pair_attention.cc and bf16_dot_attention.cc bring theirs.
#if defined(KVASIR_KERNELS_PAIR_ATTENTION_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_PAIR_ATTENTION_INL_H_
#undef KVASIR_KERNELS_PAIR_ATTENTION_INL_H_
#else
#define KVASIR_KERNELS_PAIR_ATTENTION_INL_H_
#endif

#include <algorithm>
#include <cmath>

#include "hwy/highway.h"
#include "kvasir/kernels/bf16_pairs-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"

KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

using HalfTag = hn::Rebind<uint16_t, FloatTag>;
using HalvesTag = hn::Repartition<int16_t, WordTag>;  // two in each word

// Dims of a block that are laid out together: 16 KiB.
inline constexpr int64_t kPackedDims = 128;
inline constexpr int64_t kBlockPanels = kBlockTokens / kPanelOutputs;

// Panels of 16 outputs: step i of panel p at words + (p * steps + i) * 16.
struct PairPanels {
  alignas(64) uint32_t words[kPackedDims / 2 * kBlockTokens];
};

// kLanes words of an even and an odd half each, as bf16_pairs::RoundWeights has them. `largest`
// keeps the largest halves without their signs.
HWY_INLINE hn::Vec<WordTag> MakePairs(hn::Vec<HalfTag> even, hn::Vec<HalfTag> odd,
                                      hn::Vec<HalvesTag>& largest) {
  const WordTag d;
  const HalvesTag halves;
  const auto pairs =
      hn::BitCast(halves, hn::Or(hn::PromoteTo(d, even), hn::ShiftLeft<16>(hn::PromoteTo(d, odd))));
  const auto magnitudes = hn::And(pairs, hn::Set(halves, 0x7FFF));
  largest = hn::Max(largest, magnitudes);
  const auto below_least =
      hn::Set(halves, static_cast<int16_t>(FloatToBf16(bf16_pairs::kLeastWeight) - 1));
  return hn::BitCast(d, hn::IfThenElseZero(hn::Gt(magnitudes, below_least), pairs));
}

HWY_INLINE bool IsFinite(hn::Vec<HalvesTag> largest) {
  constexpr int16_t kInfinityBits = 0x7F80;
  return hn::AllTrue(HalvesTag(), hn::Lt(largest, hn::Set(HalvesTag(), kInfinityBits)));
}

// Up to kLanes halves.
HWY_INLINE hn::Vec<HalfTag> LoadHalves(const uint16_t* from, int64_t count) {
  if (count >= kLanes) return hn::LoadU(HalfTag(), from);
  alignas(64) uint16_t last[kLanes] = {};
  std::copy_n(from, count, last);
  return hn::LoadU(HalfTag(), last);
}

// Dims [0, dims) of keys, an even number: a step is two dims of every token.
HWY_INLINE void PackKeys(const uint16_t* keys, int64_t dims, PlanePrefetch& next,
                         PairPanels& panels) {
  const HalfTag half;
  const int64_t steps = dims / 2;
  auto largest = hn::Zero(HalvesTag());
  for (int64_t step = 0; step < steps; ++step) {
    next.Step();
    const uint16_t* const even = keys + 2 * step * kBlockTokens;
    for (int64_t token = 0; token < kBlockTokens; token += kLanes) {
      uint32_t* const words = panels.words +
                              (token / kPanelOutputs * steps + step) * kPanelOutputs +
                              token % kPanelOutputs;
      hn::Store(MakePairs(hn::LoadU(half, even + token),
                          hn::LoadU(half, even + kBlockTokens + token), largest),
                WordTag(), words);
    }
  }
}

// Dims [0, dims) of values, `stride` from a token to the next: a step is two tokens of every dim.
// Tokens outside [begin, end) and dims behind the last count as 0. Whether all others are finite.
HWY_INLINE bool PackValues(const uint16_t* values, int64_t stride, int64_t dims, int64_t begin,
                           int64_t end, PlanePrefetch& next, PairPanels& panels) {
  const HalfTag half;
  constexpr int64_t kSteps = kBlockTokens / 2;
  auto largest = hn::Zero(HalvesTag());
  for (int64_t step = 0; step < kSteps; ++step) {
    next.Step();
    const auto load = [&](int64_t token, int64_t d) HWY_ATTR {
      if (token < begin || token >= end) return hn::Zero(half);
      return LoadHalves(values + token * stride + d, dims - d);
    };
    for (int64_t panel = 0; panel * kPanelOutputs < dims; ++panel) {
      uint32_t* const words = panels.words + (panel * kSteps + step) * kPanelOutputs;
      for (int64_t lane = 0; lane < kPanelOutputs; lane += kLanes) {
        const int64_t d = panel * kPanelOutputs + lane;
        if (d >= dims) {
          hn::Store(hn::Zero(WordTag()), WordTag(), words + lane);
        } else {
          hn::Store(MakePairs(load(2 * step, d), load(2 * step + 1, d), largest), WordTag(),
                    words + lane);
        }
      }
    }
  }
  return IsFinite(largest);
}

// out[r][16 * panel ...] of some rows and panels [0, panels), a Math's tile at a time.
template <class Math>
HWY_INLINE void MultiplyPanels(FloatBlock<Math> block, int64_t rows, int64_t panels,
                               TileOutput output) {
  using Tile = FloatTile<Math>;
  block.panel_stride = block.steps * kPanelOutputs * Math::kStepInputs;
  const int most = Tile::MaxPanels(rows);
  for (int64_t panel = 0; panel < panels;) {
    int count = most;
    while (count > panels - panel) count /= 2;
    CallTile<Tile>(rows, count, block, output);
    block.weights += count * block.panel_stride;
    output.out += count * kPanelOutputs;
    panel += count;
  }
}

// Tiles of equal height: 7 rows are 4 and 3. Calls body(row, rows).
template <class Math, class Body>
HWY_INLINE void ForEachRowTile(int64_t rows, const Body& body) {
  constexpr int64_t kMost = FloatTile<Math>::kTileRows;
  const int64_t tiles = (rows + kMost - 1) / kMost;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t row = rows * tile / tiles;
    body(row, rows * (tile + 1) / tiles - row);
  }
}

// A few rows times a plane as it lies, whose row i has `columns` halves: for what is read but once.
template <class Math>
struct PlaneRows {
  const typename Math::Input* x = nullptr;  // [rows, ...], input i of row r at x[r * x_stride + i]
  int64_t x_stride = 0;
  const uint16_t* plane = nullptr;
  int64_t stride = 0;  // from a row of the plane to the next
  int64_t columns = 0;
  int64_t begin = 0;  // rows of the plane; all others count as 0
  int64_t end = 0;
  float* out = nullptr;  // [rows, columns rounded up to whole panels]
  int64_t out_stride = 0;
};

// Rows (i, i + 1) of the plane, or only one of them.
enum class PlanePair { kBoth, kEven, kOdd };

// kWhole: no vector reaches behind the last column.
template <class Math, int R, int C, bool kWhole, PlanePair kPair>
HWY_INLINE void MultiplyPlanePair(const PlaneRows<Math>& rows, int64_t column, int64_t i,
                                  FloatVec (&acc)[R][C], hn::Vec<HalvesTag>& largest) {
  const uint16_t* const from = rows.plane + i * rows.stride + column;
  for (int c = 0; c < C; ++c) {
    const int64_t left = kWhole ? kLanes : rows.columns - column - c * kLanes;
    auto even = hn::Zero(HalfTag());
    auto odd = hn::Zero(HalfTag());
    if constexpr (kPair != PlanePair::kOdd) even = LoadHalves(from + c * kLanes, left);
    if constexpr (kPair != PlanePair::kEven) {
      odd = LoadHalves(from + rows.stride + c * kLanes, left);
    }
    const auto pairs = MakePairs(even, odd, largest);
    const auto first = Math::template FromPairs<0>(pairs);
    for (int r = 0; r < R; ++r) {
      acc[r][c] = Math::MulAdd(Math::template Broadcast<0>(rows.x + r * rows.x_stride + i), first,
                               acc[r][c]);
    }
    if constexpr (Math::kParts == 2) {
      const auto second = Math::template FromPairs<1>(pairs);
      for (int r = 0; r < R; ++r) {
        acc[r][c] = Math::MulAdd(Math::template Broadcast<1>(rows.x + r * rows.x_stride + i),
                                 second, acc[r][c]);
      }
    }
  }
}

template <class Math, int R, int C, bool kWhole>
HWY_INLINE void MultiplyPlaneTile(const PlaneRows<Math>& rows, int64_t column, PlanePrefetch& next,
                                  hn::Vec<HalvesTag>& largest) {
  FloatVec acc[R][C];
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) acc[r][c] = hn::Zero(FloatTag());
  }
  int64_t i = rows.begin;
  if (i % 2 != 0) {
    --i;
    MultiplyPlanePair<Math, R, C, kWhole, PlanePair::kOdd>(rows, column, i, acc, largest);
    i += 2;
  }
  for (; i + 2 <= rows.end; i += 2) {
    next.Step();
    MultiplyPlanePair<Math, R, C, kWhole, PlanePair::kBoth>(rows, column, i, acc, largest);
  }
  if (i < rows.end) {
    MultiplyPlanePair<Math, R, C, kWhole, PlanePair::kEven>(rows, column, i, acc, largest);
  }
  for (int r = 0; r < R; ++r) {
    for (int c = 0; c < C; ++c) {
      hn::StoreU(acc[r][c], FloatTag(), rows.out + r * rows.out_stride + column + c * kLanes);
    }
  }
}

// Columns that one pass over a plane covers.
template <class Math>
constexpr int64_t PassColumns(int64_t rows) {
  return FloatTile<Math>::MaxPanels(rows) * kPanelOutputs;
}
// How often a few rows step through a plane of so many rows and columns.
template <class Math>
int64_t PlaneSteps(int64_t rows, int64_t plane_rows, int64_t columns) {
  const int64_t pass = PassColumns<Math>(rows);
  return plane_rows / 2 * ((columns + pass - 1) / pass);
}

template <class Math, int R>
HWY_NOINLINE hn::Vec<HalvesTag> MultiplyPlaneRows(const PlaneRows<Math>& rows,
                                                  PlanePrefetch& next) {
  constexpr int64_t kColumns = PassColumns<Math>(R);
  auto largest = hn::Zero(HalvesTag());
  int64_t column = 0;
  for (; column + kColumns <= rows.columns; column += kColumns) {
    MultiplyPlaneTile<Math, R, kColumns / kLanes, true>(rows, column, next, largest);
  }
  for (; column < rows.columns; column += kLanes) {
    MultiplyPlaneTile<Math, R, 1, false>(rows, column, next, largest);
  }
  return largest;
}

// 1 <= count <= R. The largest halves of the plane that counted, as MakePairs has them.
template <class Math, int R = FloatTile<Math>::kTileRows>
HWY_INLINE hn::Vec<HalvesTag> MultiplyPlane(const PlaneRows<Math>& rows, int64_t count,
                                            PlanePrefetch& next) {
  if constexpr (R > 1) {
    if (count < R) return MultiplyPlane<Math, R - 1>(rows, count, next);
  }
  return MultiplyPlaneRows<Math, R>(rows, next);
}

template <class Math>
void ScorePairs(const ScoreTileArgs& args) noexcept {
  const auto* const keys = reinterpret_cast<const uint16_t*>(args.keys);
  const auto* const queries = reinterpret_cast<const typename Math::Input*>(args.rounded);
  const int64_t stride =
      KernelTable::RoundedBytes(args.key_dim) / int64_t{sizeof(typename Math::Input)};
  const int64_t plane_bytes = args.key_dim * kBlockTokens * int64_t{sizeof(uint16_t)};
  const int64_t next_bytes = args.next_bytes > 0 ? args.next_bytes : plane_bytes;
  if (args.rows <= FloatTile<Math>::kTileRows) {
    PlanePrefetch next(args.next, next_bytes,
                       PlaneSteps<Math>(args.rows, args.key_dim, kBlockTokens));
    (void)MultiplyPlane<Math>({.x = queries,
                               .x_stride = stride,
                               .plane = keys,
                               .stride = kBlockTokens,
                               .columns = kBlockTokens,
                               .end = args.key_dim,
                               .out = args.scores,
                               .out_stride = kBlockTokens},
                              args.rows, next);
    return;
  }
  PlanePrefetch next(args.next, next_bytes, args.key_dim / 2);
  PairPanels panels;
  for (int64_t begin = 0; begin < args.key_dim; begin += kPackedDims) {
    const int64_t dims = std::min(kPackedDims, args.key_dim - begin);
    PackKeys(keys + begin * kBlockTokens, dims, next, panels);
    ForEachRowTile<Math>(args.rows, [&](int64_t row, int64_t rows) HWY_ATTR {
      FloatBlock<Math> block;
      block.x = queries + row * stride + begin;
      block.x_stride = stride;
      block.weights = reinterpret_cast<const uint16_t*>(panels.words);
      block.steps = dims / 2;
      MultiplyPanels<Math>(block, rows, kBlockPanels,
                           {args.scores + row * kBlockTokens, kBlockTokens, nullptr, begin > 0});
    });
  }
}

// The weights of a tile's rows as inputs, and their sums of values for kPackedDims dims.
template <class Math>
struct ValueTile {
  static constexpr int64_t kRows = FloatTile<Math>::kTileRows;
  static constexpr int64_t kRowBytes = KernelTable::RoundedBytes(kBlockTokens);
  static constexpr int64_t kStride = kRowBytes / int64_t{sizeof(typename Math::Input)};

  alignas(64) std::byte weights[kRows * kRowBytes];
  alignas(64) float sums[kRows * kPackedDims];

  const typename Math::Input* inputs() const {
    return reinterpret_cast<const typename Math::Input*>(weights);
  }
};

template <class Math>
HWY_INLINE void RoundWeights(const AccumulateTileArgs& args, int64_t row, int64_t rows,
                             ValueTile<Math>& tile) {
  Math::RoundRows(args.weights + row * kBlockTokens, kBlockTokens, rows, kBlockTokens,
                  tile.weights);
}

// acc = acc * rescale + sum, of rows [row, row + rows) and dims [first, first + dims).
template <class Math>
HWY_INLINE void AddSums(const AccumulateTileArgs& args, const ValueTile<Math>& tile, int64_t row,
                        int64_t rows, int64_t first, int64_t dims) {
  const FloatTag d;
  for (int64_t r = 0; r < rows; ++r) {
    const auto rescale = hn::Set(d, args.rescale[row + r]);
    float* const out = args.accumulator + (row + r) * args.accumulator_stride + first;
    const float* const sum = tile.sums + r * kPackedDims;
    int64_t i = 0;
    for (; i + kLanes <= dims; i += kLanes) {
      hn::StoreU(hn::MulAdd(hn::LoadU(d, out + i), rescale, hn::Load(d, sum + i)), d, out + i);
    }
    for (; i < dims; ++i) out[i] = std::fma(out[i], args.rescale[row + r], sum[i]);
  }
}

// Tokens that some of the rows [row, row + rows) see, which all see something.
struct SeenTokens {
  int64_t begin = kBlockTokens;
  int64_t end = 0;
};
inline SeenTokens SeenBy(const AccumulateTileArgs& args, int64_t row, int64_t rows) {
  SeenTokens seen;
  for (int64_t r = row; r < row + rows; ++r) {
    seen.begin = std::min<int64_t>(seen.begin, args.begin[r]);
    seen.end = std::max<int64_t>(seen.end, args.end[r]);
  }
  return seen;
}

// One tile of rows [row, row + rows) and dims [first, first + dims), from the plane as it lies.
template <class Math>
void AddFewRows(const AccumulateTileArgs& args, int64_t row, int64_t rows, int64_t first,
                int64_t dims, PlanePrefetch& next) {
  const SeenTokens seen = SeenBy(args, row, rows);
  ValueTile<Math> tile;
  RoundWeights(args, row, rows, tile);
  const auto largest =
      MultiplyPlane<Math>({.x = tile.inputs(),
                           .x_stride = ValueTile<Math>::kStride,
                           .plane = reinterpret_cast<const uint16_t*>(args.values) + first,
                           .stride = args.value_dim,
                           .columns = dims,
                           .begin = seen.begin,
                           .end = seen.end,
                           .out = tile.sums,
                           .out_stride = kPackedDims},
                          rows, next);
  if (rows > 1 && !IsFinite(largest)) {
    // A token that one row sees and another does not may not reach the other one: 0 times infinity
    // is not 0.
    for (int64_t r = row; r < row + rows; ++r) AddFewRows<Math>(args, r, 1, first, dims, next);
    return;
  }
  AddSums(args, tile, row, rows, first, dims);
}

// The same of any number of rows, from panels of the plane.
template <class Math>
HWY_INLINE void AddManyRows(const AccumulateTileArgs& args, int64_t row, int64_t rows,
                            int64_t first, int64_t dims, PlanePrefetch& next) {
  const SeenTokens seen = SeenBy(args, row, rows);
  PairPanels panels;
  const bool is_finite = PackValues(reinterpret_cast<const uint16_t*>(args.values) + first,
                                    args.value_dim, dims, seen.begin, seen.end, next, panels);
  if (!is_finite) {
    for (int64_t r = row; r < row + rows; ++r) AddFewRows<Math>(args, r, 1, first, dims, next);
    return;
  }
  ForEachRowTile<Math>(rows, [&](int64_t r, int64_t count) HWY_ATTR {
    ValueTile<Math> tile;
    RoundWeights(args, row + r, count, tile);
    FloatBlock<Math> block;
    block.x = tile.inputs();
    block.x_stride = ValueTile<Math>::kStride;
    block.weights = reinterpret_cast<const uint16_t*>(panels.words);
    block.steps = kBlockTokens / 2;
    MultiplyPanels<Math>(block, count, (dims + kPanelOutputs - 1) / kPanelOutputs,
                         {tile.sums, kPackedDims, nullptr, false});
    AddSums(args, tile, row + r, count, first, dims);
  });
}

template <class Math>
void AccumulatePairs(const AccumulateTileArgs& args) noexcept {
  const int64_t plane_bytes = args.value_dim * kBlockTokens * int64_t{sizeof(uint16_t)};
  const bool are_few = args.rows <= FloatTile<Math>::kTileRows;
  const int64_t steps = are_few
                            ? PlaneSteps<Math>(args.rows, kBlockTokens, args.value_dim)
                            : (args.value_dim + kPackedDims - 1) / kPackedDims * (kBlockTokens / 2);
  PlanePrefetch next(args.next, args.next_bytes > 0 ? args.next_bytes : plane_bytes, steps);
  for (int64_t row = 0; row < args.rows;) {
    int64_t rows = 0;  // that see something, one behind the other
    while (row + rows < args.rows && args.begin[row + rows] < args.end[row + rows]) ++rows;
    for (int64_t first = 0; first < args.value_dim && rows > 0; first += kPackedDims) {
      const int64_t dims = std::min(kPackedDims, args.value_dim - first);
      (rows <= FloatTile<Math>::kTileRows ? AddFewRows<Math>
                                          : AddManyRows<Math>)(args, row, rows, first, dims, next);
    }
    row += std::max<int64_t>(rows, 1);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PAIR_ATTENTION_INL_H_
