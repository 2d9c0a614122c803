// The softmax of values that are summed in integers: scores of a block become weights, rounded for
// every group of dims. Deliberately only what kernels.h states for IntegerKvKernels;
// integer_sums.cc multiplies with the values.
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/packed_codes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/integer_weights.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/integer_softmax-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// What one group has for the tokens [begin, end) of a block: its largest scale as a step of
// weights, each scale as a share of it, and the centres.
template <class Dot>
struct ValueGroup {
  alignas(64) float ratios[kBlockTokens];
  alignas(64) float centres[kBlockTokens];
  typename Dot::Signs signs;
  float step;

  HWY_INLINE void Load(const PackedPlane& plane, int64_t g, int32_t begin, int32_t end) {
    const DF d;
    VF scales[kTokenVectors];
    VU largest[kTokenVectors];
    // Unrolled, so that what is visible of a whole block is known.
#pragma GCC unroll 16
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
    const IntegerSteps steps =
        IntegerStepsOf(LargestBits(largest), IntegerLevelsOf(Dot::kBytes).weight);
    step = steps.scale;
    for (size_t i = 0; i < kTokenVectors; ++i) {
      const VF ratio =
          steps.inverse == 0 ? hn::Zero(d) : hn::Mul(hn::Abs(scales[i]), hn::Set(d, steps.inverse));
      hn::Store(ratio, d, ratios + i * kLanes);
    }
  }
};

// Rounds a row's weights for a group that was loaded for what it sees. Returns the start of its
// value sums.
template <class Dot>
HWY_INLINE int32_t RoundRow(const VF (&weights)[kTokenVectors], const ValueGroup<Dot>& group,
                            std::byte* to, VF (&shifts)[kLaneVectors]) {
  const DF d;
  VI codes[kTokenVectors];
  for (size_t i = 0; i < kTokenVectors; ++i) {
    const VF ratios = hn::Load(d, group.ratios + i * kLanes);
    codes[i] = hn::BitCast(DI(), hn::MulAdd(weights[i], ratios, hn::Set(d, kRoundToBits)));
  }
  VF lanes[kLaneVectors];  // a register each, as `shifts` may be memory
  for (size_t i = 0; i < kTokenVectors; ++i) {
    VF& lane = lanes[i % kLaneVectors];
    lane = hn::MulAdd(weights[i], hn::Load(d, group.centres + i * kLanes),
                      i < kLaneVectors ? hn::Zero(d) : lane);
  }
  for (size_t v = 0; v < kLaneVectors; ++v) shifts[v] = lanes[v];
  return Dot::StoreWeights(codes, group.signs, to);
}

// Rounds weights for kCount groups of a block from `first` on, as long as they are in registers:
// Rounder of WeighRows and WeighFewRows.
template <class Dot, size_t kCount>
class BatchRounder {
 public:
  class Sixteen;

  // keeps: weights are left in the place of scores, for the groups of other batches.
  BatchRounder(const WeighTileArgs& args, const PackedPlane& plane, int64_t first, bool keeps)
      : args_(args),
        plane_(plane),
        row_groups_(plane.dim / plane.group),
        first_(first),
        keeps_(keeps) {
    for (size_t i = 0; i < kCount; ++i) groups_[i].Load(plane, GroupOf(i), 0, kBlockTokens);
  }

  HWY_INLINE void RoundOne(int64_t row, const VF (&weights)[kTokenVectors], bool sees_all,
                           float top) const {
    args_.out.tops[row] = top;
    for (size_t i = 0; i < kCount; ++i) {
      VF lanes[kLaneVectors];
      const int64_t at = GroupOf(i) * args_.rows + row;
      float step = groups_[i].step;
      args_.out.starts[at] = sees_all ? RoundRow<Dot>(weights, groups_[i], CodesOf(i, row), lanes)
                                      : RoundPart(i, row, weights, &step, lanes);
      args_.out.steps[at] = step * top;
      args_.out.shifts[at] = SumLanes(lanes) * top;
    }
    if (keeps_) Keep(row, weights);
  }

  // The same of weights that were kept, of a row and of 16.
  HWY_NOINLINE void RoundOneKept(int64_t row) const {
    if (args_.begin[row] >= args_.end[row]) return;
    VF weights[kTokenVectors];
    LoadKept(row, weights);
    RoundOne(row, weights, SeesAll(args_, row), args_.out.tops[row]);
  }
  HWY_NOINLINE void RoundKept(const Rows& rows) const {
    Sixteen sixteen(*this, rows);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t row = rows.first() + r;
      if (!rows.Sees(row)) continue;
      VF weights[kTokenVectors];
      LoadKept(row, weights);
      sixteen.Round(r, weights, SeesAll(args_, row));
    }
    alignas(64) float tops[kVirtualLanes];
    rows.Load(args_.out.tops, tops);
    sixteen.Finish(tops);
  }

 private:
  int64_t GroupOf(size_t i) const { return first_ + static_cast<int64_t>(i); }
  std::byte* CodesOf(size_t i, int64_t row) const {
    return args_.out.codes + (row * row_groups_ + GroupOf(i)) * IntegerWeights::kCodeBytes;
  }

  // Rounds with the row's own step and centres, those of what it sees.
  HWY_INLINE int32_t RoundPart(size_t i, int64_t row, const VF (&weights)[kTokenVectors],
                               float* step, VF (&shifts)[kLaneVectors]) const {
    VF copied[kTokenVectors];  // whose address a loop over rows that see everything need not know
    for (size_t v = 0; v < kTokenVectors; ++v) copied[v] = weights[v];
    return RoundCopied(i, row, copied, step, shifts);
  }
  HWY_NOINLINE int32_t RoundCopied(size_t i, int64_t row, const VF (&weights)[kTokenVectors],
                                   float* step, VF (&shifts)[kLaneVectors]) const {
    ValueGroup<Dot> own;
    own.Load(plane_, GroupOf(i), args_.begin[row], args_.end[row]);
    *step = own.step;
    return RoundRow<Dot>(weights, own, CodesOf(i, row), shifts);
  }

  HWY_INLINE void Keep(int64_t row, const VF (&weights)[kTokenVectors]) const {
    for (size_t i = 0; i < kTokenVectors; ++i) {
      hn::StoreU(weights[i], DF(), args_.ScoresOf(row) + i * kLanes);
    }
  }
  HWY_INLINE void LoadKept(int64_t row, VF (&weights)[kTokenVectors]) const {
    for (size_t i = 0; i < kTokenVectors; ++i) {
      weights[i] = hn::LoadU(DF(), args_.ScoresOf(row) + i * kLanes);
    }
  }

  const WeighTileArgs& args_;
  const PackedPlane& plane_;
  int64_t row_groups_;
  int64_t first_;
  bool keeps_;
  ValueGroup<Dot> groups_[kCount];
};

template <class Dot, size_t kCount>
class BatchRounder<Dot, kCount>::Sixteen {
 public:
  HWY_INLINE Sixteen(const BatchRounder& all, const Rows& rows)
      : all_(all),
        rows_(rows),
        codes_(all.CodesOf(0, rows.first())),
        stride_(all.row_groups_ * IntegerWeights::kCodeBytes) {
    for (size_t i = 0; i < kCount; ++i) {
      for (float& step : steps_[i]) step = all.groups_[i].step;
    }
  }

  HWY_INLINE void Round(int64_t r, const VF (&weights)[kTokenVectors], bool sees_all) {
    const int64_t row = rows_.first() + r;
    for (size_t i = 0; i < kCount; ++i) {
      std::byte* const to = codes_ + r * stride_ + i * IntegerWeights::kCodeBytes;
      starts_[i][r] = sees_all ? RoundRow<Dot>(weights, all_.groups_[i], to, shifts_[i][r])
                               : all_.RoundPart(i, row, weights, &steps_[i][r], shifts_[i][r]);
    }
    if (all_.keeps_) all_.Keep(row, weights);
  }

  HWY_INLINE void Finish(const float (&tops)[kVirtualLanes]) {
    const DF d;
    const IntegerWeights& out = all_.args_.out;
    rows_.Store(tops, out.tops);
    for (int64_t r = 0; !rows_.all_see_all() && r < int64_t{kVirtualLanes}; ++r) {
      if (rows_.Sees(rows_.first() + r)) continue;
      for (size_t i = 0; i < kCount; ++i) SetLanes(0, shifts_[i][r]);
    }
    for (size_t i = 0; i < kCount; ++i) {
      alignas(64) float shifts[kVirtualLanes] = {};
      ReduceRows<AddLanes>(shifts_[i], shifts);
      for (size_t lane = 0; lane < kVirtualLanes; lane += kLanes) {
        const VF top = hn::Load(d, tops + lane);
        hn::Store(hn::Mul(hn::Load(d, steps_[i] + lane), top), d, steps_[i] + lane);
        hn::Store(hn::Mul(hn::Load(d, shifts + lane), top), d, shifts + lane);
      }
      const int64_t at = all_.GroupOf(i) * all_.args_.rows;
      rows_.Store(steps_[i], out.steps + at);
      rows_.Store(shifts, out.shifts + at);
      rows_.Store(starts_[i], out.starts + at);
    }
  }

 private:
  const BatchRounder& all_;
  const Rows& rows_;
  std::byte* codes_;  // of the first row
  int64_t stride_;
  SixteenRows shifts_[kCount];
  alignas(64) float steps_[kCount][kVirtualLanes];
  alignas(64) int32_t starts_[kCount][kVirtualLanes];
};

// Weighs, if these are the first groups, and rounds for kCount groups from `first` on.
template <size_t kBytes, class Dot, size_t kCount>
void WeighBatch(const WeighTileArgs& args, const PackedPlane& plane, int64_t first,
                PlanePrefetch& fetch) {
  constexpr int64_t kRows = kVirtualLanes;
  const bool is_last = first + static_cast<int64_t>(kCount) == plane.dim / plane.group;
  const BatchRounder<Dot, kCount> rounder(args, plane, first, first == 0 && !is_last);
  if (args.rows <= kFewRows) {
    if (first == 0) return WeighFewRows<kBytes>(args, fetch, rounder);
    for (int64_t row = 0; row < args.rows; ++row) rounder.RoundOneKept(row);
    return;
  }
  for (int64_t row = 0; row < args.rows; row += kRows) {
    const Rows rows(args, row);
    fetch.Step();
    if (first == 0) {
      WeighRows<kBytes>(args, rows, rounder);
    } else {
      rounder.RoundKept(rows);
    }
  }
}

template <size_t kBits, size_t kBytes>
void Weigh(const WeighTileArgs& args) noexcept {
  using Dot = IntegerDot<kBits, kBytes>;
  constexpr int64_t kRows = kVirtualLanes;
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  const int64_t groups = plane.dim / plane.group;
  PlanePrefetch fetch(args.fetch, args.fetch_bytes,
                      args.rows <= kFewRows ? args.rows : (args.rows + kRows - 1) / kRows,
                      args.fetch_into);
  int64_t first = 0;
  for (; first + 4 <= groups; first += 4) WeighBatch<kBytes, Dot, 4>(args, plane, first, fetch);
  for (; first + 2 <= groups; first += 2) WeighBatch<kBytes, Dot, 2>(args, plane, first, fetch);
  if (first < groups) WeighBatch<kBytes, Dot, 1>(args, plane, first, fetch);
}

template <size_t kBits, size_t kBytes>
struct Entries {
  static void Put(IntegerKvKernels& kernels) { kernels.weigh_tile = Weigh<kBits, kBytes>; }
};

void FillIntegerWeights(KernelTable* table) { FillIntegers<Entries>(table); }

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillIntegerWeights)
#endif
