// Attention tiles over rows of bf16 in sums of pairs (kernels.h, PairKvKernels).
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
#include "kvasir/kernels/filled_rows.h"
#include "kvasir/kernels/pair_products-inl.h"

KVASIR_BEFORE_TILE();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

template <class Math>
void ScorePairs(const ScoreTileArgs& args) noexcept {
  const auto* const keys = reinterpret_cast<const uint16_t*>(args.keys);
  const auto* const queries = reinterpret_cast<const typename Math::Input*>(args.rounded);
  const int64_t stride =
      KernelTable::RoundedBytes(args.key_dim) / int64_t{sizeof(typename Math::Input)};
  if (args.rows <= FloatTile<Math>::kTileRows) {
    PlanePrefetch next(args.next, PlaneSteps<Math>(args.rows, args.key_dim, args.tokens));
    (void)MultiplyPlane<Math>({.x = queries,
                               .x_stride = stride,
                               .plane = keys,
                               .stride = kBlockTokens,
                               .columns = args.tokens,
                               .end = args.key_dim,
                               .out = args.scores,
                               .out_stride = kBlockTokens},
                              args.rows, next);
    return;
  }
  PlanePrefetch next(args.next, args.key_dim / 2);
  PairPanels panels;
  for (int64_t begin = 0; begin < args.key_dim; begin += kPackedDims) {
    const int64_t dims = std::min(kPackedDims, args.key_dim - begin);
    PackKeys(keys + begin * kBlockTokens, args.tokens, dims, next, panels);
    for (int64_t row = 0; row < args.rows;) {
      const int64_t rows = NextTileRows<Math>(args.rows - row);
      FloatBlock<Math> block;
      block.x = queries + row * stride + begin;
      block.x_stride = stride;
      block.weights = reinterpret_cast<const uint16_t*>(panels.words);
      block.steps = dims / 2;
      MultiplyPanels<Math>(block, rows, args.tokens / kPanelOutputs,
                           {args.scores + row * kBlockTokens, kBlockTokens, nullptr, begin > 0});
      row += rows;
    }
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
  const bool is_finite =
      PackValues({.values = reinterpret_cast<const uint16_t*>(args.values) + first,
                  .stride = args.value_dim,
                  .dims = dims,
                  .begin = seen.begin,
                  .end = seen.end},
                 next, panels);
  if (!is_finite) {
    for (int64_t r = row; r < row + rows; ++r) AddFewRows<Math>(args, r, 1, first, dims, next);
    return;
  }
  for (int64_t r = row; r < row + rows;) {
    const int64_t count = NextTileRows<Math>(row + rows - r);
    ValueTile<Math> tile;
    RoundWeights(args, r, count, tile);
    FloatBlock<Math> block;
    block.x = tile.inputs();
    block.x_stride = ValueTile<Math>::kStride;
    block.weights = reinterpret_cast<const uint16_t*>(panels.words);
    block.steps = kBlockTokens / 2;
    MultiplyPanels<Math>(block, count, (dims + kPanelOutputs - 1) / kPanelOutputs,
                         {tile.sums, kPackedDims, nullptr, false});
    AddSums(args, tile, r, count, first, dims);
    r += count;
  }
}

template <class Math>
void AccumulatePairs(const AccumulateTileArgs& args) noexcept {
  const bool are_few = args.rows <= FloatTile<Math>::kTileRows;
  const SeenTokens seen = SeenBy(args, 0, args.rows);
  const int64_t steps =
      are_few
          ? PlaneSteps<Math>(args.rows, std::max<int64_t>(seen.end - seen.begin, 2), args.value_dim)
          : (args.value_dim + kPackedDims - 1) / kPackedDims * (kBlockTokens / 2);
  PlanePrefetch next(args.next, steps);
  FilledRows filled(args);
  while (const int64_t rows = filled.Left()) {
    for (int64_t first = 0; first < args.value_dim; first += kPackedDims) {
      const int64_t dims = std::min(kPackedDims, args.value_dim - first);
      (rows <= FloatTile<Math>::kTileRows
           ? AddFewRows<Math>
           : AddManyRows<Math>)(args, filled.row(), rows, first, dims, next);
    }
    filled.Skip(rows);
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_PAIR_ATTENTION_INL_H_
