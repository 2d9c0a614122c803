// The largest scores of a block, which the softmax of integers begins with, and the rows for which
// they make the block decisive (integer_steps.h). Deliberately only finding those: the caller says
// what they are for.
#include "kvasir/kernels/highway_targets.h"
#include "kvasir/kernels/table_parts.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kvasir/kernels/integer_maxima.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"

#if KVASIR_KERNEL_TARGET
#include "kvasir/kernels/integer_softmax-inl.h"

KVASIR_BEFORE_BYTE_DOT();
namespace kvasir {
namespace HWY_NAMESPACE {
namespace {

HWY_INLINE SoftmaxRowArgs RowOf(const WeighTileArgs& args, int64_t row) {
  return {.scores = args.ScoresOf(row),
          .begin = args.begin[row],
          .end = args.end[row],
          .softcap = args.softcap,
          .factor = args.to_base2};
}

// A row that sees everything, whose scores stay as they are.
HWY_INLINE void LargestOfRow(const float* scores, VF (&lanes)[kLaneVectors]) {
  for (VF& v : lanes) v = hn::Set(DF(), kLowest);
  for (size_t i = 0; i < kTokenVectors; ++i) {
    VF& largest = lanes[i % kLaneVectors];
    largest = MaxIgnoringNan(largest, hn::LoadU(DF(), scores + i * kLanes));
  }
}

// Adding zero leaves one sign of zero, whichever lane won.
HWY_INLINE VF WithOneZero(VF x) { return hn::Add(x, hn::Zero(DF())); }

// From the lanes of all rows.
HWY_INLINE void StoreLargest(const WeighTileArgs& args, const Rows& rows, Rows::Lanes& lanes) {
  alignas(64) Rows::Numbers largest;
  rows.Reduce<LargestLane>(lanes, largest);
  for (size_t i = 0; i < rows.padded(); i += kLanes) {
    rows.Store(WithOneZero(hn::Load(DF(), largest + i)), i, args.largest);
  }
}

// REQUIRES: all see everything, and scores are as they should be.
HWY_NOINLINE void FindLargest(const WeighTileArgs& args, const Rows& rows) {
  Rows::Lanes lanes;
  for (int64_t r = 0; r < rows.count(); ++r) {
    LargestOfRow(args.ScoresOf(rows.first() + r), lanes[r]);
  }
  StoreLargest(args, rows, lanes);
}

HWY_NOINLINE void PrepareRows(const WeighTileArgs& args, const Rows& rows) {
  Rows::Lanes lanes;
  for (int64_t r = 0; r < static_cast<int64_t>(rows.padded()); ++r) {
    const int64_t row = rows.first() + r;
    if (rows.Sees(row)) {
      PrepareRow(RowOf(args, row), lanes[r]);
    } else {
      SetLanes(kLowest, lanes[r]);
    }
  }
  StoreLargest(args, rows, lanes);
}

void PrepareScores(const WeighTileArgs& args) noexcept {
  const bool are_prepared = args.softcap <= 0 && args.to_base2 == 1.0f;
  for (int64_t row = 0; args.rows > kFewRows && row < args.rows;) {
    const Rows rows(args, row);
    row = rows.end();
    if (are_prepared && rows.all_see_all()) {
      FindLargest(args, rows);
    } else {
      PrepareRows(args, rows);
    }
  }
  for (int64_t row = 0; args.rows <= kFewRows && row < args.rows; ++row) {
    if (args.begin[row] >= args.end[row]) continue;
    VF lanes[kLaneVectors];
    PrepareRow(RowOf(args, row), lanes);
    args.largest[row] = hn::GetLane(WithOneZero(hn::Set(DF(), LargestLane::Reduce(lanes))));
  }
}

// 1 for each row for which the block is decisive, whatever it sees, else 0. Returns whether there
// is one.
HWY_INLINE bool MarkDecisive(const WeighTileArgs& args, const Rows& rows, Rows::Numbers& marks) {
  const DF d;
  VF any = hn::Zero(d);
  for (size_t i = 0; i < rows.padded(); i += kLanes) {
    const VF top = rows.Load(args.largest, i);
    const VF before = rows.Load(args.max, i);
    const auto is_first = hn::Eq(before, hn::Set(d, kLowest));
    const auto is_above = hn::Gt(top, hn::Add(before, hn::Set(d, kReferenceSlack)));
    // Where that is more than the slack it is not looked at.
    const VF weight = Exp2(hn::Sub(top, before));
    const VF share = hn::Mul(hn::Set(d, kDecisiveShare), rows.Load(args.sum, i));
    const auto found = hn::Or(hn::Or(is_first, is_above), hn::Gt(weight, share));
    const VF mark = hn::IfThenElseZero(found, hn::Set(d, 1.0f));
    hn::Store(mark, d, marks + i);
    any = hn::Max(any, mark);
  }
  return !hn::AllFalse(d, hn::Gt(any, hn::Zero(d)));
}

void FindDecisive(const WeighTileArgs& args, DecisiveRows& out) noexcept {
  alignas(64) Rows::Numbers marks;
  out.decisive_count = out.others_count = 0;
  int64_t listed = 0;
  for (int64_t first = 0, next; first < args.rows; first = next) {
    const Rows rows(args, first);
    next = rows.end();
    if (!MarkDecisive(args, rows, marks) && out.decisive_count == 0) continue;
    for (; listed < first; ++listed) {
      out.others[out.others_count] = static_cast<int32_t>(listed);
      out.others_count += args.begin[listed] < args.end[listed] ? 1 : 0;
    }
    // Every row is written to both lists, without a jump that nobody could foresee.
    for (; listed < rows.end(); ++listed) {
      const bool sees = rows.Sees(listed);
      const bool is_decisive = marks[listed - first] != 0;
      out.decisive[out.decisive_count] = out.others[out.others_count] =
          static_cast<int32_t>(listed);
      out.decisive_count += sees && is_decisive ? 1 : 0;
      out.others_count += sees && !is_decisive ? 1 : 0;
    }
  }
  if (out.decisive_count == 0) out.others_count = 0;
}

void FillIntegerMaxima(KernelTable* table) {
  table->prepare_scores = PrepareScores;
  table->find_decisive = FindDecisive;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace kvasir
HWY_AFTER_NAMESPACE();
#endif  // KVASIR_KERNEL_TARGET

#if HWY_ONCE
#include "kvasir/kernels/table_fill.h"
KVASIR_FILL_BY_ISA(FillIntegerMaxima)
#endif
