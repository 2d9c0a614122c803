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
  return RoundRow<Dot>(args.ScoresOf(row), own, to, shifts);
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
  int32_t* const starts = args.out.starts + g * args.rows + rows.first();
  if (rows.all_see_all()) {
    VF ratios[kTokenVectors];
    VF centres[kTokenVectors];
    LoadTokens(group.ratios, ratios);
    LoadTokens(group.centres, centres);
    for (int64_t r = 0; r < int64_t{kVirtualLanes}; ++r) {
      starts[r] = RoundRow<Dot>(args.ScoresOf(rows.first() + r), ratios, centres, group.signs,
                                codes + r * stride, lanes[r]);
    }
  } else {
    // No lambda: clang compiles those without the instructions of KVASIR_BEFORE_BYTE_DOT.
    for (int64_t r = 0; r < int64_t{kVirtualLanes}; ++r) {
      const int64_t row = rows.first() + r;
      std::byte* const to = codes + r * stride;
      if (!rows.Sees(row)) {
        SetLanes(0, lanes[r]);
      } else if (args.begin[row] == 0 && args.end[row] == kBlockTokens) {
        starts[r] = RoundRow<Dot>(args.ScoresOf(row), group, to, lanes[r]);
      } else {
        starts[r] = RoundPartOfRow<Dot>(args, plane, g, row, to, &steps[r], lanes[r]);
      }
    }
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
    args.out.starts[at] = sees_all ? RoundRow<Dot>(args.ScoresOf(row), group, codes, lanes)
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
  PlanePrefetch fetch(args.fetch, args.fetch_bytes, tiles * (1 + groups), args.fetch_into);
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
