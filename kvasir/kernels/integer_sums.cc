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

// Some rows of weights, of which codes, steps, shifts and starts are read.
struct WeightRows {
  const std::byte* codes;
  const float* steps;
  const float* shifts;
  const int32_t* starts;
  int64_t groups;
  int64_t rows;  // of the whole tile
  // In memory: sums of the innermost loop need the registers.
  float* accumulators[kSumTile];

  WeightRows(const AccumulateTileArgs& args, int64_t row, int64_t count, int64_t groups)
      : codes(args.integers.codes + row * groups * IntegerWeights::kCodeBytes),
        steps(args.integers.steps + row),
        shifts(args.integers.shifts + row),
        starts(args.integers.starts + row),
        groups(groups),
        rows(args.rows) {
    for (int64_t i = 0; i < count; ++i) accumulators[i] = args.AccumulatorOf(row + i);
  }
};

// The part kPart of the codes of a word, whose first multiplier of the first row `first` is; those
// of the next row lie `stride` bytes behind.
template <class Dot, size_t kPart>
struct ValueOperands {
  const std::byte* first;
  int64_t stride;
  const uint32_t* word;
  VI flip;

  template <bool kTight>
  HWY_INLINE VI Code(size_t v) const {
    // The two units of the halves of a block follow each other.
    constexpr size_t kUnitWords = 2 * Dot::kBits * kUnitLanes;
    const size_t lane = v * kLanes;
    const uint32_t* const codes = word + lane / kUnitLanes * kUnitWords + lane % kUnitLanes;
    return Dot::Level(Dot::template Codes<kPart, kTight>(codes), flip);
  }
  HWY_INLINE VI Multiplier(size_t r, size_t s) const {
    return Dot::Multiplier(first + static_cast<int64_t>(r) * stride, kBlockTokens, kPart, s);
  }
  static HWY_INLINE VI Add(VI sum, VI levels, VI multipliers) {
    return Dot::AddValue(sum, levels, multipliers);
  }
};

// Adds the products with the slots from k on that a word has, from its part kPart on.
template <class Dot, size_t kRows, size_t kCount, size_t kPart = 0>
HWY_INLINE void AddWord(const std::byte* first, int64_t stride, const typename Dot::Signs& signs,
                        int64_t k, const uint32_t* word, TileSums<Dot, kRows, kCount>& sums) {
  AddProducts<Dot>(ValueOperands<Dot, kPart>{first, stride, word, Dot::Flip(signs, k, kPart)},
                   sums);
  if constexpr (kPart + 1 < Dot::kParts) {
    AddWord<Dot, kRows, kCount, kPart + 1>(first, stride, signs, k, word, sums);
  }
}

// Adds sums of group g to the accumulators of the rows from kRow on. Recursive, because sums that a
// loop over rows indexes would go through memory.
template <class Dot, size_t kRows, size_t kCount, size_t kRow = 0>
HWY_INLINE void StoreSums(const WeightRows& rows, int64_t g, int64_t dim,
                          const TileSums<Dot, kRows, kCount>& sums) {
  const DF d;
  constexpr auto kIndex = static_cast<int64_t>(kRow);
  const int64_t at = g * rows.rows + kIndex;
  float* const out = rows.accumulators[kRow] + dim;
  const VF step = hn::Set(d, rows.steps[at]);
  const VF shift = hn::Set(d, rows.shifts[at]);
  for (size_t v = 0; v < kCount; ++v) {
    const VF before = hn::LoadU(d, out + v * kLanes);
    const VF sum =
        hn::MulAdd(hn::ConvertTo(d, Dot::Total(sums[kRow][v][0], sums[kRow][v][Dot::kSums - 1])),
                   step, before);
    hn::StoreU(hn::Add(sum, shift), d, out + v * kLanes);
  }
  if constexpr (kRow + 1 < kRows) {
    StoreSums<Dot, kRows, kCount, kRow + 1>(rows, g, dim, sums);
  }
}

// Value sums of the dims [dim, dim + kCount * kLanes), which are in group g. REQUIRES: dim is a
// multiple of kUnitLanes.
template <class Dot, size_t kRows, size_t kCount, bool kFetch>
HWY_INLINE void SumDims(const WeightRows& rows, const PackedPlane& plane,
                        const typename Dot::Signs& signs, int64_t g, int64_t dim,
                        PlanePrefetch* prefetch) {
  constexpr int64_t kUnitWords = 2 * static_cast<int64_t>(Dot::kBits) * kUnitLanes;
  constexpr int64_t kSlots = kFetchSlots<Dot, kRows>;
  int32_t starts[kRows];
  for (size_t r = 0; r < kRows; ++r) {
    starts[r] = rows.starts[g * rows.rows + static_cast<int64_t>(r)];
  }
  TileSums<Dot, kRows, kCount> sums;
  StartSums<Dot>(starts, sums);
  const int64_t stride = rows.groups * IntegerWeights::kCodeBytes;
  const std::byte* multipliers = rows.codes + g * IntegerWeights::kCodeBytes;
  const uint32_t* word = plane.codes + dim / kUnitLanes * kUnitWords;
  for (int64_t k = 0; k < kBlockTokens; k += kSlots) {
    if constexpr (kFetch) {
      if (prefetch != nullptr) prefetch->Step();
    }
    for (int64_t w = k; w < k + kSlots; w += Dot::kWordCodes) {
      AddWord<Dot, kRows, kCount>(multipliers, stride, signs, w, word, sums);
      multipliers += Dot::kWordCodes * Dot::kMultiplierBytes;
      word += kUnitLanes;
    }
  }
  StoreSums<Dot, kRows, kCount>(rows, g, dim, sums);
}

// Value sums of one group. kFetch: with steps of `prefetch`, if there is one.
template <class Dot, size_t kRows, bool kFetch>
HWY_INLINE void SumGroup(const WeightRows& rows, const PackedPlane& plane,
                         const typename Dot::Signs& signs, int64_t g, PlanePrefetch* prefetch) {
  constexpr size_t kCount = kVectors<Dot, kRows>;
  constexpr int64_t kStep = kCount * kLanes;
  int64_t dim = g * plane.group;
  const int64_t end = dim + plane.group;
  for (; dim + kStep <= end; dim += kStep) {
    SumDims<Dot, kRows, kCount, kFetch>(rows, plane, signs, g, dim, prefetch);
  }
  // Groups are multiples of 32 dims.
  if constexpr (kStep > 32) {
    for (; dim < end; dim += kStep / 2) {
      SumDims<Dot, kRows, kCount / 2, kFetch>(rows, plane, signs, g, dim, prefetch);
    }
  }
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

template <class Dot, size_t kRows>
HWY_NOINLINE void SumRows(const WeightRows& rows, const PackedPlane& plane,
                          const GroupBatch<Dot>& batch, PlanePrefetch* prefetch) {
  for (int64_t i = 0; i < batch.count; ++i) {
    SumGroup<Dot, kRows, true>(Anew(rows), Anew(plane), batch.signs[i], batch.first + i, prefetch);
  }
}

// `count` tiles of full height from a row on, with nothing between their products that need not be
// there.
template <class Dot>
HWY_NOINLINE void SumTiles(const AccumulateTileArgs& args, int64_t row, int64_t count,
                           const PackedPlane& plane, const GroupBatch<Dot>& batch) {
  constexpr size_t kRows = kMaxSumRows<Dot>;
  const int64_t groups = plane.dim / plane.group;
  for (int64_t end = row + count * static_cast<int64_t>(kRows); row < end; row += kRows) {
    const WeightRows rows(args, row, kRows, groups);
    for (int64_t i = 0; i < batch.count; ++i) {
      SumGroup<Dot, kRows, false>(Anew(rows), Anew(plane), batch.signs[i], batch.first + i,
                                  nullptr);
    }
  }
}

template <class Dot, size_t kRows = kMaxSumRows<Dot>>
HWY_INLINE void SumAnyRows(const WeightRows& rows, int64_t count, const PackedPlane& plane,
                           const GroupBatch<Dot>& batch, PlanePrefetch* prefetch) {
  if (count == kRows) return SumRows<Dot, kRows>(rows, plane, batch, prefetch);
  if constexpr (kRows > 1) SumAnyRows<Dot, kRows - 1>(rows, count, plane, batch, prefetch);
}

template <class Dot>
void SumBatch(const AccumulateTileArgs& args, const PackedPlane& plane,
              const GroupBatch<Dot>& batch, PlanePrefetch& fetch) {
  constexpr int64_t kMaxRows = kMaxSumRows<Dot>;
  bool fetched = false;
  FilledRows filled(args);
  while (const int64_t left = filled.Left()) {
    if (const int64_t full = fetched ? FullTiles<kMaxRows>(left) : 0; full > 0) {
      SumTiles<Dot>(args, filled.row(), full, plane, batch);
      filled.Skip(full * kMaxRows);
      continue;
    }
    const int64_t rows = TileRows<kMaxRows>(left);
    SumAnyRows<Dot>(WeightRows(args, filled.row(), rows, plane.dim / plane.group), rows, plane,
                    batch, fetched || args.next == nullptr ? nullptr : &fetch);
    fetched = true;
    filled.Skip(rows);
  }
}

template <size_t kBits, size_t kBytes>
void Accumulate(const AccumulateTileArgs& args) noexcept {
  using Dot = IntegerDot<kBits, kBytes>;
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  const int64_t groups = plane.dim / plane.group;
  PlanePrefetch fetch(args.next, plane.BytesOfNext(args.next_bytes), FetchSteps(plane.dim),
                      args.fetch_into);
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
