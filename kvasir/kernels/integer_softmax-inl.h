// The softmax of blocks whose values are summed in integers: scores become weights that count from
// the block's own maximum (kernels.h, IntegerKvKernels).
// Deliberately without what comes before and after: integer_maxima.cc has the largest scores,
// row_weights-inl.h the weights of a row, integer_weights.cc and half_sums.cc have the rounders
// that make codes of them.
#if defined(KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_
#undef KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_
#else
#define KVASIR_KERNELS_INTEGER_SOFTMAX_INL_H_
#endif

#include <iterator>

#include "hwy/highway.h"
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/plane_prefetch-inl.h"
#include "kvasir/kernels/row_weights-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Sixteen rows together cost as much as six alone.
constexpr int64_t kFewRows = 5;
// Rows that are worked on together, so that none waits for reductions of its own.
constexpr size_t kRowsTogether = 4 * kVirtualLanes;
// Whether two rows' weights fit into registers.
constexpr bool kWeighAhead = kTokenVectors <= 4;

// 2^x of x <= 16 or NaN (integer_steps.h).
HWY_INLINE VF Exp2(VF x) {
  const DF d;
  x = AtLeast(hn::Set(d, kExp2Min), x);
  // NaN becomes an integer whose lowest bits are 0, so that its exponent stays.
  const VI n = RoundToInt(x);
  const VF r = hn::Sub(x, hn::ConvertTo(d, n));
  constexpr size_t kCount = std::size(kExp2Terms);
  VF p = hn::Set(d, kExp2Terms[kCount - 1]);
  for (size_t i = kCount - 1; i-- > 0;) p = hn::MulAdd(p, r, hn::Set(d, kExp2Terms[i]));
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
    base = hn::Mul(hn::IfThenZeroElse(hn::Eq(largest, lowest), largest), hn::Set(d, kWeightSteps));
    rescale =
        hn::IfThenElse(hn::Eq(old_max, lowest), hn::Set(d, 1.0f), Exp2(hn::Sub(old_max, from)));
    top = Exp2(hn::Sub(largest, from));
  }
  VF max;      // the new one
  VF base;     // what the block's scores count from, in steps of weights
  VF rescale;  // of what came before
  VF top;      // of the block's weights
};

// Some rows that are worked on together: sixteens of them, or the fewer that are left. Arrays with
// a number per row end with a whole sixteen.
class Rows {
 public:
  using Numbers = float[kRowsTogether];
  // What is to be reduced of each row.
  using Lanes = VF[kRowsTogether][kLaneVectors];

  Rows(const WeighTileArgs& args, int64_t first)
      : args_(args), first_(first), count_(CountOf(args.rows - first)) {
    all_see_all_ = count_ % int64_t{kVirtualLanes} == 0;
    for (int64_t i = 0; all_see_all_ && i < count_; i += kLanes) {
      const VI begin = hn::LoadU(DI(), args.begin + first + i);
      const VI end = hn::LoadU(DI(), args.end + first + i);
      const VI missing = hn::Or(begin, hn::Xor(end, hn::Set(DI(), kBlockTokens)));
      all_see_all_ = hn::AllTrue(DI(), hn::Eq(missing, hn::Zero(DI())));
    }
  }

  int64_t first() const { return first_; }
  int64_t end() const { return first_ + count_; }
  int64_t count() const { return count_; }
  // With those behind the last that fill a sixteen.
  size_t padded() const { return hwy::RoundUpTo(static_cast<size_t>(count_), kVirtualLanes); }
  // There are whole sixteens, and each row sees every token.
  bool all_see_all() const { return all_see_all_; }
  // Also of rows behind the last.
  bool Sees(int64_t row) const {
    return all_see_all_ || (row < end() && args_.begin[row] < args_.end[row]);
  }

  // kLanes numbers of an array with one per row, from the i-th of these rows on. Masks are worth it
  // with AVX-512 only.
  HWY_INLINE VF Load(const float* from, size_t i) const {
    const DF d;
    from += first_ + static_cast<int64_t>(i);
    if (count_ % int64_t{kVirtualLanes} == 0) return hn::LoadU(d, from);
#if HWY_TARGET == HWY_AVX3_DL
    return hn::MaskedLoad(Existing(i), d, from);
#else
    alignas(64) float some[kLanes] = {};
    for (int64_t r = 0; r < LanesFrom(i); ++r) some[r] = from[r];
    return hn::Load(d, some);
#endif
  }
  // Writes what belongs to rows that see something.
  template <class T>
  HWY_INLINE void Store(hn::Vec<hn::Rebind<T, DF>> numbers, size_t i, T* to) const {
    const hn::Rebind<T, DF> d;
    to += first_ + static_cast<int64_t>(i);
    if (all_see_all_) return hn::StoreU(numbers, d, to);
#if HWY_TARGET == HWY_AVX3_DL
    const auto existing = hn::RebindMask(DI(), Existing(i));
    const int64_t at = first_ + static_cast<int64_t>(i);
    const VI begin = hn::MaskedLoad(existing, DI(), args_.begin + at);
    const VI end = hn::MaskedLoad(existing, DI(), args_.end + at);
    hn::BlendedStore(numbers, hn::RebindMask(d, hn::Lt(begin, end)), d, to);
#else
    alignas(64) T some[kLanes];
    hn::Store(numbers, d, some);
    for (int64_t r = 0; r < LanesFrom(i); ++r) {
      if (Sees(first_ + static_cast<int64_t>(i) + r)) to[r] = some[r];
    }
#endif
  }

  // Reduces the lanes of each row.
  template <class Op>
  void Reduce(Lanes& lanes, Numbers& to) const {
    for (size_t i = 0; i < padded(); i += kVirtualLanes) {
      ReduceRows<Op>(lanes + i, to + i);
    }
  }

 private:
  // Of kLanes rows from the i-th on, those that there are.
  int64_t LanesFrom(size_t i) const {
    return HWY_MIN(count_ - static_cast<int64_t>(i), static_cast<int64_t>(kLanes));
  }
  HWY_INLINE hn::Mask<DF> Existing(size_t i) const {
    return hn::FirstN(DF(), static_cast<size_t>(LanesFrom(i)));
  }
  static int64_t CountOf(int64_t left) {
    constexpr int64_t kSixteen = kVirtualLanes;
    if (left < kSixteen) return left;
    return HWY_MIN(left / kSixteen * kSixteen, int64_t{kRowsTogether});
  }

  const WeighTileArgs& args_;
  int64_t first_;
  int64_t count_;
  bool all_see_all_;
};

// How often weights are a chance to fetch something: one row of few, or sixteen of them.
inline int64_t WeighSteps(int64_t rows) {
  constexpr int64_t kSixteen = kVirtualLanes;
  return rows <= kFewRows ? rows : (rows + kSixteen - 1) / kSixteen;
}

HWY_INLINE bool SeesAll(const WeighTileArgs& args, int64_t row) {
  return args.begin[row] == 0 && args.end[row] == kBlockTokens;
}

// What a row's weights are computed from: one address in a loop instead of two.
struct RowScores {
  const float* scores;
  float base;
};

// Rows whose weights are computed side by side.
constexpr size_t kRowsAhead = 2;

// Steps of some rows' weights and of rounding those of as many from row r on, in turn.
template <int kFirst = 0, class Ahead, class Rounding>
HWY_INLINE void Alternate(Ahead (&steps)[kRowsAhead], const RowScores* next,
                          Shorts (&ahead)[kRowsAhead], Rounding (&rounding)[kRowsAhead], int64_t r,
                          const Shorts (&weights)[kRowsAhead]) {
#pragma GCC unroll 4
  for (size_t i = 0; i < kRowsAhead; ++i) {
    if constexpr (kFirst < Ahead::kSteps) {
      steps[i].template Step<kFirst>(next[i].scores, hn::Set(DF(), next[i].base), ahead[i]);
    }
  }
#pragma GCC unroll 4
  for (size_t i = 0; i < kRowsAhead; ++i) {
    if constexpr (kFirst < Rounding::kSteps) {
      rounding[i].template Step<kFirst>(r + static_cast<int64_t>(i), weights[i]);
    }
  }
  if constexpr (kFirst + 1 < HWY_MAX(Ahead::kSteps, Rounding::kSteps)) {
    Alternate<kFirst + 1>(steps, next, ahead, rounding, r, weights);
  }
}

// The weights of rows that see everything, computed while those of the rows before them are
// rounded: a processor that looks at few instructions at once finds some that need not wait.
// Returns whether no scores were a trouble; else what it has left means nothing.
template <class Together>
HWY_INLINE bool WeighAhead(const WeighTileArgs& args, const Rows& rows, const float* base,
                           PlanePrefetch& fetch, Together& together, Rows::Lanes& lanes) {
  const int64_t count = rows.count();
  // Where a row's scores are has to be known early. Behind the last are its own once more.
  RowScores from[kRowsTogether + kRowsAhead];
  for (int64_t r = 0; r < count + static_cast<int64_t>(kRowsAhead); ++r) {
    const int64_t i = HWY_MIN(r, count - 1);
    from[r] = {args.ScoresOf(rows.first() + i), base[i]};
  }
  Troubles troubles;
  Shorts ahead[kRowsAhead];
  for (size_t i = 0; i < kRowsAhead; ++i) {
    WeightSteps(&troubles).AllSteps(from[i].scores, hn::Set(DF(), from[i].base), ahead[i]);
  }
  using Rounding = typename Together::AllRows;
  Rounding rounding[kRowsAhead] = {Rounding(together), Rounding(together)};
  for (int64_t r = 0; r < count; r += kRowsAhead) {
    if (r % int64_t{kVirtualLanes} == 0) fetch.Step();
    Shorts weights[kRowsAhead];
    for (size_t i = 0; i < kRowsAhead; ++i) {
      for (size_t v = 0; v < kShortVectors; ++v) weights[i][v] = ahead[i][v];
    }
    WeightSteps steps[kRowsAhead] = {WeightSteps(&troubles), WeightSteps(&troubles)};
    Alternate(steps, from + r + kRowsAhead, ahead, rounding, r, weights);
    for (size_t i = 0; i < kRowsAhead; ++i) {
      AddWeights(weights[i], lanes[r + static_cast<int64_t>(i)]);
    }
  }
  return !troubles.Found();
}

// The same of any rows, one after the other.
template <bool kSeeAll, class Together>
HWY_INLINE void WeighInTurn(const WeighTileArgs& args, const Rows& rows, const float* base,
                            PlanePrefetch& fetch, Together& together, Rows::Lanes& lanes) {
  for (int64_t r = 0; r < static_cast<int64_t>(rows.padded()); ++r) {
    if (r % int64_t{kVirtualLanes} == 0) fetch.Step();
    const int64_t row = rows.first() + r;
    if (kSeeAll || rows.Sees(row)) {
      const bool sees_all = kSeeAll || SeesAll(args, row);
      Shorts weights;
      WeighRow(args, row, hn::Set(DF(), base[r]), sees_all, weights, lanes[r]);
      together.Round(r, weights, sees_all);
    } else {
      SetLanes(0, lanes[r]);
    }
  }
}

// Weighs rows and rounds each row's weights while they are in registers. Rounder::Together is made
// of a rounder and rows, and has
//   Round(r, weights, sees_all)   the r-th of the rows, which sees something
//   keeps()                       whether that keeps the weights
//   AllRows                       made of a Together, several side by side, rounds rows that see
//                                 everything, without keeping: Step<k>(r, weights), k < kSteps
//   Finish(tops)                  when all are rounded; tops as Reference has them
// kSeeAll: all see everything.
template <bool kSeeAll, class Rounder>
HWY_NOINLINE void WeighTogether(const WeighTileArgs& args, const Rows& rows, PlanePrefetch& fetch,
                                const Rounder& rounder) {
  const DF d;
  alignas(64) Rows::Numbers base;
  alignas(64) Rows::Numbers rescale;
  alignas(64) Rows::Numbers tops;
  Rows::Lanes lanes;
  for (size_t i = 0; i < rows.padded(); i += kLanes) {
    const Reference reference(rows.Load(args.max, i), rows.Load(args.largest, i));
    rows.Store(reference.max, i, args.max);
    hn::Store(reference.base, d, base + i);
    hn::Store(reference.rescale, d, rescale + i);
    hn::Store(reference.top, d, tops + i);
  }
  typename Rounder::Together together(rounder, rows);
  if constexpr (kSeeAll && kWeighAhead) {
    if (together.keeps() || !WeighAhead(args, rows, base, fetch, together, lanes)) {
      WeighInTurn<true>(args, rows, base, fetch, together, lanes);
    }
  } else {
    WeighInTurn<kSeeAll>(args, rows, base, fetch, together, lanes);
  }
  for (int64_t row = rows.first(); !kSeeAll && row < rows.end(); ++row) args.rescale[row] = 1.0f;
  alignas(64) Rows::Numbers totals;
  rows.Reduce<AddLanes>(lanes, totals);
  for (size_t i = 0; i < rows.padded(); i += kLanes) {
    const VF moved = hn::Load(d, rescale + i);
    const VF before = hn::Mul(rows.Load(args.sum, i), moved);
    const VF total = hn::Mul(hn::Load(d, totals + i), hn::Set(d, kWeightUnit));
    rows.Store(hn::MulAdd(hn::Load(d, tops + i), total, before), i, args.sum);
    rows.Store(moved, i, args.rescale);
  }
  together.Finish(tops);
}

template <class Rounder>
HWY_INLINE void WeighRows(const WeighTileArgs& args, const Rows& rows, PlanePrefetch& fetch,
                          const Rounder& rounder) {
  if (rows.all_see_all()) return WeighTogether<true>(args, rows, fetch, rounder);
  WeighTogether<false>(args, rows, fetch, rounder);
}

// Rows one by one, with the same operations. Rounder: RoundOne(row, weights, sees_all, top).
template <class Rounder>
HWY_NOINLINE void WeighFewRows(const WeighTileArgs& args, PlanePrefetch& fetch,
                               const Rounder& rounder) {
  const DF d;
  for (int64_t row = 0; row < args.rows; ++row) {
    fetch.Step();
    args.rescale[row] = 1.0f;
    if (args.begin[row] >= args.end[row]) continue;
    const Reference reference(hn::Set(d, args.max[row]), hn::Set(d, args.largest[row]));
    const bool sees_all = SeesAll(args, row);
    Shorts weights;
    VF lanes[kLaneVectors];
    WeighRow(args, row, reference.base, sees_all, weights, lanes);
    const VF before = hn::Mul(hn::Set(d, args.sum[row]), reference.rescale);
    const VF total = hn::Set(d, SumLanes(lanes) * kWeightUnit);
    args.sum[row] = hn::GetLane(hn::MulAdd(reference.top, total, before));
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
