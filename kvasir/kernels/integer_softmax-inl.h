// The softmax of blocks whose values are summed in integers: scores become weights that count from
// the block's own maximum (kernels.h, IntegerKvKernels).
// Deliberately without what comes before and after: integer_maxima.cc has the largest scores,
// integer_weights.cc and half_sums.cc have the rounders that make integers of the weights.
#if defined(KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_
#undef KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_
#else
#define KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_
#endif

#include "hwy/highway.h"
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"

KVASIR_BEFORE_BYTE_DOT();
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

// What a block with the largest visible score `largest` makes of a row's state, per lane.
struct Reference {
  HWY_INLINE Reference(VF old_max, VF largest) {
    const DF d;
    const VF lowest = hn::Set(d, kLowest);
    const auto moves = hn::Gt(largest, hn::Add(old_max, hn::Set(d, kReferenceSlack)));
    max = hn::IfThenElse(moves, largest, old_max);
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
  // Of any of 16 rows from the first on, also those behind the last.
  bool Sees(int64_t row) const {
    return all_see_all_ || (row < end() && args_.begin[row] < args_.end[row]);
  }

  // Copies the rows' part of an array with one number per row, and back what belongs to rows that
  // see something.
  void Load(const float* from, float (&to)[kVirtualLanes]) const {
    if (count_ == kVirtualLanes) {
      // Vectors read what vectors wrote: one that was written in parts would wait for all of them.
      for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
        hn::Store(hn::LoadU(DF(), from + first_ + i), DF(), to + i);
      }
      return;
    }
    for (int64_t r = 0; r < int64_t{kVirtualLanes}; ++r) to[r] = r < count_ ? from[first_ + r] : 0;
  }
  template <class T>
  void Store(const T (&from)[kVirtualLanes], T* to) const {
    const hn::Simd<T, kLanes, 0> d;
    if (all_see_all_) {
      for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
        hn::StoreU(hn::Load(d, from + i), d, to + first_ + i);
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

// A row's weights: of scores that count from `base`, and exactly 0 of an unseen token.
template <size_t kBytes>
HWY_INLINE void WeighRow(const WeighTileArgs& args, int64_t row, VF base, bool sees_all,
                         VF (&weights)[kTokenVectors], VF (&lanes)[kLaneVectors]) {
  const DF d;
  const float* const scores = args.ScoresOf(row);
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
    VF& sum = lanes[i % kLaneVectors];
    sum = i < kLaneVectors ? weights[i] : hn::Add(sum, weights[i]);
  }
}

HWY_INLINE bool SeesAll(const WeighTileArgs& args, int64_t row) {
  return args.begin[row] == 0 && args.end[row] == kBlockTokens;
}

HWY_INLINE void SetLanes(float value, VF (&lanes)[kLaneVectors]) {
  for (VF& v : lanes) v = hn::Set(DF(), value);
}

// Weighs 16 rows and rounds each row's weights while they are in registers. Rounder::Sixteen is
// made of a rounder and rows, and has
//   Round(r, weights, sees_all)   the r-th of the rows, which sees something
//   Finish(tops)                  when all are rounded; tops as Reference has them
// kSeeAll: all 16 see everything.
template <size_t kBytes, bool kSeeAll, class Rounder>
HWY_NOINLINE void WeighSixteen(const WeighTileArgs& args, const Rows& rows,
                               const Rounder& rounder) {
  const DF d;
  alignas(64) float max[kVirtualLanes];
  alignas(64) float sum[kVirtualLanes];
  alignas(64) float base[kVirtualLanes];
  alignas(64) float rescale[kVirtualLanes];
  alignas(64) float tops[kVirtualLanes];
  alignas(64) float totals[kVirtualLanes] = {};
  SixteenRows lanes;
  rows.Load(args.max, max);
  rows.Load(args.sum, sum);
  rows.Load(args.largest, totals);
  for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
    const Reference reference(hn::Load(d, max + i), hn::Load(d, totals + i));
    hn::Store(reference.max, d, max + i);
    hn::Store(reference.base, d, base + i);
    hn::Store(reference.rescale, d, rescale + i);
    hn::Store(reference.top, d, tops + i);
  }
  typename Rounder::Sixteen sixteen(rounder, rows);
  for (int64_t r = 0; r < int64_t{kVirtualLanes}; ++r) {
    const int64_t row = rows.first() + r;
    VF weights[kTokenVectors];
    if (kSeeAll || rows.Sees(row)) {
      const bool sees_all = kSeeAll || SeesAll(args, row);
      WeighRow<kBytes>(args, row, hn::Set(d, base[r]), sees_all, weights, lanes[r]);
      sixteen.Round(r, weights, sees_all);
    } else {
      SetLanes(0, lanes[r]);
    }
  }
  ReduceRows<AddLanes>(lanes, totals);
  for (size_t i = 0; i < kVirtualLanes; i += kLanes) {
    const VF before = hn::Mul(hn::Load(d, sum + i), hn::Load(d, rescale + i));
    hn::Store(hn::MulAdd(hn::Load(d, tops + i), hn::Load(d, totals + i), before), d, sum + i);
  }
  for (int64_t row = rows.first(); row < rows.end(); ++row) args.rescale[row] = 1.0f;
  rows.Store(max, args.max);
  rows.Store(sum, args.sum);
  rows.Store(rescale, args.rescale);
  sixteen.Finish(tops);
}

template <size_t kBytes, class Rounder>
HWY_INLINE void WeighRows(const WeighTileArgs& args, const Rows& rows, const Rounder& rounder) {
  if (rows.all_see_all()) return WeighSixteen<kBytes, true>(args, rows, rounder);
  WeighSixteen<kBytes, false>(args, rows, rounder);
}

// Rows one by one, with the same operations. Rounder: RoundOne(row, weights, sees_all, top).
template <size_t kBytes, class Rounder>
HWY_NOINLINE void WeighFewRows(const WeighTileArgs& args, PlanePrefetch& fetch,
                               const Rounder& rounder) {
  const DF d;
  for (int64_t row = 0; row < args.rows; ++row) {
    fetch.Step();
    args.rescale[row] = 1.0f;
    if (args.begin[row] >= args.end[row]) continue;
    const Reference reference(hn::Set(d, args.max[row]), hn::Set(d, args.largest[row]));
    const bool sees_all = SeesAll(args, row);
    VF weights[kTokenVectors];
    VF lanes[kLaneVectors];
    WeighRow<kBytes>(args, row, reference.base, sees_all, weights, lanes);
    const VF before = hn::Mul(hn::Set(d, args.sum[row]), reference.rescale);
    args.sum[row] = hn::GetLane(hn::MulAdd(reference.top, hn::Set(d, SumLanes(lanes)), before));
    args.max[row] = hn::GetLane(reference.max);
    args.rescale[row] = hn::GetLane(reference.rescale);
    rounder.RoundOne(row, weights, sees_all, hn::GetLane(reference.top));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_
