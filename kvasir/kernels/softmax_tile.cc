// The online softmax of a tile of scores (Milakov & Gimelshein 2018), 16 rows at a time so that no
// row waits for reductions of its own. Deliberately only one block: the running state is the
// caller's.
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/softmax_tile.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/softmax_row-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {
namespace {

// State of up to 16 rows. Those behind `count` are empty.
struct Batch {
  alignas(64) float top[kVirtualLanes];  // the largest visible score
  alignas(64) float max[kVirtualLanes];
  alignas(64) float base[kVirtualLanes];
  alignas(64) float rescale[kVirtualLanes];
  alignas(64) float sum[kVirtualLanes];
  alignas(64) float empty[kVirtualLanes];  // 1 if the row sees nothing, else 0
};

SoftmaxRowArgs RowOf(const SoftmaxTileArgs& args, int64_t row) {
  return {.scores = args.scores + row * kBlockTokens,
          .begin = args.begin[row],
          .end = args.end[row],
          .softcap = args.softcap};
}

// What a block with the largest visible score `top` makes of the state so far, per lane.
struct Maxima {
  HWY_INLINE Maxima(VF old_max, VF block_top) {
    const DF d;
    const VF lowest = hn::Set(d, kLowest);
    // Adding zero leaves one sign of zero, whichever lane won.
    max = hn::Add(MaxIgnoringNan(old_max, block_top), hn::Zero(d));
    base = hn::IfThenZeroElse(hn::Eq(max, lowest), max);
    rescale = ExpOfNonPositive(d, hn::Sub(old_max, base));
  }
  VF max;
  VF base;
  VF rescale;
};

void UpdateMaxima(Batch& batch) {
  const DF d;
  for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
    const Maxima maxima(hn::Load(d, batch.max + i), hn::Load(d, batch.top + i));
    const auto empty = hn::Gt(hn::Load(d, batch.empty + i), hn::Zero(d));
    hn::Store(maxima.max, d, batch.max + i);
    hn::Store(maxima.base, d, batch.base + i);
    hn::Store(hn::IfThenElse(empty, hn::Set(d, 1.0f), maxima.rescale), d, batch.rescale + i);
  }
}

// Scores become weights, that of -infinity exactly 0.
HWY_INLINE void WeighRow(float* scores, VF base, VF (&lanes)[kLaneVectors]) {
  const DF d;
  VF weights[kTokenVectors];
  for (size_t i = 0; i < kTokenVectors; ++i) {
    weights[i] = ExpOfNonPositive(d, hn::Sub(hn::LoadU(d, scores + i * kLanes), base));
  }
  for (size_t i = 0; i < kTokenVectors; ++i) {
    hn::StoreU(weights[i], d, scores + i * kLanes);
    VF& sum = lanes[i % kLaneVectors];
    sum = i < kLaneVectors ? weights[i] : hn::Add(sum, weights[i]);
  }
}

void SoftmaxRows(const SoftmaxTileArgs& args, int64_t first, size_t count) {
  const DF d;
  Batch batch;
  SixteenRows lanes;
  for (size_t r = 0; r < kVirtualLanes; ++r) {
    const int64_t row = first + static_cast<int64_t>(r);
    const bool empty = r >= count || args.begin[row] >= args.end[row];
    batch.empty[r] = empty ? 1.0f : 0.0f;
    batch.max[r] = r < count ? args.max[row] : 0.0f;
    batch.sum[r] = r < count ? args.sum[row] : 0.0f;
    for (VF& v : lanes[r]) v = hn::Set(d, kLowest);
    if (!empty) PrepareRow(RowOf(args, row), lanes[r]);
  }
  ReduceRows<LargestLane>(lanes, batch.top);
  UpdateMaxima(batch);
  for (size_t r = 0; r < kVirtualLanes; ++r) {
    for (VF& v : lanes[r]) v = hn::Zero(d);
    if (batch.empty[r] != 0) continue;
    const int64_t row = first + static_cast<int64_t>(r);
    WeighRow(args.scores + row * kBlockTokens, hn::Set(d, batch.base[r]), lanes[r]);
  }
  alignas(64) float sums[kVirtualLanes];
  ReduceRows<AddLanes>(lanes, sums);
  for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
    hn::Store(hn::MulAdd(hn::Load(d, batch.sum + i), hn::Load(d, batch.rescale + i),
                         hn::Load(d, sums + i)),
              d, batch.sum + i);
  }
  for (size_t r = 0; r < count; ++r) {
    const int64_t row = first + static_cast<int64_t>(r);
    args.max[row] = batch.max[r];
    args.sum[row] = batch.sum[r];
    args.rescale[row] = batch.rescale[r];
  }
}

// One row alone, with the same operations.
void SoftmaxRow(const SoftmaxTileArgs& args, int64_t row) {
  const DF d;
  if (args.begin[row] >= args.end[row]) {
    args.rescale[row] = 1.0f;
    return;
  }
  VF lanes[kLaneVectors];
  PrepareRow(RowOf(args, row), lanes);
  const Maxima maxima(hn::Set(d, args.max[row]), hn::Set(d, LargestLane::Reduce(lanes)));
  WeighRow(args.scores + row * kBlockTokens, maxima.base, lanes);
  const VF sum = hn::MulAdd(hn::Set(d, args.sum[row]), maxima.rescale, hn::Set(d, SumLanes(lanes)));
  args.max[row] = hn::GetLane(maxima.max);
  args.sum[row] = hn::GetLane(sum);
  args.rescale[row] = hn::GetLane(maxima.rescale);
}

void SoftmaxTile(const SoftmaxTileArgs& args) noexcept {
  constexpr int64_t kRows = kVirtualLanes;
  // A batch costs as much as six rows alone.
  constexpr int64_t kFewRows = 5;
  if (args.rows <= kFewRows) {
    for (int64_t row = 0; row < args.rows; ++row) SoftmaxRow(args, row);
    return;
  }
  for (int64_t row = 0; row < args.rows; row += kRows) {
    SoftmaxRows(args, row, static_cast<size_t>(HWY_MIN(kRows, args.rows - row)));
  }
}

}  // namespace

void FillSoftmaxTile(KernelTable* table) { table->softmax_tile = SoftmaxTile; }

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillSoftmaxTile)
#endif
