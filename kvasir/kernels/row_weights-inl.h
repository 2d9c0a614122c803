// A row's weights of one block, as integers of 16 bits (integer_steps.h), their sums, and what they
// are multiplied with. Included once per Highway target.
// Deliberately of one row alone: integer_softmax-inl.h has states and rows that are worked on
// together.
#if defined(KVASIR_KERNELS_ROW_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_ROW_WEIGHTS_INL_H_
#undef KVASIR_KERNELS_ROW_WEIGHTS_INL_H_
#else
#define KVASIR_KERNELS_ROW_WEIGHTS_INL_H_
#endif

#include <limits>

#include "hwy/highway.h"
#include "kvasir/kernels/integer_dot-inl.h"
#include "kvasir/kernels/short_lanes-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

// Which tokens of a block are seen: numbers of the others, from `token` on, become 0.
struct AllTokens {
  HWY_INLINE VF IfSeen(size_t, VF numbers) const { return numbers; }
};
struct TokensBetween {
  int32_t begin;
  int32_t end;
  HWY_INLINE VF IfSeen(size_t token, VF numbers) const {
    return hn::IfThenElseZero(Visible(token, begin, end), numbers);
  }
};

// Numbers of a block's tokens, rounded to integers of at most `levels` in magnitude. Returns their
// step.
HWY_INLINE float RoundToShorts(const VF (&numbers)[kTokenVectors], float levels,
                               int16_t (&out)[kBlockTokens]) {
  VU largest[kTokenVectors];
  // Unrolled early: what a loop indexes would go through memory.
#pragma GCC unroll 16
  for (size_t i = 0; i < kTokenVectors; ++i) largest[i] = MagnitudeBits(numbers[i]);
  const IntegerSteps steps = IntegerStepsOf(LargestBits(largest), levels);
  VI rounded[kTokenVectors];
#pragma GCC unroll 16
  for (size_t i = 0; i < kTokenVectors; ++i) {
    rounded[i] = steps.inverse == 0 ? hn::Zero(DI())
                                    : RoundToInt(hn::Mul(numbers[i], hn::Set(DF(), steps.inverse)));
  }
  StoreShorts(rounded, out);
  return steps.scale;
}

// Whether among scores is one that no weight can be made of in the short way: NaN, or so far below
// the largest that the distance fits no integer.
class Troubles {
 public:
  HWY_INLINE Troubles() : signs_(hn::Zero(DI())) {}
  // n: distances, rounded as RoundToInt does it: on x86 to the lowest integer where they do not
  // fit, elsewhere to the nearest one that does, or to 0 of NaN.
  HWY_INLINE void Add([[maybe_unused]] const VF (&distances)[kTokenVectors],
                      [[maybe_unused]] const VI (&n)[kTokenVectors]) {
#if HWY_TARGET == HWY_AVX3_DL
    // Three at once, which g++ 12 does not find.
    for (size_t i = 0; i < kTokenVectors; i += 2) {
      signs_ = VI{_mm512_ternarylogic_epi32(signs_.raw, n[i].raw, n[i + 1].raw, 0xFE)};
    }
#elif HWY_ARCH_X86
    for (size_t i = 0; i < kTokenVectors; ++i) signs_ = hn::Or(signs_, n[i]);
#else
    for (size_t i = 0; i < kTokenVectors; ++i) {
      signs_ = hn::Or(signs_, hn::VecFromMask(DI(), hn::RebindMask(DI(), hn::IsNaN(distances[i]))));
    }
#endif
  }
  HWY_INLINE bool Found() const { return !hn::AllFalse(DI(), hn::Lt(signs_, hn::Zero(DI()))); }

 private:
  VI signs_;
};

// From a row's distances, rounded, to its weights, in steps.
class ShortWeights {
 public:
  static constexpr int kSteps = 9;

  HWY_INLINE ShortWeights() {}
  template <int kStep>
  HWY_INLINE void Step(const VI (&n)[kTokenVectors], Shorts& weights) {
    const DS d;
#pragma GCC unroll 16
    for (size_t i = 0; i < kShortVectors; ++i) {
      VS& w = weights[i];
      if constexpr (kStep == 0) {
        distance_[i] = NarrowUnsigned(n[FirstOf(i)], n[FirstOf(i) + kLaneVectors]);
      } else if constexpr (kStep == 1) {
        fraction_[i] = hn::ShiftLeft<16 - kWeightFractionBits>(distance_[i]);
      } else if constexpr (kStep == 2) {
        w = MulHighUnsigned(fraction_[i], hn::Set(d, kWeightTerms[2]));
      } else if constexpr (kStep == 3) {
        w = hn::Sub(hn::Set(d, kWeightTerms[1]), w);
      } else if constexpr (kStep == 4) {
        w = MulHighUnsigned(fraction_[i], w);
      } else if constexpr (kStep == 5) {
        w = hn::Sub(hn::Set(d, kWeightTerms[0]), w);
      } else if constexpr (kStep == 6) {
        w = MulHighUnsigned(fraction_[i], w);
        distance_[i] = ShiftRightUnsigned<kWeightFractionBits>(distance_[i]);
      } else if constexpr (kStep == 7) {
        w = hn::Sub(w, hn::Set(d, kLargestWeight));
      } else {
        w = RoundingShift(w, distance_[i]);
      }
    }
  }
  template <int kFirst = 0>
  HWY_INLINE void AllSteps(const VI (&n)[kTokenVectors], Shorts& weights) {
    Step<kFirst>(n, weights);
    if constexpr (kFirst + 1 < kSteps) AllSteps<kFirst + 1>(n, weights);
  }

 private:
  Shorts distance_;
  Shorts fraction_;
};

// How far a row's scores are below `base`, which is in steps of weights, in such steps.
HWY_INLINE VF DistanceOf(const float* scores, size_t i, VF base) {
  const DF d;
  return hn::NegMulAdd(hn::LoadU(d, scores + i * kLanes), hn::Set(d, kWeightSteps), base);
}

// Weights of scores that count from `base`, in steps.
class WeightSteps {
 public:
  static constexpr int kSteps = ShortWeights::kSteps + 2;

  HWY_INLINE explicit WeightSteps(Troubles* troubles) : troubles_(troubles) {}
  template <int kStep>
  HWY_INLINE void Step(const float* scores, VF base, Shorts& weights) {
    if constexpr (kStep == 0) {
#pragma GCC unroll 16
      for (size_t i = 0; i < kTokenVectors; ++i) distances_[i] = DistanceOf(scores, i, base);
    } else if constexpr (kStep == 1) {
#pragma GCC unroll 16
      for (size_t i = 0; i < kTokenVectors; ++i) rounded_[i] = RoundToInt(distances_[i]);
      troubles_->Add(distances_, rounded_);
    } else {
      short_.template Step<kStep - 2>(rounded_, weights);
    }
  }
  template <int kFirst = 0>
  HWY_INLINE void AllSteps(const float* scores, VF base, Shorts& weights) {
    Step<kFirst>(scores, base, weights);
    if constexpr (kFirst + 1 < kSteps) AllSteps<kFirst + 1>(scores, base, weights);
  }

 private:
  Troubles* troubles_;
  VF distances_[kTokenVectors];
  VI rounded_[kTokenVectors];
  ShortWeights short_;
};

HWY_INLINE void AddWeights(const Shorts& weights, VF (&lanes)[kLaneVectors]) {
  SumPairs(weights, Ones(), lanes);
}

HWY_INLINE void SetLanes(float value, VF (&lanes)[kLaneVectors]) {
  for (VF& v : lanes) v = hn::Set(DF(), value);
}

// A row's weights whatever its scores are and whatever it sees of them: 0 of an unseen token, and
// NaN as the sum if there is one among those seen.
HWY_NOINLINE void WeighCarefully(const float* scores, float base, int32_t begin, int32_t end,
                                 Shorts& weights, VF (&lanes)[kLaneVectors]) {
  const DF d;
  const VF farthest = hn::Set(d, kFarthestWeight);
  VI rounded[kTokenVectors];
  bool has_nan = false;
  for (size_t i = 0; i < kTokenVectors; ++i) {
    const auto visible = Visible(i * kLanes, begin, end);
    const VF distance = DistanceOf(scores, i, hn::Set(d, base));
    has_nan = has_nan || !hn::AllFalse(d, hn::And(visible, hn::IsNaN(distance)));
    const auto near = hn::And(visible, hn::Lt(distance, farthest));
    rounded[i] = RoundToInt(hn::IfThenElse(near, distance, farthest));
  }
  ShortWeights().AllSteps(rounded, weights);
  AddWeights(weights, lanes);
  if (has_nan) SetLanes(std::numeric_limits<float>::quiet_NaN(), lanes);
}

// A row's weights and their sums.
HWY_INLINE void WeighRow(const WeighTileArgs& args, int64_t row, VF base, bool sees_all,
                         Shorts& weights, VF (&lanes)[kLaneVectors]) {
  if (sees_all) {
    Troubles troubles;
    WeightSteps(&troubles).AllSteps(args.ScoresOf(row), base, weights);
    AddWeights(weights, lanes);
    if (!troubles.Found()) return;
  }
  // Apart from `weights`, whose address a loop over rows that see everything need not know.
  Shorts careful;
  WeighCarefully(args.ScoresOf(row), hn::GetLane(base), args.begin[row], args.end[row], careful,
                 lanes);
  for (size_t i = 0; i < kShortVectors; ++i) weights[i] = careful[i];
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_ROW_WEIGHTS_INL_H_
