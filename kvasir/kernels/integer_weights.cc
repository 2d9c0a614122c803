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
#include "kvasir/kernels/plane_prefetch-inl.h"

KVASIR_BEFORE_INTEGER();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Sixteen rows together cost as much as six alone.
constexpr int64_t kFewRows = 5;

// 2^x for x <= 8 or NaN (integer_steps.h).
template <int kDegree>
HWY_INLINE VF Exp2(VF x) {
  const DF d;
  constexpr auto& kTerms = Exp2Poly<kDegree>::kTerms;
  x = AtLeast(hn::Set(d, kExp2Min), x);
  // NaN becomes an integer whose lowest bits are 0, so that its exponent stays.
  const VI n = RoundToInt(x);
  const VF r = hn::Sub(x, hn::ConvertTo(d, n));
  VF p = hn::Set(d, kTerms[kDegree - 1]);
  for (int i = kDegree - 2; i >= 0; --i) p = hn::MulAdd(p, r, hn::Set(d, kTerms[i]));
  p = hn::MulAdd(p, r, hn::Set(d, 1.0f));
  return hn::BitCast(d, hn::Add(hn::BitCast(DI(), p), hn::ShiftLeft<23>(n)));
}

// What one group has for the tokens [begin, end) of a block: its largest scale as a step of
// weights, each scale as a share of it, and the centres.
template <class Dot>
struct ValueGroup {
  alignas(64) float ratios[kBlockTokens];
  alignas(64) float centres[kBlockTokens];
  typename Dot::Signs signs;
  float step;

  ValueGroup(const PackedPlane& plane, int64_t g, int32_t begin, int32_t end) {
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

// What a block with the largest visible score `largest` makes of a row's state, per lane.
struct Reference {
  HWY_INLINE Reference(VF old_max, VF largest) {
    const DF d;
    const VF lowest = hn::Set(d, kLowest);
    const auto moves = hn::Gt(largest, hn::Add(old_max, hn::Set(d, kReferenceSlack)));
    // Adding zero leaves one sign of zero, whichever lane won.
    max = hn::IfThenElse(moves, hn::Add(largest, hn::Zero(d)), old_max);
    const VF from = hn::IfThenZeroElse(hn::Eq(max, lowest), max);
    base = hn::IfThenZeroElse(hn::Eq(largest, lowest), largest);
    rescale = hn::IfThenElse(hn::Eq(old_max, lowest), hn::Set(d, 1.0f),
                             Exp2<kBlockDegree>(hn::Sub(old_max, from)));
    top = Exp2<kBlockDegree>(hn::Sub(largest, from));
  }
  VF max;      // the new one
  VF base;     // what the block's scores count from
  VF rescale;  // of what came before
  VF top;      // of the block's weights
};

// Up to 16 rows that are worked on together, so that none waits for reductions of its own.
class Rows {
 public:
  Rows(const WeighTileArgs& args, int64_t first)
      : args_(args), first_(first), count_(HWY_MIN(int64_t{kVirtualLanes}, args.rows - first)) {
    all_see_all_ = count_ == kVirtualLanes;
    for (size_t i = 0; all_see_all_ && i < kVirtualLanes; i += kLanes) {
      const VI begin = hn::LoadU(DI(), args.begin + first + i);
      const VI end = hn::LoadU(DI(), args.end + first + i);
      const VI missing = hn::Or(begin, hn::Xor(end, hn::Set(DI(), kBlockTokens)));
      all_see_all_ = hn::AllTrue(DI(), hn::Eq(missing, hn::Zero(DI())));
    }
  }

  int64_t first() const { return first_; }
  int64_t end() const { return first_ + count_; }
  int64_t count() const { return count_; }
  // There are 16, and each sees every token.
  bool all_see_all() const { return all_see_all_; }
  bool Sees(int64_t row) const { return row < end() && args_.begin[row] < args_.end[row]; }

  // Calls body(r, row) for each that sees something and empty(r) for the others up to 16.
  template <class Body, class Empty>
  HWY_INLINE void ForEach(const Body& body, const Empty& empty) const {
    for (int64_t r = 0; r < int64_t{kVirtualLanes}; ++r) {
      if (all_see_all_ || Sees(first_ + r)) {
        body(r, first_ + r);
      } else {
        empty(r);
      }
    }
  }
  // Copies the rows' part of an array with one number per row, and back what belongs to rows that
  // see something.
  void Load(const float* from, float (&to)[kVirtualLanes]) const {
    for (int64_t r = 0; r < int64_t{kVirtualLanes}; ++r) to[r] = r < count_ ? from[first_ + r] : 0;
  }
  void Store(const float (&from)[kVirtualLanes], float* to) const {
    if (all_see_all_) {
      for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
        hn::StoreU(hn::Load(DF(), from + i), DF(), to + first_ + i);
      }
      return;
    }
    for (int64_t r = 0; r < count_; ++r) {
      if (Sees(first_ + r)) to[first_ + r] = from[r];
    }
  }

 private:
  const WeighTileArgs& args_;
  int64_t first_;
  int64_t count_;
  bool all_see_all_;
};

// Scores, which count from `base`, become weights, that of an unseen token exactly 0.
template <size_t kBytes>
HWY_INLINE void WeighRow(const WeighTileArgs& args, int64_t row, VF base, bool sees_all,
                         VF (&lanes)[kLaneVectors]) {
  const DF d;
  float* const scores = args.scores + row * kBlockTokens;
  VF weights[kTokenVectors];
  for (size_t i = 0; i < kTokenVectors; ++i) {
    weights[i] = Exp2<WeightDegree(kBytes)>(hn::Sub(hn::LoadU(d, scores + i * kLanes), base));
  }
  if (!sees_all) {
    for (size_t i = 0; i < kTokenVectors; ++i) {
      weights[i] =
          hn::IfThenElseZero(Visible(i * kLanes, args.begin[row], args.end[row]), weights[i]);
    }
  }
  for (size_t i = 0; i < kTokenVectors; ++i) {
    hn::StoreU(weights[i], d, scores + i * kLanes);
    VF& sum = lanes[i % kLaneVectors];
    sum = i < kLaneVectors ? weights[i] : hn::Add(sum, weights[i]);
  }
}

HWY_INLINE void LargestOfRow(const WeighTileArgs& args, int64_t row, bool as_they_are,
                             VF (&lanes)[kLaneVectors]) {
  SoftmaxRowArgs prepare = {.scores = args.scores + row * kBlockTokens};
  if (as_they_are) {
    prepare.begin = 0;
    prepare.end = kBlockTokens;
  } else {
    prepare.begin = args.begin[row];
    prepare.end = args.end[row];
    prepare.softcap = args.softcap;
    prepare.factor = args.to_base2;
  }
  PrepareRow(prepare, lanes);
}

template <size_t kBytes>
HWY_NOINLINE void WeighRows(const WeighTileArgs& args, const Rows& rows) {
  const DF d;
  alignas(64) float max[kVirtualLanes];
  alignas(64) float sum[kVirtualLanes];
  alignas(64) float base[kVirtualLanes];
  alignas(64) float rescale[kVirtualLanes];
  alignas(64) float top[kVirtualLanes];
  alignas(64) float totals[kVirtualLanes] = {};
  SixteenRows lanes;
  rows.Load(args.max, max);
  rows.Load(args.sum, sum);
  const bool as_they_are = rows.all_see_all() && args.softcap <= 0 && args.to_base2 == 1.0f;
  const auto empty = [&](int64_t r) HWY_ATTR {
    for (VF& v : lanes[r]) v = hn::Set(d, kLowest);
  };
  if (as_they_are) {
    rows.ForEach([&](int64_t r, int64_t row) HWY_ATTR { LargestOfRow(args, row, true, lanes[r]); },
                 empty);
  } else {
    rows.ForEach([&](int64_t r, int64_t row) HWY_ATTR { LargestOfRow(args, row, false, lanes[r]); },
                 empty);
  }
  ReduceRows<LargestLane>(lanes, totals);
  for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
    const Reference reference(hn::Load(d, max + i), hn::Load(d, totals + i));
    hn::Store(reference.max, d, max + i);
    hn::Store(reference.base, d, base + i);
    hn::Store(reference.rescale, d, rescale + i);
    hn::Store(reference.top, d, top + i);
  }
  const auto weigh = [&](int64_t r, int64_t row, bool sees_all) HWY_ATTR {
    WeighRow<kBytes>(args, row, hn::Set(d, base[r]), sees_all, lanes[r]);
  };
  const auto none = [&](int64_t r) HWY_ATTR {
    for (VF& v : lanes[r]) v = hn::Zero(d);
  };
  if (rows.all_see_all()) {
    rows.ForEach([&](int64_t r, int64_t row) HWY_ATTR { weigh(r, row, true); }, none);
  } else {
    rows.ForEach([&](int64_t r, int64_t row) HWY_ATTR { weigh(r, row, false); }, none);
  }
  ReduceRows<AddLanes>(lanes, totals);
  for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
    const VF before = hn::Mul(hn::Load(d, sum + i), hn::Load(d, rescale + i));
    hn::Store(hn::MulAdd(hn::Load(d, top + i), hn::Load(d, totals + i), before), d, sum + i);
  }
  for (int64_t row = rows.first(); row < rows.end(); ++row) args.rescale[row] = 1.0f;
  rows.Store(max, args.max);
  rows.Store(sum, args.sum);
  rows.Store(rescale, args.rescale);
  rows.Store(top, args.out.tops);
}

// A group's numbers per token, to be kept in registers.
HWY_INLINE void LoadTokens(const float* from, VF (&to)[kTokenVectors]) {
  for (size_t i = 0; i < kTokenVectors; ++i) to[i] = hn::Load(DF(), from + i * kLanes);
}

// Rounds a row's weights for a group that was loaded for what it sees. Returns the start of its
// value sums.
template <class Dot>
HWY_INLINE int32_t RoundRow(const float* from, const VF (&ratios)[kTokenVectors],
                            const VF (&centres)[kTokenVectors], const typename Dot::Signs& signs,
                            std::byte* to, VF (&shifts)[kLaneVectors]) {
  const DF d;
  VF weights[kTokenVectors];
  VI codes[kTokenVectors];
  for (size_t i = 0; i < kTokenVectors; ++i) {
    weights[i] = hn::LoadU(d, from + i * kLanes);
    codes[i] = hn::BitCast(DI(), hn::MulAdd(weights[i], ratios[i], hn::Set(d, kRoundToBits)));
  }
  for (size_t i = 0; i < kTokenVectors; ++i) {
    VF& shift = shifts[i % kLaneVectors];
    shift = hn::MulAdd(weights[i], centres[i], i < kLaneVectors ? hn::Zero(d) : shift);
  }
  return Dot::StoreWeights(codes, signs, to);
}

template <class Dot>
HWY_INLINE int32_t RoundRow(const float* from, const ValueGroup<Dot>& group, std::byte* to,
                            VF (&shifts)[kLaneVectors]) {
  VF ratios[kTokenVectors];
  VF centres[kTokenVectors];
  LoadTokens(group.ratios, ratios);
  LoadTokens(group.centres, centres);
  return RoundRow<Dot>(from, ratios, centres, group.signs, to, shifts);
}

// The same of the row's own step and centres, those of what it sees.
template <class Dot>
HWY_NOINLINE int32_t RoundPartOfRow(const WeighTileArgs& args, const PackedPlane& plane, int64_t g,
                                    int64_t row, std::byte* to, float* step,
                                    VF (&shifts)[kLaneVectors]) {
  const ValueGroup<Dot> own(plane, g, args.begin[row], args.end[row]);
  *step = own.step;
  return RoundRow<Dot>(args.scores + row * kBlockTokens, own, to, shifts);
}

// Rounds weights for group g.
template <class Dot>
HWY_NOINLINE void RoundRows(const WeighTileArgs& args, const PackedPlane& plane, int64_t g,
                            const ValueGroup<Dot>& group, const Rows& rows) {
  const DF d;
  SixteenRows lanes;
  alignas(64) float steps[kVirtualLanes];
  alignas(64) float shifts[kVirtualLanes] = {};
  alignas(64) float top[kVirtualLanes];
  for (float& step : steps) step = group.step;
  const int64_t stride = plane.dim / plane.group * IntegerWeights::kCodeBytes;
  std::byte* const codes = args.out.codes + rows.first() * stride + g * IntegerWeights::kCodeBytes;
  const float* const weights = args.scores + rows.first() * kBlockTokens;
  int32_t* const starts = args.out.starts + g * args.rows + rows.first();
  if (rows.all_see_all()) {
    VF ratios[kTokenVectors];
    VF centres[kTokenVectors];
    LoadTokens(group.ratios, ratios);
    LoadTokens(group.centres, centres);
    for (int64_t r = 0; r < int64_t{kVirtualLanes}; ++r) {
      starts[r] = RoundRow<Dot>(weights + r * kBlockTokens, ratios, centres, group.signs,
                                codes + r * stride, lanes[r]);
    }
  } else {
    rows.ForEach(
        [&](int64_t r, int64_t row) HWY_ATTR {
          starts[r] =
              args.begin[row] == 0 && args.end[row] == kBlockTokens
                  ? RoundRow<Dot>(weights + r * kBlockTokens, group, codes + r * stride, lanes[r])
                  : RoundPartOfRow<Dot>(args, plane, g, row, codes + r * stride, &steps[r],
                                        lanes[r]);
        },
        [&](int64_t r) HWY_ATTR {
          for (VF& v : lanes[r]) v = hn::Zero(d);
        });
  }
  ReduceRows<AddLanes>(lanes, shifts);
  rows.Load(args.out.tops, top);
  for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
    const VF tops = hn::Load(d, top + i);
    hn::Store(hn::Mul(hn::Load(d, steps + i), tops), d, steps + i);
    hn::Store(hn::Mul(hn::Load(d, shifts + i), tops), d, shifts + i);
  }
  rows.Store(steps, args.out.steps + g * args.rows);
  rows.Store(shifts, args.out.shifts + g * args.rows);
}

// Rows one by one, with the same operations.
template <size_t kBytes>
HWY_NOINLINE void WeighFewRows(const WeighTileArgs& args, PlanePrefetch& fetch) {
  const DF d;
  for (int64_t row = 0; row < args.rows; ++row) {
    fetch.Step();
    args.rescale[row] = 1.0f;
    if (args.begin[row] >= args.end[row]) continue;
    VF lanes[kLaneVectors];
    LargestOfRow(args, row, false, lanes);
    const Reference reference(hn::Set(d, args.max[row]), hn::Set(d, LargestLane::Reduce(lanes)));
    const bool sees_all = args.begin[row] == 0 && args.end[row] == kBlockTokens;
    WeighRow<kBytes>(args, row, reference.base, sees_all, lanes);
    const VF before = hn::Mul(hn::Set(d, args.sum[row]), reference.rescale);
    args.sum[row] = hn::GetLane(hn::MulAdd(reference.top, hn::Set(d, SumLanes(lanes)), before));
    args.max[row] = hn::GetLane(reference.max);
    args.rescale[row] = hn::GetLane(reference.rescale);
    args.out.tops[row] = hn::GetLane(reference.top);
  }
}

template <class Dot>
HWY_NOINLINE void RoundFewRows(const WeighTileArgs& args, const PackedPlane& plane, int64_t g,
                               const ValueGroup<Dot>& group, PlanePrefetch& fetch) {
  const int64_t groups = plane.dim / plane.group;
  for (int64_t row = 0; row < args.rows; ++row) {
    fetch.Step();
    if (args.begin[row] >= args.end[row]) continue;
    const bool sees_all = args.begin[row] == 0 && args.end[row] == kBlockTokens;
    std::byte* const codes = args.out.codes + (row * groups + g) * IntegerWeights::kCodeBytes;
    const int64_t at = g * args.rows + row;
    const float top = args.out.tops[row];
    float step = group.step;
    VF lanes[kLaneVectors];
    args.out.starts[at] = sees_all
                              ? RoundRow<Dot>(args.scores + row * kBlockTokens, group, codes, lanes)
                              : RoundPartOfRow<Dot>(args, plane, g, row, codes, &step, lanes);
    args.out.steps[at] = step * top;
    args.out.shifts[at] = SumLanes(lanes) * top;
  }
}

template <size_t kBits, size_t kBytes>
void Weigh(const WeighTileArgs& args) noexcept {
  using Dot = IntegerDot<kBits, kBytes>;
  constexpr int64_t kRows = kVirtualLanes;
  const bool few = args.rows <= kFewRows;
  const PackedPlane plane(args.codec, args.values, args.value_dim);
  const int64_t groups = plane.dim / plane.group;
  const int64_t tiles = few ? args.rows : (args.rows + kRows - 1) / kRows;
  PlanePrefetch fetch(args.fetch, args.fetch_bytes, tiles * (1 + groups));
  if (few) WeighFewRows<kBytes>(args, fetch);
  for (int64_t row = 0; !few && row < args.rows; row += kRows) {
    fetch.Step();
    WeighRows<kBytes>(args, Rows(args, row));
  }
  for (int64_t g = 0; g < groups; ++g) {
    const ValueGroup<Dot> group(plane, g, 0, kBlockTokens);
    if (few) {
      RoundFewRows<Dot>(args, plane, g, group, fetch);
      continue;
    }
    for (int64_t row = 0; row < args.rows; row += kRows) {
      fetch.Step();
      RoundRows<Dot>(args, plane, g, group, Rows(args, row));
    }
  }
}

template <size_t kBits, size_t kBytes>
void Fill(KernelTable* table) {
  table->integer_kv[kBytes - 1][KvFormatIndex(KvCodec::Affine(kBits, 64))].weigh_tile =
      Weigh<kBits, kBytes>;
}

}  // namespace

void FillIntegerWeights(KernelTable* table) {
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
KVASIR_FILL_BY_ISA(FillIntegerWeights)
#endif
