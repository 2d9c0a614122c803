// A slice [begin, end) of a sequence's past: references to its blocks, never copies.
// Deliberately without tokens or keys: what a slice is a cache *of* is the prefix tree's business.
#ifndef KVASIR_KV_KV_SNAPSHOT_H_
#define KVASIR_KV_KV_SNAPSHOT_H_

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_layer.h"
#include "kvasir/kv/kv_plan.h"

namespace kvasir {

// Made by KvSequence::Snapshot, turned into a sequence by KvSequence::Restore. Immutable; copying
// copies references. The sequence it came from may go on, trim or end: rows of a snapshot never
// change.
//
// begin and end are exact to the token; blocks are shared at both ends. Each layer holds of
// [begin, end) what the sequence still held when the snapshot was taken: all of it where retention
// is `all`, the blocks of the last rows where it is `window` or `chunk`.
class KvSnapshot {
 public:
  Position begin() const { return begin_; }
  Position end() const { return end_; }
  const KvCacheSpec& spec() const { return plan_->spec(); }

  // OK if a sequence can continue at end(): every layer holds all rows that a query at end() or
  // later may read. For `all` that means begin() == 0; for `window` the last W-1 rows before end.
  // ERRORS: kFailedPrecondition, naming the layer and the rows it lacks.
  Status Restorable() const;

  // [begin, at) and [at, end), without copying a row. A block that `at` cuts is in both halves.
  // The left half of a `window` layer has what this slice holds below `at`, which may be nothing.
  // ERRORS: kInvalidArgument unless begin() <= at <= end().
  Result<std::pair<KvSnapshot, KvSnapshot>> Split(Position at) const;

  // [a.begin, b.end), without copying a row; consumes neither. A layer of which b does not reach
  // back to a.end (its window has moved on) keeps b's rows only. Merge of a Split is the original.
  // REQUIRES: b's rows were written by a continuation of a's (by promise they then have the same
  // bits whoever wrote them). ERRORS: kInvalidArgument unless a.end() == b.begin() and both have
  // the same spec and pool.
  static Result<KvSnapshot> Merge(const KvSnapshot& a, const KvSnapshot& b);

  // Bytes of all blocks referenced; blocks shared with sequences or other snapshots count whole.
  size_t nbytes() const;
  // Bytes that destroying this snapshot now would give back to the pool.
  size_t nbytes_exclusive() const;

  // The blocks that `layer` reads. REQUIRES: 0 <= layer < spec().layers.size().
  const KvLayer& layer(int layer) const { return stores_[plan_->store_of(layer)]; }

 private:
  friend class KvSequence;
  KvSnapshot(std::shared_ptr<const KvPlan> plan, Position begin, Position end)
      : plan_(std::move(plan)), begin_(begin), end_(end) {}

  // Blocks of every layer within [begin, end).
  KvSnapshot Part(Position begin, Position end) const;

  std::shared_ptr<const KvPlan> plan_;
  Position begin_ = 0;
  Position end_ = 0;
  std::vector<KvLayer> stores_;  // parallel to plan_->stores()
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_SNAPSHOT_H_
