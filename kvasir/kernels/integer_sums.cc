// Value sums of affine values of 8 and 4 bits in integers: weights times scales rounded per block,
// group and row, products with the codes as exact sums. Deliberately only what kernels.h states
// for IntegerKvKernels; integer_scores.cc has the keys.
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

KVASIR_BEFORE_INTEGER();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Groups that are rounded and summed together, for all rows.
constexpr int64_t kBatchGroups = 4;
// Slots that are multiplied between two steps of fetching ahead.
constexpr int64_t kFetchSlots = 8;

// The lanes of 64 tokens from begin on and before end.
HWY_INLINE auto Visible(size_t token, int32_t begin, int32_t end) {
  const DF d;
  const VF position = hn::Iota(d, static_cast<float>(token));
  return hn::And(hn::Ge(position, hn::Set(d, static_cast<float>(begin))),
                 hn::Lt(position, hn::Set(d, static_cast<float>(end))));
}

// What one group has for the tokens [begin, end) of a block: its largest scale as a step of
// weights, each scale as a share of it, and the centres.
template <class Dot>
struct ValueGroup {
  alignas(64) float ratios[kBlockTokens];
  alignas(64) float centres[kBlockTokens];
  typename Dot::Signs signs;
  float step;

  void Load(const PackedPlane& plane, int64_t g, int32_t begin, int32_t end, float levels) {
    const DF d;
    VF scales[kTokenVectors];
    VU largest[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) {
      const size_t token = i * kLanes;
      const auto visible = Visible(token, begin, end);
      const VF scale = plane.Parameter(plane.scales, g, static_cast<int64_t>(token));
      const VF bias = plane.Parameter(plane.biases, g, static_cast<int64_t>(token));
      scales[i] = hn::IfThenElseZero(visible, scale);
      largest[i] = MagnitudeBits(scales[i]);
      const auto negative = hn::MaskFromVec(hn::BitCast(d, SignsOf(scales[i])));
      constexpr auto kMiddle = static_cast<float>(ValueMiddle(Dot::kBits));
      const VF middle = hn::IfThenElse(negative, hn::Set(d, kMiddle - 1), hn::Set(d, kMiddle));
      hn::Store(hn::IfThenElseZero(visible, hn::MulAdd(middle, scale, bias)), d, centres + token);
    }
    Dot::MakeSigns(scales, &signs);
    const IntegerSteps steps = IntegerStepsOf(LargestBits(largest), levels);
    step = steps.scale;
    for (size_t i = 0; i < kTokenVectors; ++i) {
      const VF ratio =
          steps.inverse == 0 ? hn::Zero(d) : hn::Mul(hn::Abs(scales[i]), hn::Set(d, steps.inverse));
      hn::Store(ratio, d, ratios + i * kLanes);
    }
  }
};

// One row's multipliers of the tokens for one group.
template <class Dot>
struct RowWeights {
  alignas(64) std::byte codes[kBlockTokens * 2];
  int32_t start;
  float step;
};

// Those of a tile's rows for a batch of groups. Lanes and shifts are by group, then row.
template <class Dot, size_t kRows>
struct TileWeights {
  static constexpr size_t kShifts =
      (kBatchGroups * kRows + kVirtualLanes - 1) / kVirtualLanes * kVirtualLanes;
  RowWeights<Dot> rows[kBatchGroups][kRows];
  alignas(64) float lanes[kShifts][kVirtualLanes];
  alignas(64) float shifts[kShifts];
};

// A row's weights for groups that were loaded for what it sees of the block; its shifts are left as
// lanes.
template <class Dot, size_t kRows>
HWY_INLINE void RoundWeights(const AccumulateTileArgs& args, int64_t row, size_t r,
                             const ValueGroup<Dot>* groups, int64_t count, bool sees_all,
                             TileWeights<Dot, kRows>& out) {
  const DF d;
  const float top = args.top[row];
  const VF inverse = hn::Set(d, top < 0x1p-100f ? 0.0f : 1.0f / top);
  VF weights[kTokenVectors];
  VF shares[kTokenVectors];
  for (size_t i = 0; i < kTokenVectors; ++i) {
    weights[i] = hn::LoadU(d, args.weights + row * kBlockTokens + i * kLanes);
    if (!sees_all) {
      weights[i] =
          hn::IfThenElseZero(Visible(i * kLanes, args.begin[row], args.end[row]), weights[i]);
    }
    shares[i] = hn::Mul(weights[i], inverse);
  }
  for (int64_t g = 0; g < count; ++g) {
    VF shifts[kLaneVectors];
    VI codes[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) {
      const VF ratio = hn::Load(d, groups[g].ratios + i * kLanes);
      codes[i] = hn::BitCast(DI(), hn::MulAdd(shares[i], ratio, hn::Set(d, kRoundToBits)));
      VF& shift = shifts[i % kLaneVectors];
      shift = hn::MulAdd(weights[i], hn::Load(d, groups[g].centres + i * kLanes),
                         i < kLaneVectors ? hn::Zero(d) : shift);
    }
    float* const lanes = out.lanes[static_cast<size_t>(g) * kRows + r];
    for (size_t v = 0; v < kLaneVectors; ++v) hn::Store(shifts[v], d, lanes + v * kLanes);
    RowWeights<Dot>& to = out.rows[g][r];
    to.start = Dot::StoreWeights(codes, groups[g].signs, to.codes);
    to.step = groups[g].step * top;
  }
}

// The same for any row of the tile that starts at `row`.
template <class Dot, size_t kRows>
HWY_INLINE void RoundTile(const AccumulateTileArgs& args, const PackedPlane& plane, int64_t row,
                          const ValueGroup<Dot>* groups, int64_t first, int64_t count, float levels,
                          PlanePrefetch* prefetch, TileWeights<Dot, kRows>& out) {
  for (size_t r = 0; r < kRows; ++r) {
    if (prefetch != nullptr) prefetch->Step();
    const int64_t tile_row = row + static_cast<int64_t>(r);
    const int32_t begin = args.begin[tile_row];
    const int32_t end = args.end[tile_row];
    if (begin == 0 && end == kBlockTokens) {
      RoundWeights<Dot, kRows>(args, tile_row, r, groups, count, true, out);
      continue;
    }
    ValueGroup<Dot> own[kBatchGroups];
    for (int64_t g = 0; g < count; ++g) own[g].Load(plane, first + g, begin, end, levels);
    RoundWeights<Dot, kRows>(args, tile_row, r, own, count, false, out);
  }
  const size_t sums = kRows * static_cast<size_t>(count);
  for (size_t i = 0; i < sums; i += kVirtualLanes) {
    SixteenRows lanes;
    for (size_t r = 0; r < kVirtualLanes; ++r) {
      for (size_t v = 0; v < kLaneVectors; ++v) {
        lanes[r][v] = i + r < sums ? hn::Load(DF(), out.lanes[i + r] + v * kLanes) : hn::Zero(DF());
      }
    }
    ReduceRows<AddLanes>(lanes, out.shifts + i);
  }
}

// Adds the products with the part kPart of the codes of a word, that of the slots from k on.
template <class Dot, size_t kPart, size_t kRows, size_t kCount>
HWY_INLINE void AddPart(const RowWeights<Dot> (&weights)[kRows], const typename Dot::Signs& signs,
                        const uint32_t* const (&words)[kCount], int64_t k,
                        TileSums<Dot, kRows, kCount>& sums) {
  VI multipliers[kRows][Dot::kSums];
  for (size_t r = 0; r < kRows; ++r) {
    for (size_t s = 0; s < Dot::kSums; ++s) {
      multipliers[r][s] = Dot::Multiplier(weights[r].codes, kBlockTokens, k, kPart, s);
    }
  }
  const VI flip = Dot::Flip(signs, k, kPart);
  for (size_t v = 0; v < kCount; ++v) {
    const VI levels =
        Dot::Levels(Dot::template Codes<kPart>(
                        words[v] + k / static_cast<int64_t>(Dot::kWordCodes) * kUnitLanes),
                    flip);
    for (size_t r = 0; r < kRows; ++r) {
      for (size_t s = 0; s < Dot::kSums; ++s) {
        sums[r][v][s] = Dot::AddValue(sums[r][v][s], levels, multipliers[r][s]);
      }
    }
  }
}

template <class Dot, size_t kRows, size_t kCount>
HWY_INLINE void AddWord(const RowWeights<Dot> (&weights)[kRows], const typename Dot::Signs& signs,
                        const uint32_t* const (&words)[kCount], int64_t k,
                        TileSums<Dot, kRows, kCount>& sums) {
  AddPart<Dot, 0, kRows, kCount>(weights, signs, words, k, sums);
  if constexpr (Dot::kParts > 1) AddPart<Dot, 1, kRows, kCount>(weights, signs, words, k, sums);
  if constexpr (Dot::kParts > 2) AddPart<Dot, 2, kRows, kCount>(weights, signs, words, k, sums);
  if constexpr (Dot::kParts > 3) AddPart<Dot, 3, kRows, kCount>(weights, signs, words, k, sums);
}

// Adds sums to the accumulators of the rows from kRow on. Recursive, because sums that a loop over
// rows indexes would go through memory.
template <class Dot, size_t kRows, size_t kCount, size_t kRow = 0>
HWY_INLINE void StoreSums(const AccumulateTileArgs& args, const RowWeights<Dot> (&weights)[kRows],
                          const float* shifts, int64_t row, int64_t dim,
                          const TileSums<Dot, kRows, kCount>& sums) {
  const DF d;
  const int64_t tile_row = row + static_cast<int64_t>(kRow);
  float* const out = args.accumulator + tile_row * args.accumulator_stride + dim;
  const VF rescale = hn::Set(d, args.rescale[tile_row]);
  const VF step = hn::Set(d, weights[kRow].step);
  const VF shift = hn::Set(d, shifts[kRow]);
  for (size_t v = 0; v < kCount; ++v) {
    const VF before = hn::Mul(hn::LoadU(d, out + v * kLanes), rescale);
    const VF sum = hn::MulAdd(hn::ConvertTo(d, Dot::Total(sums[kRow][v])), step, before);
    hn::StoreU(hn::Add(sum, shift), d, out + v * kLanes);
  }
  if constexpr (kRow + 1 < kRows) {
    StoreSums<Dot, kRows, kCount, kRow + 1>(args, weights, shifts, row, dim, sums);
  }
}

// Value sums of the dims [dim, dim + kCount * kLanes), which are in one group.
template <class Dot, size_t kRows, size_t kCount>
HWY_INLINE void SumDims(const AccumulateTileArgs& args, const PackedPlane& plane,
                        const RowWeights<Dot> (&weights)[kRows], const float* shifts,
                        const typename Dot::Signs& signs, int64_t row, int64_t dim,
                        PlanePrefetch* prefetch) {
  constexpr int64_t kUnitWords = static_cast<int64_t>(Dot::kBits) * kUnitLanes;
  // The two units of the halves of a block follow each other.
  const uint32_t* words[kCount];
  for (size_t v = 0; v < kCount; ++v) {
    const int64_t first = dim + static_cast<int64_t>(v * kLanes);
    words[v] = plane.codes + first / kUnitLanes * 2 * kUnitWords + first % kUnitLanes;
  }
  int32_t starts[kRows];
  for (size_t r = 0; r < kRows; ++r) starts[r] = weights[r].start;
  TileSums<Dot, kRows, kCount> sums;
  StartSums<Dot, kRows, kCount>(starts, sums);
  for (int64_t k = 0; k < kBlockTokens; k += kFetchSlots) {
    if (prefetch != nullptr) prefetch->Step();
    for (int64_t w = k; w < k + kFetchSlots; w += Dot::kWordCodes) {
      AddWord<Dot, kRows, kCount>(weights, signs, words, w, sums);
    }
  }
  StoreSums<Dot, kRows, kCount>(args, weights, shifts, row, dim, sums);
}

// Value sums of one group.
template <class Dot, size_t kRows>
HWY_NOINLINE void SumGroup(const AccumulateTileArgs& args, const PackedPlane& plane,
                           const RowWeights<Dot> (&weights)[kRows], const float* shifts,
                           const typename Dot::Signs& signs, int64_t row, int64_t g,
                           PlanePrefetch* prefetch) {
  constexpr int64_t kStep = kVectors * kLanes;
  constexpr int64_t kHalfStep = kStep / 2;  // groups are multiples of 32 dims
  int64_t dim = g * plane.group;
  const int64_t end = dim + plane.group;
  for (; dim + kStep <= end; dim += kStep) {
    SumDims<Dot, kRows, kVectors>(args, plane, weights, shifts, signs, row, dim, prefetch);
  }
  for (; dim < end; dim += kHalfStep) {
    SumDims<Dot, kRows, kVectors / 2>(args, plane, weights, shifts, signs, row, dim, prefetch);
  }
}

// The groups [first, first + count) of a block.
template <class Dot>
struct GroupBatch {
  int64_t first;
  int64_t count;
  float levels;
  ValueGroup<Dot> groups[kBatchGroups];
};

template <class Dot, size_t kRows>
HWY_NOINLINE void SumRows(const AccumulateTileArgs& args, const PackedPlane& plane,
                          const GroupBatch<Dot>& batch, int64_t row, PlanePrefetch* prefetch) {
  TileWeights<Dot, kRows> weights;
  RoundTile<Dot, kRows>(args, plane, row, batch.groups, batch.first, batch.count, batch.levels,
                        prefetch, weights);
  for (int64_t i = 0; i < batch.count; ++i) {
    SumGroup<Dot, kRows>(args, plane, weights.rows[i],
                         weights.shifts + static_cast<size_t>(i) * kRows, batch.groups[i].signs,
                         row, batch.first + i, prefetch);
  }
}

template <class Dot, size_t kRows = kMaxRows<Dot>>
HWY_INLINE void SumAnyRows(const AccumulateTileArgs& args, const PackedPlane& plane,
                           const GroupBatch<Dot>& batch, int64_t row, int64_t rows,
                           PlanePrefetch* prefetch) {
  if (rows == kRows) return SumRows<Dot, kRows>(args, plane, batch, row, prefetch);
  if constexpr (kRows > 1) {
    SumAnyRows<Dot, kRows - 1>(args, plane, batch, row, rows, prefetch);
  }
}

template <class Dot>
void SumBatch(const AccumulateTileArgs& args, const PackedPlane& plane,
              const GroupBatch<Dot>& batch, PlanePrefetch& fetch) {
  bool fetched = false;
  for (int64_t row = 0; row < args.rows;) {
    int64_t filled = 0;
    while (row + filled < args.rows && args.begin[row + filled] < args.end[row + filled]) ++filled;
    if (filled == 0) {
      ++row;
      continue;
    }
    const int64_t rows = TileRows<Dot>(filled);
    SumAnyRows<Dot>(args, plane, batch, row, rows,
                    fetched || args.next == nullptr ? nullptr : &fetch);
    fetched = true;
    row += rows;
  }
}

template <size_t kBits, size_t kBytes>
void Accumulate(const AccumulateTileArgs& args) noexcept {
  using Dot = IntegerDot<kBits, kBytes>;
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  constexpr int64_t kStep = kVectors * kLanes;
  const int64_t groups = plane.dim / plane.group;
  // A step per batch and row of the first tile, then one per kFetchSlots of kStep dims.
  const int64_t steps = (groups + kBatchGroups - 1) / kBatchGroups * TileRows<Dot>(args.rows) +
                        (plane.dim + kStep - 1) / kStep * (kBlockTokens / kFetchSlots);
  PlanePrefetch fetch(args.next, plane.BytesOfNext(args.next_bytes), steps);
  GroupBatch<Dot> batch;
  batch.levels = IntegerLevelsOf(kBytes).weight;
  for (batch.first = 0; batch.first < groups; batch.first += kBatchGroups) {
    batch.count = HWY_MIN(kBatchGroups, groups - batch.first);
    for (int64_t i = 0; i < batch.count; ++i) {
      batch.groups[i].Load(plane, batch.first + i, 0, kBlockTokens, batch.levels);
    }
    SumBatch(args, plane, batch, fetch);
  }
}

template <size_t kBits, size_t kBytes>
void Fill(KernelTable* table) {
  table->integer_kv[kBytes - 1][KvFormatIndex(KvCodec::Affine(kBits, 64))].accumulate_tile =
      Accumulate<kBits, kBytes>;
}

}  // namespace

void FillIntegerSums(KernelTable* table) {
  Fill<4, 1>(table);
  Fill<4, 2>(table);
  Fill<8, 1>(table);
  Fill<8, 2>(table);
}

}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillIntegerSums)
#endif
