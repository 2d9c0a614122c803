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

// What one group has for some tokens of a block: how weights are rounded, each scale as a share of
// the largest, and the centres.
template <class Dot>
struct ValueGroup {
  alignas(64) int16_t shares[kBlockTokens];
  alignas(64) int16_t centres[kBlockTokens];
  typename Dot::Signs signs;
  float step;         // of codes
  float centre_step;  // of weights times centres

  // Tokens: AllTokens or TokensBetween.
  template <class Tokens>
  HWY_INLINE void Load(const PackedPlane& plane, int64_t g, const Tokens& tokens) {
    const DF d;
    constexpr WeightRounding kRounding = WeightRoundingOf(Dot::kBytes);
    VF scales[kTokenVectors];
    VF magnitudes[kTokenVectors];
    VF middles[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) {
      const size_t token = i * kLanes;
      const VF scale = plane.Parameter(plane.scales, g, static_cast<int64_t>(token));
      const VF bias = plane.Parameter(plane.biases, g, static_cast<int64_t>(token));
      scales[i] = tokens.IfSeen(token, scale);
      magnitudes[i] = hn::Abs(scales[i]);
      const auto negative = hn::MaskFromVec(hn::BitCast(d, SignsOf(scales[i])));
      constexpr auto kMiddle = static_cast<float>(ValueMiddle(Dot::kBits));
      const VF middle = hn::IfThenElse(negative, hn::Set(d, kMiddle - 1), hn::Set(d, kMiddle));
      middles[i] = tokens.IfSeen(token, hn::MulAdd(middle, scale, bias));
    }
    Dot::MakeSigns(scales, &signs);
    step = RoundToShorts(magnitudes, kRounding.shares, shares) * kRounding.unit;
    centre_step = RoundToShorts(middles, kCentreLevels, centres) * kWeightUnit;
  }
};

// Rounds a row's weights for a group that was loaded for what it sees, in steps.
template <class Dot>
class RowRounding {
 public:
  static constexpr int kSteps = 3;

  HWY_INLINE RowRounding() {}
  // start: of the row's value sums.
  template <int kStep>
  HWY_INLINE void Step(const Shorts& weights, const ValueGroup<Dot>& group, std::byte* to,
                       int32_t* start, VF (&shifts)[kLaneVectors]) {
    if constexpr (kStep == 0) {
      constexpr int kShift = WeightRoundingOf(Dot::kBytes).shift;
      for (size_t i = 0; i < kShortVectors; ++i) {
        const VS weight = kShift == 0 ? weights[i] : ShiftRightUnsigned<kShift>(weights[i]);
        codes_[i] = MulRound(weight, LoadShorts(group.shares, i));
      }
    } else if constexpr (kStep == 1) {
      *start = Dot::StoreWeights(codes_, group.signs, to);
    } else {
      VF lanes[kLaneVectors];  // a register each, as `shifts` may be memory
      SumPairs(weights, StoredShorts{group.centres}, lanes);
      for (size_t v = 0; v < kLaneVectors; ++v) shifts[v] = lanes[v];
    }
  }

 private:
  Shorts codes_;
};

// All steps. Returns the start.
template <class Dot>
HWY_INLINE int32_t RoundRow(const Shorts& weights, const ValueGroup<Dot>& group, std::byte* to,
                            VF (&shifts)[kLaneVectors]) {
  RowRounding<Dot> rounding;
  int32_t start = 0;
  rounding.template Step<0>(weights, group, to, &start, shifts);
  rounding.template Step<1>(weights, group, to, &start, shifts);
  rounding.template Step<2>(weights, group, to, &start, shifts);
  return start;
}

// What rounding a row for a group leaves besides codes.
struct RowSteps {
  int32_t start;
  float step;
  float centre_step;
};

// Rounds weights for kCount groups of a block from `first` on, as long as they are in registers:
// Rounder of WeighRows and WeighFewRows.
template <class Dot, size_t kCount>
class BatchRounder {
 public:
  class Together;

  // keeps: weights are left in the place of scores, for the groups of other batches.
  BatchRounder(const WeighTileArgs& args, const PackedPlane& plane, int64_t first, bool keeps)
      : args_(args), plane_(plane), first_(first), keeps_(keeps) {
    for (size_t i = 0; i < kCount; ++i) groups_[i].Load(plane, GroupOf(i), AllTokens());
  }

  HWY_INLINE void RoundOne(int64_t row, const Shorts& weights, bool sees_all, float top) const {
    args_.out.tops[row] = top;
    for (size_t i = 0; i < kCount; ++i) {
      VF lanes[kLaneVectors];
      const int64_t at = GroupOf(i) * args_.rows + row;
      const RowSteps steps = Round(i, row, weights, sees_all, lanes);
      args_.out.starts[at] = steps.start;
      args_.out.steps[at] = steps.step * top;
      args_.out.shifts[at] = SumLanes(lanes) * (steps.centre_step * top);
    }
    if (keeps_) Keep(row, weights);
  }

  // The same of weights that were kept, of a row and of rows together.
  HWY_NOINLINE void RoundOneKept(int64_t row) const {
    if (args_.begin[row] >= args_.end[row]) return;
    Shorts weights;
    LoadKept(row, weights);
    RoundOne(row, weights, SeesAll(args_, row), args_.out.tops[row]);
  }
  HWY_NOINLINE void RoundKept(const Rows& rows) const {
    Together together(*this, rows);
    for (int64_t r = 0; r < rows.count(); ++r) {
      const int64_t row = rows.first() + r;
      if (!rows.Sees(row)) continue;
      Shorts weights;
      LoadKept(row, weights);
      together.Round(r, weights, SeesAll(args_, row));
    }
    alignas(64) Rows::Numbers tops;
    for (size_t i = 0; i < rows.padded(); i += kLanes) {
      hn::Store(rows.Load(args_.out.tops, i), DF(), tops + i);
    }
    together.Finish(tops);
  }

 private:
  int64_t GroupOf(size_t i) const { return first_ + static_cast<int64_t>(i); }
  std::byte* CodesOf(size_t i, int64_t row) const {
    return args_.out.codes + (GroupOf(i) * args_.rows + row) * Dot::kWeightBytes;
  }

  HWY_INLINE RowSteps Round(size_t i, int64_t row, const Shorts& weights, bool sees_all,
                            VF (&shifts)[kLaneVectors]) const {
    if (sees_all) {
      const ValueGroup<Dot>& group = groups_[i];
      return {RoundRow<Dot>(weights, group, CodesOf(i, row), shifts), group.step,
              group.centre_step};
    }
    Shorts copied;  // whose address a loop over rows that see everything need not know
    for (size_t v = 0; v < kShortVectors; ++v) copied[v] = weights[v];
    return RoundPart(i, row, copied, shifts);
  }
  // With the row's own steps, those of what it sees.
  HWY_NOINLINE RowSteps RoundPart(size_t i, int64_t row, const Shorts& weights,
                                  VF (&shifts)[kLaneVectors]) const {
    ValueGroup<Dot> own;
    own.Load(plane_, GroupOf(i), TokensBetween{args_.begin[row], args_.end[row]});
    return {RoundRow<Dot>(weights, own, CodesOf(i, row), shifts), own.step, own.centre_step};
  }

  int16_t* KeptOf(int64_t row) const { return reinterpret_cast<int16_t*>(args_.ScoresOf(row)); }
  HWY_INLINE void Keep(int64_t row, const Shorts& weights) const {
    for (size_t i = 0; i < kShortVectors; ++i) {
      hn::StoreU(weights[i], DS(), KeptOf(row) + i * hn::MaxLanes(DS()));
    }
  }
  HWY_INLINE void LoadKept(int64_t row, Shorts& weights) const {
    for (size_t i = 0; i < kShortVectors; ++i) weights[i] = LoadShorts(KeptOf(row), i);
  }

  const WeighTileArgs& args_;
  const PackedPlane& plane_;
  int64_t first_;
  bool keeps_;
  ValueGroup<Dot> groups_[kCount];
};

template <class Dot, size_t kCount>
class BatchRounder<Dot, kCount>::Together {
 public:
  HWY_INLINE Together(const BatchRounder& all, const Rows& rows)
      : all_(all), rows_(rows), codes_(all.CodesOf(0, rows.first())) {
    for (size_t i = 0; i < kCount; ++i) {
      for (size_t r = 0; r < rows.padded(); r += kLanes) {
        hn::Store(hn::Set(DF(), all.groups_[i].step), DF(), steps_[i] + r);
        hn::Store(hn::Set(DF(), all.groups_[i].centre_step), DF(), centre_steps_[i] + r);
      }
    }
  }

  class AllRows;

  bool keeps() const { return all_.keeps_; }
  HWY_INLINE void Round(int64_t r, const Shorts& weights, bool sees_all) {
    const int64_t row = rows_.first() + r;
    for (size_t i = 0; i < kCount; ++i) {
      const RowSteps steps = all_.Round(i, row, weights, sees_all, shifts_[i][r]);
      if (!sees_all) {
        steps_[i][r] = steps.step;
        centre_steps_[i][r] = steps.centre_step;
      }
      if (!Dot::kValuesStartAtZero) starts_[i][r] = steps.start;
    }
    if (all_.keeps_) all_.Keep(row, weights);
  }

  HWY_INLINE void Finish(const Rows::Numbers& tops) {
    const DF d;
    const IntegerWeights& out = all_.args_.out;
    const size_t padded = rows_.padded();
    for (int64_t r = 0; !rows_.all_see_all() && r < static_cast<int64_t>(padded); ++r) {
      if (rows_.Sees(rows_.first() + r)) continue;
      for (size_t i = 0; i < kCount; ++i) SetLanes(0, shifts_[i][r]);
    }
    for (size_t i = 0; i < kCount; ++i) {
      alignas(64) Rows::Numbers shifts;
      rows_.Reduce<AddLanes>(shifts_[i], shifts);
      const int64_t at = all_.GroupOf(i) * all_.args_.rows;
      for (size_t r = 0; r < padded; r += kLanes) {
        const VF top = hn::Load(d, tops + r);
        if (i == 0) rows_.Store(top, r, out.tops);
        rows_.Store(hn::Mul(hn::Load(d, steps_[i] + r), top), r, out.steps + at);
        const VF centre_step = hn::Mul(hn::Load(d, centre_steps_[i] + r), top);
        rows_.Store(hn::Mul(hn::Load(d, shifts + r), centre_step), r, out.shifts + at);
        if (!Dot::kValuesStartAtZero) {
          rows_.Store(hn::Load(DI(), starts_[i] + r), r, out.starts + at);
        }
      }
    }
  }

 private:
  std::byte* CodesOf(size_t i, int64_t r) const {
    return codes_ + (static_cast<int64_t>(i) * all_.args_.rows + r) * Dot::kWeightBytes;
  }

  const BatchRounder& all_;
  const Rows& rows_;
  std::byte* codes_;  // of the first row and group
  Rows::Lanes shifts_[kCount];
  alignas(64) Rows::Numbers steps_[kCount];
  alignas(64) Rows::Numbers centre_steps_[kCount];
  alignas(64) int32_t starts_[kCount][kRowsTogether];
};

// Has by itself what it needs for every row.
template <class Dot, size_t kCount>
class BatchRounder<Dot, kCount>::Together::AllRows {
 public:
  static constexpr int kGroupSteps = RowRounding<Dot>::kSteps;
  static constexpr int kSteps = static_cast<int>(kCount) * kGroupSteps;

  HWY_INLINE explicit AllRows(Together& together)
      : together_(together),
        groups_(together.all_.groups_),
        codes_(together.codes_),
        group_bytes_(together.all_.args_.rows * Dot::kWeightBytes) {}

  template <int kStep>
  HWY_INLINE void Step(int64_t r, const Shorts& weights) {
    constexpr auto kGroup = static_cast<int64_t>(kStep / kGroupSteps);
    int32_t start = 0;
    rounding_[kGroup].template Step<kStep % kGroupSteps>(
        weights, groups_[kGroup], codes_ + kGroup * group_bytes_ + r * Dot::kWeightBytes, &start,
        together_.shifts_[kGroup][r]);
    if (!Dot::kValuesStartAtZero && kStep % kGroupSteps == 1) together_.starts_[kGroup][r] = start;
  }

 private:
  Together& together_;
  const ValueGroup<Dot>* const groups_;
  std::byte* const codes_;
  const int64_t group_bytes_;
  RowRounding<Dot> rounding_[kCount];
};

// Weighs, if these are the first groups, and rounds for kCount groups from `first` on.
template <class Dot, size_t kCount>
void WeighBatch(const WeighTileArgs& args, const PackedPlane& plane, int64_t first,
                PlanePrefetch& fetch) {
  const bool is_last = first + static_cast<int64_t>(kCount) == plane.dim / plane.group;
  const BatchRounder<Dot, kCount> rounder(args, plane, first, first == 0 && !is_last);
  if (args.rows <= kFewRows) {
    if (first == 0) return WeighFewRows(args, fetch, rounder);
    for (int64_t row = 0; row < args.rows; ++row) rounder.RoundOneKept(row);
    return;
  }
  for (int64_t row = 0; row < args.rows;) {
    const Rows rows(args, row);
    if (first == 0) {
      WeighRows(args, rows, fetch, rounder);
    } else {
      rounder.RoundKept(rows);
    }
    row = rows.end();
  }
}

template <size_t kBits, size_t kBytes>
void Weigh(const WeighTileArgs& args) noexcept {
  using Dot = IntegerDot<kBits, kBytes>;
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  const int64_t groups = plane.dim / plane.group;
  PlanePrefetch fetch(args.next, WeighSteps(args.rows));
  int64_t first = 0;
  for (; first + 4 <= groups; first += 4) WeighBatch<Dot, 4>(args, plane, first, fetch);
  for (; first + 2 <= groups; first += 2) WeighBatch<Dot, 2>(args, plane, first, fetch);
  if (first < groups) WeighBatch<Dot, 1>(args, plane, first, fetch);
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
