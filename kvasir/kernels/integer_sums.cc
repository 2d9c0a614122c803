// Value sums of affine values of 8 and 4 bits in integers: products of weights that were rounded
// per block, group and row with the codes, as exact sums. Deliberately only what kernels.h states
// for IntegerKvKernels; integer_weights.cc rounds, integer_scores.cc has the keys.
#include "kvasir/kernels/filled_rows.h"
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/integer_sums.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"
#include "kvasir/kernels/rescale_rows-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Groups whose signs are made together, for all rows.
constexpr int64_t kBatchGroups = 4;
// Slots that are multiplied between two steps of fetching ahead: 8 where a tile is four vectors
// wide, so that narrower ones take as many steps.
template <class Dot, size_t kRows>
constexpr int64_t kFetchSlots = 32 / kVectors<Dot, kRows>;
// Of all dims, by tiles of four vectors.
constexpr int64_t FetchSteps(int64_t dim) {
  constexpr int64_t kWidth = 4 * kLanes;
  return (dim + kWidth - 1) / kWidth * (kBlockTokens / 8);
}

// The weights of a tile's rows for one group, and the accumulators.
template <class Dot>
struct WeightTile {
  const std::byte* codes;
  const float* steps;
  const float* shifts;
  const int32_t* starts;
  float* accumulators[kSumTile];  // from `dim` on

  HWY_INLINE WeightTile(const AccumulateTileArgs& args, int64_t row, int64_t count, int64_t g,
                        int64_t dim)
      : codes(args.integers.codes + (g * args.rows + row) * Dot::kWeightBytes),
        steps(args.integers.steps + g * args.rows + row),
        shifts(args.integers.shifts + g * args.rows + row),
        starts(args.integers.starts + g * args.rows + row) {
    for (int64_t i = 0; i < count; ++i) accumulators[i] = args.AccumulatorOf(row + i) + dim;
  }
  // To the next group; rows: of all tiles.
  HWY_INLINE void NextGroup(int64_t rows) {
    codes += rows * Dot::kWeightBytes;
    steps += rows;
    shifts += rows;
    starts += rows;
  }
};

// The part kPart of the codes of a word, whose first multiplier of the first row `first` is.
template <class Dot, size_t kPart>
struct ValueOperands {
  const std::byte* first;
  const uint32_t* word;
  VI flip;

  template <bool kTight>
  HWY_INLINE VI Code(size_t v) const {
    // The two units of the halves of a block follow each other.
    constexpr size_t kUnitWords = 2 * Dot::kPlaneBits * kUnitLanes;
    const size_t lane = v * kLanes;
    const uint32_t* const codes = word + lane / kUnitLanes * kUnitWords + lane % kUnitLanes;
    return Dot::Level(Dot::template Codes<kPart, kTight>(codes), flip);
  }
  HWY_INLINE VI Multiplier(size_t r, size_t s) const {
    return Dot::Multiplier(first + static_cast<int64_t>(r) * Dot::kWeightBytes, kBlockTokens, kPart,
                           s);
  }
  static HWY_INLINE VI Add(VI sum, VI levels, VI multipliers) {
    return Dot::AddValue(sum, levels, multipliers);
  }
};

// Adds the products with the slots from k on that a word has, from its part kPart on.
template <class Dot, size_t kRows, size_t kCount, size_t kPart = 0>
HWY_INLINE void AddWord(const std::byte* first, const typename Dot::Signs& signs, int64_t k,
                        const uint32_t* word, TileSums<Dot, kRows, kCount>& sums) {
  AddProducts<Dot>(ValueOperands<Dot, kPart>{first, word, Dot::Flip(signs, k, kPart)}, sums);
  if constexpr (kPart + 1 < Dot::kParts) {
    AddWord<Dot, kRows, kCount, kPart + 1>(first, signs, k, word, sums);
  }
}

// Adds sums to the accumulators, all of which are read before one is written: for all that the
// compiler knows, they could be the steps.
template <class Dot, size_t kRows, size_t kCount>
HWY_INLINE void StoreSums(const WeightTile<Dot>& tile, int64_t dim,
                          const TileSums<Dot, kRows, kCount>& sums) {
  const DF d;
  VF out[kRows][kCount];
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
    const VF step = hn::Set(d, tile.steps[r]);
    const VF shift = hn::Set(d, tile.shifts[r]);
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) {
      const VF sum = hn::ConvertTo(d, Dot::Total(sums[r][v][0], sums[r][v][Dot::kSums - 1]));
      const VF before = hn::LoadU(d, tile.accumulators[r] + dim + v * kLanes);
      out[r][v] = hn::Add(hn::MulAdd(sum, step, before), shift);
    }
  }
#pragma GCC unroll 8
  for (size_t r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (size_t v = 0; v < kCount; ++v) {
      hn::StoreU(out[r][v], d, tile.accumulators[r] + dim + v * kLanes);
    }
  }
}

// Adds the products with the slots from k on that are multiplied between two steps of fetching
// ahead, and goes on to the next.
template <class Dot, size_t kRows, size_t kCount, bool kFetch>
HWY_INLINE void AddSlots(const std::byte*& multipliers, const typename Dot::Signs& signs, int64_t k,
                         const uint32_t*& word, PlanePrefetch* prefetch,
                         TileSums<Dot, kRows, kCount>& sums) {
  if constexpr (kFetch) {
    if (prefetch != nullptr) prefetch->Step();
  }
  for (int64_t w = k; w < k + kFetchSlots<Dot, kRows>; w += Dot::kWordCodes) {
    AddWord<Dot, kRows, kCount>(multipliers, signs, w, word, sums);
    multipliers += Dot::kWordCodes * Dot::kMultiplierBytes;
    word += kUnitLanes;
  }
}

// Value sums of kCount vectors of dims, the first of which is `dim` of the tile's accumulators and
// whose codes `word` begins. kFetch: with steps of `prefetch`, if there is one.
template <class Dot, size_t kRows, size_t kCount, bool kFetch>
HWY_INLINE void SumDims(const WeightTile<Dot>& tile, int64_t dim, const uint32_t* word,
                        const typename Dot::Signs& signs, PlanePrefetch* prefetch) {
  constexpr int64_t kSlots = kFetchSlots<Dot, kRows>;
  int32_t starts[kRows];
  for (size_t r = 0; r < kRows; ++r) starts[r] = Dot::kValuesStartAtZero ? 0 : tile.starts[r];
  TileSums<Dot, kRows, kCount> sums;
  StartSums<Dot>(starts, sums);
  const std::byte* multipliers = tile.codes;
  if constexpr (constexpr int64_t kSpan = Dot::kValueSpan; kSpan > 0) {
    constexpr int32_t kNothing[kRows] = {};
    for (int64_t first = 0; first < kBlockTokens; first += kSpan) {
      TileSums<Dot, kRows, kCount> shorts;
      StartSums<Dot>(kNothing, shorts);
#pragma GCC unroll 8
      for (int64_t k = first; k < first + kSpan; k += kSlots) {
        AddSlots<Dot, kRows, kCount, kFetch>(multipliers, signs, k, word, prefetch, shorts);
      }
      JoinSums<Dot>(shorts, sums);
    }
  } else {
    for (int64_t k = 0; k < kBlockTokens; k += kSlots) {
      AddSlots<Dot, kRows, kCount, kFetch>(multipliers, signs, k, word, prefetch, sums);
    }
  }
  StoreSums<Dot, kRows, kCount>(tile, dim, sums);
}

// Calls body.Sum<vectors>(dim) for dims of group g that kCount vectors hold, or half as many at the
// group's end.
template <size_t kCount, class Body>
HWY_INLINE void ForDims(const PackedPlane& plane, int64_t g, const Body& body) {
  constexpr int64_t kStep = kCount * kLanes;
  int64_t dim = g * plane.group;
  const int64_t end = dim + plane.group;
  for (; dim + kStep <= end; dim += kStep) body.template Sum<kCount>(dim);
  // Groups are multiples of 32 dims.
  if constexpr (kStep > 32) {
    for (; dim < end; dim += kStep / 2) body.template Sum<kCount / 2>(dim);
  }
}

// The codes of a unit's dims. REQUIRES: dim is a multiple of kUnitLanes.
template <class Dot>
HWY_INLINE const uint32_t* WordsOf(const PackedPlane& plane, int64_t dim) {
  constexpr int64_t kUnitWords = 2 * static_cast<int64_t>(Dot::kBits) * kUnitLanes;
  return plane.codes + dim / kUnitLanes * kUnitWords;
}

// The groups [first, first + count) of a block.
template <class Dot>
struct GroupBatch {
  int64_t first;
  int64_t count;
  typename Dot::Signs signs[kBatchGroups];

  void Load(const PackedPlane& plane) {
    for (int64_t i = 0; i < count; ++i) {
      VF scales[kTokenVectors];
      for (size_t v = 0; v < kTokenVectors; ++v) {
        scales[v] = plane.Parameter(plane.scales, first + i, static_cast<int64_t>(v * kLanes));
      }
      Dot::MakeSigns(scales, &signs[i]);
    }
  }
};

// A group of one tile.
template <class Dot, size_t kRows>
struct TileGroup {
  const WeightTile<Dot>& tile;
  const PackedPlane& plane;
  const typename Dot::Signs& signs;
  PlanePrefetch* prefetch;

  template <size_t kCount>
  HWY_INLINE void Sum(int64_t dim) const {
    SumDims<Dot, kRows, kCount, true>(Anew(tile), dim, WordsOf<Dot>(plane, dim), signs, prefetch);
  }
};

template <class Dot, size_t kRows>
HWY_NOINLINE void SumRows(const AccumulateTileArgs& args, int64_t row, const PackedPlane& plane,
                          const GroupBatch<Dot>& batch, PlanePrefetch* prefetch) {
  WeightTile<Dot> tile(args, row, kRows, batch.first, 0);
  for (int64_t i = 0; i < batch.count; ++i) {
    const TileGroup<Dot, kRows> group = {tile, plane, batch.signs[i], prefetch};
    ForDims<kVectors<Dot, kRows>>(plane, batch.first + i, group);
    tile.NextGroup(args.rows);
  }
}

template <class Dot, size_t kRows = kMaxSumRows<Dot>>
HWY_INLINE void SumAnyRows(const AccumulateTileArgs& args, int64_t row, int64_t count,
                           const PackedPlane& plane, const GroupBatch<Dot>& batch,
                           PlanePrefetch* prefetch) {
  if (count == kRows) return SumRows<Dot, kRows>(args, row, plane, batch, prefetch);
  if constexpr (kRows > 1) {
    SumAnyRows<Dot, kRows - 1>(args, row, count, plane, batch, prefetch);
  }
}

// `count` tiles of full height from a row on, with nothing between their products that need not be
// there.
template <class Dot, size_t kCount>
HWY_NOINLINE void SumTiles(const AccumulateTileArgs& args, int64_t row, int64_t count, int64_t g,
                           int64_t dim, const uint32_t* words, const typename Dot::Signs& signs) {
  constexpr size_t kRows = kMaxSumRows<Dot>;
  for (int64_t end = row + count * static_cast<int64_t>(kRows); row < end; row += kRows) {
    SumDims<Dot, kRows, kCount, false>(WeightTile<Dot>(args, row, kRows, g, dim), 0, words, signs,
                                       nullptr);
  }
}

#if !KVASIR_HAS_BYTE_DOT
// Many of them, with codes laid out.
template <class Dot, size_t kCount>
HWY_NOINLINE void SumManyTiles(const AccumulateTileArgs& args, int64_t row, int64_t count,
                               int64_t g, int64_t dim, const uint32_t* words,
                               const typename Dot::Signs& signs) {
  constexpr int64_t kCodes = kBlockTokens * static_cast<int64_t>(kCount * kLanes);
  alignas(64) uint32_t laid_out[kCodes * static_cast<int64_t>(LaidOut<Dot>::kPlaneBits) / 32];
  LaidOut<Dot>::LayOut(words, kCodes, laid_out);
  SumTiles<LaidOut<Dot>, kCount>(args, row, count, g, dim, laid_out, signs);
}
#endif

// A group of full tiles.
template <class Dot>
struct TilesGroup {
  const AccumulateTileArgs& args;
  int64_t row;
  int64_t count;
  const PackedPlane& plane;
  const typename Dot::Signs& signs;
  int64_t g;

  template <size_t kCount>
  HWY_INLINE void Sum(int64_t dim) const {
    const uint32_t* const words = WordsOf<Dot>(plane, dim);
#if !KVASIR_HAS_BYTE_DOT
    if (count >= kLaidOutTiles) {
      return SumManyTiles<Dot, kCount>(args, row, count, g, dim, words, signs);
    }
#endif
    SumTiles<Dot, kCount>(args, row, count, g, dim, words, signs);
  }
};

template <class Dot>
HWY_INLINE void SumFullTiles(const AccumulateTileArgs& args, int64_t row, int64_t count,
                             const PackedPlane& plane, const GroupBatch<Dot>& batch) {
  for (int64_t i = 0; i < batch.count; ++i) {
    const int64_t g = batch.first + i;
    const TilesGroup<Dot> group = {args, row, count, plane, batch.signs[i], g};
    ForDims<kVectors<Dot, kMaxSumRows<Dot>>>(plane, g, group);
  }
}

template <class Dot>
void SumBatch(const AccumulateTileArgs& args, const PackedPlane& plane,
              const GroupBatch<Dot>& batch, PlanePrefetch& fetch) {
  constexpr int64_t kMaxRows = kMaxSumRows<Dot>;
  bool fetched = false;
  FilledRows filled(args);
  while (const int64_t left = filled.Left()) {
    if (const int64_t full = fetched ? FullTiles<kMaxRows>(left) : 0; full > 0) {
      SumFullTiles<Dot>(args, filled.row(), full, plane, batch);
      filled.Skip(full * kMaxRows);
      continue;
    }
    const int64_t rows = TileRows<kMaxRows>(left);
    SumAnyRows<Dot>(args, filled.row(), rows, plane, batch,
                    fetched || args.next.from == nullptr ? nullptr : &fetch);
    fetched = true;
    filled.Skip(rows);
  }
}

template <size_t kBits, size_t kBytes>
void Accumulate(const AccumulateTileArgs& args) noexcept {
  using Dot = IntegerDot<kBits, kBytes>;
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  const int64_t groups = plane.dim / plane.group;
  PlanePrefetch fetch(args.next, FetchSteps(plane.dim));
  RescaleRows(args);
  GroupBatch<Dot> batch;
  for (batch.first = 0; batch.first < groups; batch.first += kBatchGroups) {
    batch.count = HWY_MIN(kBatchGroups, groups - batch.first);
    batch.Load(plane);
    SumBatch(args, plane, batch, fetch);
  }
}

template <size_t kBits, size_t kBytes>
struct Entries {
  static void Put(IntegerKvKernels& kernels) {
    kernels.accumulate_tile = Accumulate<kBits, kBytes>;
  }
};

void FillIntegerSums(KernelTable* table) { FillIntegers<Entries>(table); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillIntegerSums)
#endif
