// What every softmax of a tile begins with: a row's scores of one block capped, what it does not
// see set aside, and its largest per lane. Included once per Highway target. Deliberately no
// exponentials: softmax_tile.cc and integer_softmax-inl.h have their own.
#if defined(KVASIR_KERNELS_SOFTMAX_ROW_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef KVASIR_KERNELS_SOFTMAX_ROW_INL_H_
#undef KVASIR_KERNELS_SOFTMAX_ROW_INL_H_
#else
#define KVASIR_KERNELS_SOFTMAX_ROW_INL_H_
#endif

#include <cstdint>
#include <limits>

#include "hwy/highway.h"
#include "kvasir/kernels/math-inl.h"
#include "kvasir/tensor/kv_layout.h"

HWY_BEFORE_NAMESPACE();
namespace kvasir::HWY_NAMESPACE {

inline constexpr size_t kTokenVectors = kBlockTokens / kLanes;
inline constexpr float kLowest = -std::numeric_limits<float>::infinity();

struct SoftmaxRowArgs {
  float* scores;  // [64]
  int32_t begin;
  int32_t end;
  float softcap = 0;    // 0: off
  float factor = 1.0f;  // of the capped scores
};

// The lanes of 64 tokens from begin on and before end.
HWY_INLINE auto Visible(size_t token, int32_t begin, int32_t end) {
  const DF d;
  const VF position = hn::Iota(d, static_cast<float>(token));
  return hn::And(hn::Ge(position, hn::Set(d, static_cast<float>(begin))),
                 hn::Lt(position, hn::Set(d, static_cast<float>(end))));
}

// Caps and scales the scores, makes those that the row does not see -infinity, and leaves the
// largest per lane.
HWY_INLINE void PrepareRow(const SoftmaxRowArgs& row, VF (&largest)[kLaneVectors]) {
  const DF d;
  const bool as_they_are =
      row.softcap <= 0 && row.factor == 1.0f && row.begin == 0 && row.end == kBlockTokens;
  for (VF& v : largest) v = hn::Set(d, kLowest);
  for (size_t i = 0; i < kTokenVectors; ++i) {
    VF score = hn::LoadU(d, row.scores + i * kLanes);
    if (!as_they_are) {
      if (row.softcap > 0) score = Softcap(d, score, hn::Set(d, row.softcap));
      score = hn::Mul(score, hn::Set(d, row.factor));
      score = hn::IfThenElse(Visible(i * kLanes, row.begin, row.end), score, hn::Set(d, kLowest));
      hn::StoreU(score, d, row.scores + i * kLanes);
    }
    VF& lanes = largest[i % kLaneVectors];
    lanes = MaxIgnoringNan(lanes, score);
  }
}

}  // namespace kvasir::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // KVASIR_KERNELS_SOFTMAX_ROW_INL_H_
