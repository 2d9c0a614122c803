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
// Rows that are worked on together, so that none waits for reductions of its own.
constexpr size_t kRowsTogether = 4 * kVirtualLanes;
// Whether two rows' weights fit into registers.
constexpr bool kWeighAhead = kTokenVectors <= 4;

// 2^x for vectors of x <= 8 or NaN (integer_steps.h), which replace them. Each of the steps is one
// for all vectors, which need not wait for each other.
template <int kDegree, size_t kCount>
class Exp2Steps {
 public:
  static constexpr int kSteps = kDegree + 6;

  // Not a default: that constructor would be compiled without the instructions of this target.
  HWY_INLINE Exp2Steps() {}
  template <int kStep>
  HWY_INLINE void Step(VF (&x)[kCount]) {
    const DF d;
    constexpr auto& kTerms = Exp2Poly<kDegree>::kTerms;
#pragma GCC unroll 16
    for (size_t i = 0; i < kCount; ++i) {
      if constexpr (kStep == 0) {
        x[i] = AtLeast(hn::Set(d, kExp2Min), x[i]);
      } else if constexpr (kStep == 1) {
        // NaN becomes an integer whose lowest bits are 0, so that its exponent stays.
        n_[i] = RoundToInt(x[i]);
      } else if constexpr (kStep == 2) {
        p_[i] = hn::ConvertTo(d, n_[i]);
      } else if constexpr (kStep == 3) {
        x[i] = hn::Sub(x[i], p_[i]);
        p_[i] = hn::Set(d, kTerms[kDegree - 1]);
      } else if constexpr (kStep == 4) {
        n_[i] = hn::ShiftLeft<23>(n_[i]);
      } else if constexpr (kStep < kSteps - 1) {
        // Terms from the last but one to the first, then 1.
        constexpr int kTerm = kDegree - 2 - (kStep - 5);
        p_[i] = hn::MulAdd(p_[i], x[i], hn::Set(d, kTerm < 0 ? 1.0f : kTerms[HWY_MAX(kTerm, 0)]));
      } else {
        x[i] = hn::BitCast(d, hn::Add(hn::BitCast(DI(), p_[i]), n_[i]));
      }
    }
  }
  template <int kFirst = 0>
  HWY_INLINE void AllSteps(VF (&x)[kCount]) {
    Step<kFirst>(x);
    if constexpr (kFirst + 1 < kSteps) AllSteps<kFirst + 1>(x);
  }

 private:
  VI n_[kCount];
  VF p_[kCount];
};

template <int kDegree>
HWY_INLINE VF Exp2(VF x) {
  VF one[1] = {x};
  Exp2Steps<kDegree, 1>().AllSteps(one);
  return one[0];
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

// Weights of kCount vectors of scores that count from `base`, in steps.
template <size_t kBytes, size_t kCount>
class WeightSteps {
 public:
  static constexpr int kSteps = Exp2Steps<WeightDegree(kBytes), kCount>::kSteps + 1;

  HWY_INLINE WeightSteps() {}
  template <int kStep>
  HWY_INLINE void Step(const float* scores, VF base, VF (&weights)[kCount]) {
    if constexpr (kStep == 0) {
#pragma GCC unroll 16
      for (size_t i = 0; i < kCount; ++i) {
        weights[i] = hn::Sub(hn::LoadU(DF(), scores + i * kLanes), base);
      }
    } else {
      exp2_.template Step<kStep - 1>(weights);
    }
  }
  template <int kFirst = 0>
  HWY_INLINE void AllSteps(const float* scores, VF base, VF (&weights)[kCount]) {
    Step<kFirst>(scores, base, weights);
    if constexpr (kFirst + 1 < kSteps) AllSteps<kFirst + 1>(scores, base, weights);
  }

 private:
  Exp2Steps<WeightDegree(kBytes), kCount> exp2_;
};

HWY_INLINE void AddWeights(const VF (&weights)[kTokenVectors], VF (&lanes)[kLaneVectors]) {
  for (size_t i = 0; i < kTokenVectors; ++i) {
    VF& sum = lanes[i % kLaneVectors];
    sum = i < kLaneVectors ? weights[i] : hn::Add(sum, weights[i]);
  }
}

// A row's weights, exactly 0 of an unseen token.
template <size_t kBytes>
HWY_INLINE void WeighRow(const WeighTileArgs& args, int64_t row, VF base, bool sees_all,
                         VF (&weights)[kTokenVectors], VF (&lanes)[kLaneVectors]) {
  constexpr size_t kCount = kWeighAhead ? kTokenVectors : 1;
  const float* const scores = args.ScoresOf(row);
  for (size_t first = 0; first < kTokenVectors; first += kCount) {
    VF some[kCount];
    WeightSteps<kBytes, kCount>().AllSteps(scores + first * kLanes, base, some);
    for (size_t i = 0; i < kCount; ++i) weights[first + i] = some[i];
  }
  if (!sees_all) {
    for (size_t i = 0; i < kTokenVectors; ++i) {
      weights[i] =
          hn::IfThenElseZero(Visible(i * kLanes, args.begin[row], args.end[row]), weights[i]);
    }
  }
  AddWeights(weights, lanes);
}

// How often weights are a chance to fetch something: one row of few, or sixteen of them.
inline int64_t WeighSteps(int64_t rows) {
  constexpr int64_t kSixteen = kVirtualLanes;
  return rows <= kFewRows ? rows : (rows + kSixteen - 1) / kSixteen;
}

HWY_INLINE bool SeesAll(const WeighTileArgs& args, int64_t row) {
  return args.begin[row] == 0 && args.end[row] == kBlockTokens;
}

HWY_INLINE void SetLanes(float value, VF (&lanes)[kLaneVectors]) {
  for (VF& v : lanes) v = hn::Set(DF(), value);
}

// What a row's weights are computed from.
struct RowScores {
  const float* scores;
  VF base;
};

// Steps of one row's weights and of rounding those of row r, in turn.
template <int kFirst = 0, class Ahead, class Rounding>
HWY_INLINE void Alternate(Ahead& steps, const RowScores& next, VF (&ahead)[kTokenVectors],
                          Rounding& rounding, int64_t r, const VF (&weights)[kTokenVectors]) {
  if constexpr (kFirst < Ahead::kSteps) {
    steps.template Step<kFirst>(next.scores, next.base, ahead);
  }
  if constexpr (kFirst < Rounding::kSteps) rounding.template Step<kFirst>(r, weights);
  if constexpr (kFirst + 1 < HWY_MAX(Ahead::kSteps, Rounding::kSteps)) {
    Alternate<kFirst + 1>(steps, next, ahead, rounding, r, weights);
  }
}

// The weights of rows that see everything, each row's computed while those of the row before it are
// rounded: a processor that looks at few instructions at once finds some that need not wait. base:
// one more than there are rows.
template <size_t kBytes, class Together>
HWY_INLINE void WeighAhead(const WeighTileArgs& args, const Rows& rows, const float* base,
                           PlanePrefetch& fetch, Together& together, Rows::Lanes& lanes) {
  const DF d;
  const int64_t count = rows.count();
  // Where a row's scores are has to be known early. Behind the last are its own once more.
  const float* scores[kRowsTogether + 1];
  scores[0] = args.ScoresOf(rows.first());
  for (int64_t r = 1; r <= count; ++r) {
    scores[r] = args.ScoresOf(rows.first() + HWY_MIN(r, count - 1));
  }
  VF ahead[kTokenVectors];
  WeighRow<kBytes>(args, rows.first(), hn::Set(d, base[0]), true, ahead, lanes[0]);
  typename Together::AllRows rounding(together);
  for (int64_t r = 0; r < count; ++r) {
    if (r % int64_t{kVirtualLanes} == 0) fetch.Step();
    VF weights[kTokenVectors];
    for (size_t i = 0; i < kTokenVectors; ++i) weights[i] = ahead[i];
    const RowScores next = {scores[r + 1], hn::Set(d, base[r + 1])};
    WeightSteps<kBytes, kTokenVectors> steps;
    Alternate(steps, next, ahead, rounding, r, weights);
    AddWeights(weights, lanes[r]);
  }
}

// The same of any rows, one after the other.
template <size_t kBytes, bool kSeeAll, class Together>
HWY_INLINE void WeighInTurn(const WeighTileArgs& args, const Rows& rows, const float* base,
                            PlanePrefetch& fetch, Together& together, Rows::Lanes& lanes) {
  for (int64_t r = 0; r < static_cast<int64_t>(rows.padded()); ++r) {
    if (r % int64_t{kVirtualLanes} == 0) fetch.Step();
    const int64_t row = rows.first() + r;
    if (kSeeAll || rows.Sees(row)) {
      const bool sees_all = kSeeAll || SeesAll(args, row);
      VF weights[kTokenVectors];
      WeighRow<kBytes>(args, row, hn::Set(DF(), base[r]), sees_all, weights, lanes[r]);
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
//   AllRows                       made of a Together, rounds rows that see everything, without
//                                 keeping, one after the other: Step<k>(r, weights), k < kSteps
//   Finish(tops)                  when all are rounded; tops as Reference has them
// kSeeAll: all see everything.
template <size_t kBytes, bool kSeeAll, class Rounder>
HWY_NOINLINE void WeighTogether(const WeighTileArgs& args, const Rows& rows, PlanePrefetch& fetch,
                                const Rounder& rounder) {
  const DF d;
  alignas(64) float base[kRowsTogether + 1];
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
  base[rows.padded()] = 0;
  typename Rounder::Together together(rounder, rows);
  if constexpr (kSeeAll && kWeighAhead) {
    if (together.keeps()) {
      WeighInTurn<kBytes, true>(args, rows, base, fetch, together, lanes);
    } else {
      WeighAhead<kBytes>(args, rows, base, fetch, together, lanes);
    }
  } else {
    WeighInTurn<kBytes, kSeeAll>(args, rows, base, fetch, together, lanes);
  }
  for (int64_t row = rows.first(); !kSeeAll && row < rows.end(); ++row) args.rescale[row] = 1.0f;
  alignas(64) Rows::Numbers totals;
  rows.Reduce<AddLanes>(lanes, totals);
  for (size_t i = 0; i < rows.padded(); i += kLanes) {
    const VF moved = hn::Load(d, rescale + i);
    const VF before = hn::Mul(rows.Load(args.sum, i), moved);
    rows.Store(hn::MulAdd(hn::Load(d, tops + i), hn::Load(d, totals + i), before), i, args.sum);
    rows.Store(moved, i, args.rescale);
  }
  together.Finish(tops);
}

template <size_t kBytes, class Rounder>
HWY_INLINE void WeighRows(const WeighTileArgs& args, const Rows& rows, PlanePrefetch& fetch,
                          const Rounder& rounder) {
  if (rows.all_see_all()) return WeighTogether<kBytes, true>(args, rows, fetch, rounder);
  WeighTogether<kBytes, false>(args, rows, fetch, rounder);
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
