// A slice [begin, end) of a sequence's past: references to its blocks, never copies.
// Deliberately without tokens or keys: what a slice is a cache *of* is the prefix tree's business.
#ifndef KVASIR_KV_KV_SNAPSHOT_H_
#define KVASIR_KV_KV_SNAPSHOT_H_

#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_content.h"

namespace kvasir {

// Made by KvSequence::Snapshot, turned into a sequence by KvSequence::Restore. Immutable; copying
// copies references. The sequence it came from may go on, trim or end: rows of a snapshot never
// change.
//
// begin and end are exact to the token; blocks are shared at both ends. Each layer holds of
// [begin, end) what the sequence still held when the snapshot was taken: all of it where retention
// is `all`, the blocks of the last rows where it is `window` or `chunk`. Where a budget has evicted
// rows, all that are left of the positions before the last eviction come along if begin is before
// it, and nothing is held if end is. A recurrent layer holds its states at the checkpoints within
// [begin, end], and at end if the sequence was there.
class KvSnapshot {
 public:
  Position begin() const { return begin_; }
  Position end() const { return end_; }
  const KvCacheSpec& spec() const { return content_.plan->spec(); }

  // OK if a sequence can continue at end(): every layer holds all rows that a query at end() or
  // later may read, and recurrent layers their state at end(). For `all` that means begin() == 0;
  // for `window` the last W-1 rows before end and its kept first rows.
  // ERRORS: kFailedPrecondition, naming the layer and the rows it lacks.
  Status Restorable() const;
  // Whether rows were evicted before it was taken: then it is not a cache of all its tokens, and
  // must not be found under them.
  bool evicted() const { return content_.evicted(); }

  // [begin, at) and [at, end), without copying a row. A block that `at` cuts is in both halves.
  // The left half of a `window` layer has what this slice holds below `at`, which may be nothing.
  // ERRORS: kInvalidArgument unless begin() <= at <= end(), and if `at` is between begin() and the
  // position of the last eviction.
  Result<std::pair<KvSnapshot, KvSnapshot>> Split(Position at) const;

  // [a.begin, b.end), without copying a row; consumes neither. A layer of which b does not reach
  // back to a.end (its window has moved on) keeps b's rows only. Merge of a Split is the original.
  // REQUIRES: b's rows were written by a continuation of a's (by promise they then have the same
  // bits whoever wrote them). ERRORS: kInvalidArgument unless a.end() == b.begin(), both have the
  // same spec and pool, and what was evicted in both is the same or all of it is in b.
  static Result<KvSnapshot> Merge(const KvSnapshot& a, const KvSnapshot& b);

  // Bytes of all blocks referenced; blocks shared with sequences or other snapshots count whole.
  size_t nbytes() const;
  // Bytes that destroying this snapshot now would give back to the pool.
  size_t nbytes_exclusive() const;

  // Every reference to a block, as often as this snapshot holds it. For statistics.
  std::vector<const KvBlock*> BlockReferences() const { return content_.References(); }
  // The blocks that `layer` reads. REQUIRES: the layer is not recurrent.
  const KvLayer& layer(int layer) const { return content_.stores[content_.plan->store_of(layer)]; }
  // All that it holds, for files; and a snapshot of what a file held.
  // REQUIRES (FromContent): blocks end where `end` is, as CheckBlockMap says.
  const KvContent& content() const { return content_; }
  static KvSnapshot FromContent(KvContent content, Position begin, Position end) {
    return {std::move(content), begin, end};
  }

 private:
  friend class KvSequence;
  KvSnapshot(KvContent content, Position begin, Position end)
      : content_(std::move(content)), begin_(begin), end_(end) {}

  std::string Name() const;

  KvContent content_;
  Position begin_ = 0;
  Position end_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_SNAPSHOT_H_
