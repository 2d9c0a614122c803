// Products of rows of inputs with a plane of bf16, two of whose rows make pairs (bf16_pairs.h):
// with many rows from panels that the plane is laid out as once, with a few from the plane as it
// lies. Deliberately without attention: pair_attention-inl.h says what planes and rows are.
#if defined(KVASIR_KERNELS_PAIR_PRODUCTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_PAIR_PRODUCTS_INL_H_
#undef KVASIR_KERNELS_PAIR_PRODUCTS_INL_H_
#else
#define KVASIR_KERNELS_PAIR_PRODUCTS_INL_H_
#endif

#include <algorithm>

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

// Dims [0, dims) of the first `tokens` keys, both even numbers: a step is two dims of every token.
HWY_INLINE void PackKeys(const uint16_t* keys, int64_t tokens, int64_t dims, PlanePrefetch& next,
                         PairPanels& panels) {
  const HalfTag half;
  const int64_t steps = dims / 2;
  auto largest = hn::Zero(HalvesTag());
  for (int64_t step = 0; step < steps; ++step) {
    next.Step();
    const uint16_t* const even = keys + 2 * step * kBlockTokens;
    for (int64_t token = 0; token < tokens; token += kLanes) {
      uint32_t* const words = panels.words +
                              (token / kPanelOutputs * steps + step) * kPanelOutputs +
                              token % kPanelOutputs;
      hn::Store(MakePairs(hn::LoadU(half, even + token),
                          hn::LoadU(half, even + kBlockTokens + token), largest),
                WordTag(), words);
    }
  }
}

// Dims [0, dims) of a block's values. Not a lambda: clang compiles those without the instructions
// of KVASIR_BEFORE_TILE.
struct SeenValues {
  const uint16_t* values = nullptr;
  int64_t stride = 0;  // from a token to the next
  int64_t dims = 0;
  int64_t begin = 0;  // tokens; all others count as 0
  int64_t end = 0;

  // Up to kLanes of them from dim d on.
  HWY_INLINE hn::Vec<HalfTag> Load(int64_t token, int64_t d) const {
    if (token < begin || token >= end) return hn::Zero(HalfTag());
    return LoadHalves(values + token * stride + d, dims - d);
  }
};

// A step is two tokens of every dim. Dims behind the last are 0. Whether all others are finite.
HWY_INLINE bool PackValues(const SeenValues& seen, PlanePrefetch& next, PairPanels& panels) {
  constexpr int64_t kSteps = kBlockTokens / 2;
  auto largest = hn::Zero(HalvesTag());
  for (int64_t step = 0; step < kSteps; ++step) {
    next.Step();
    for (int64_t panel = 0; panel * kPanelOutputs < seen.dims; ++panel) {
      uint32_t* const words = panels.words + (panel * kSteps + step) * kPanelOutputs;
      for (int64_t lane = 0; lane < kPanelOutputs; lane += kLanes) {
        const int64_t d = panel * kPanelOutputs + lane;
        if (d >= seen.dims) {
          hn::Store(hn::Zero(WordTag()), WordTag(), words + lane);
        } else {
          hn::Store(MakePairs(seen.Load(2 * step, d), seen.Load(2 * step + 1, d), largest),
                    WordTag(), words + lane);
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

// How many of so many rows the next tile takes, so that tiles are of equal height: 7 rows are 4 and
// 3. REQUIRES: rows >= 1
template <class Math>
constexpr int64_t NextTileRows(int64_t rows) {
  constexpr int64_t kMost = FloatTile<Math>::kTileRows;
  const int64_t tiles = (rows + kMost - 1) / kMost;
  return (rows + tiles - 1) / tiles;
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

// The columns from `column` on, C vectors at a time, the last ones fewer.
template <class Math, int R, int C>
HWY_INLINE void MultiplyPlaneColumns(const PlaneRows<Math>& rows, int64_t column,
                                     PlanePrefetch& next, hn::Vec<HalvesTag>& largest) {
  for (; column + C * kLanes <= rows.columns; column += C * kLanes) {
    MultiplyPlaneTile<Math, R, C, true>(rows, column, next, largest);
  }
  if constexpr (C > 1) {
    MultiplyPlaneColumns<Math, R, C / 2>(rows, column, next, largest);
  } else if (column < rows.columns) {
    MultiplyPlaneTile<Math, R, 1, false>(rows, column, next, largest);
  }
}

template <class Math, int R>
HWY_NOINLINE hn::Vec<HalvesTag> MultiplyPlaneRows(const PlaneRows<Math>& rows,
                                                  PlanePrefetch& next) {
  auto largest = hn::Zero(HalvesTag());
  MultiplyPlaneColumns<Math, R, PassColumns<Math>(R) / kLanes>(rows, 0, next, largest);
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

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PAIR_PRODUCTS_INL_H_
