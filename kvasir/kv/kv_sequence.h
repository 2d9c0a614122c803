// The cache of one sequence: blocks of every layer and the next position.
// Deliberately computes nothing: backends write rows into the blocks and attend to them.
#ifndef KVASIR_KV_KV_SEQUENCE_H_
#define KVASIR_KV_KV_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_layer.h"
#include "kvasir/kv/kv_plan.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_snapshot.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/tensor/kv_blocks_view.h"

namespace kvasir {

// Rows of one layer as floats.
struct KvRows {
  std::vector<float> keys;    // [rows, kv_heads, key_dim]
  std::vector<float> values;  // [rows, kv_heads, value_dim]
};

// One step of a sequence is: Reserve(n), write the rows [position, position + n) of every layer
// through Blocks(), attend, Advance(n).
//
// Move-only; Fork() makes another one that shares all blocks. Destroying a sequence gives its
// blocks back. It must be neither moved nor destroyed while a Speculation on it is open (checked).
class KvSequence {
 public:
  // An empty sequence; takes no block. The pool must outlive it.
  // ERRORS: kInvalidArgument from KvCacheSpec::Validate.
  static Result<KvSequence> Create(KvPool* pool, std::shared_ptr<const KvCacheSpec> spec);
  // A sequence at snapshot.end() that shares the snapshot's blocks. O(blocks), copies no row.
  // ERRORS: kFailedPrecondition from KvSnapshot::Restorable; kInvalidArgument if the snapshot's
  // blocks belong to another pool.
  static Result<KvSequence> Restore(KvPool* pool, const KvSnapshot& snapshot);

  KvSequence(KvSequence&& other) noexcept;
  KvSequence& operator=(KvSequence&& other) noexcept;
  ~KvSequence();

  const KvCacheSpec& spec() const { return plan_->spec(); }
  KvPool* pool() const { return plan_->pool(); }
  // The position of the next token, which is the number of tokens so far.
  Position position() const { return position_; }
  // Rows [position, reserved_end) may be written.
  Position reserved_end() const { return reserved_end_; }

  // Makes the rows [position, position + tokens) of every layer writable: takes blocks, and copies
  // a partly filled last block that others reference (at most one per layer). All layers or none;
  // after an error everything is as before. Counted from position, not from an earlier
  // reservation, which a smaller one does not shrink.
  // ERRORS: kResourceExhausted from KvPool::EnsureFree; kInvalidArgument for tokens < 0 or beyond
  // kMaxPosition.
  Status Reserve(int64_t tokens);
  // Reserve for several sequences of one pool, all of them or none. A step reserves with this.
  // REQUIRES: as many counts as sequences, no sequence twice.
  static Status ReserveAll(std::span<KvSequence* const> sequences, std::span<const int64_t> tokens);
  // Bytes that Reserve(tokens) would take from the pool now. REQUIRES: tokens >= 0.
  size_t BytesToReserve(int64_t tokens) const;
  // Gives back reserved blocks that Advance did not use.
  void Unreserve();

  // The blocks that `layer` reads: its own or those of the layer it shares. Rows in
  // [first_row, position) are readable, rows in [position, reserved_end) writable; all others hold
  // anything, stale bytes of other sequences included, which nobody sees because visible ranges
  // end before them. Valid until the next change of this sequence.
  KvBlocksView Blocks(int layer) const { return layer_blocks(layer).view(); }
  // Rows of `layer` that the token at position `query` attends to, its own included.
  VisibleRows Visible(int layer, Position query) const;
  // The block list itself, for statistics. REQUIRES: 0 <= layer < spec().layers.size().
  const KvLayer& layer_blocks(int layer) const { return stores_[plan_->store_of(layer)]; }

  // The rows are written: moves the position on and releases blocks that no later token can see
  // (not while a Speculation is open). REQUIRES: 0 <= tokens, position + tokens <= reserved_end.
  void Advance(int64_t tokens);

  // Removes the last min(tokens, position) tokens and returns that number; drops the reservation.
  // What comes after is as if they had never been appended. Copies no row.
  // ERRORS: kFailedPrecondition if that is more than MaxTrim(): nothing is removed, the message
  // names the layer and how far it can go; kInvalidArgument for tokens < 0.
  Result<int64_t> Trim(int64_t tokens);
  // How many tokens Trim would remove at most: all, unless a window or chunk layer has released
  // rows that the earlier state needs or an open Speculation began later.
  int64_t MaxTrim() const;

  // An independent sequence with the same content. O(blocks), copies no row.
  KvSequence Fork() const;
  // What every layer holds of [begin, end). REQUIRES: 0 <= begin <= end <= position.
  KvSnapshot Snapshot(Position begin, Position end) const;
  KvSnapshot Snapshot() const { return Snapshot(0, position_); }

  // Bytes of all blocks referenced, reserved ones included; a shared block counts whole.
  size_t nbytes() const;
  // Bytes that destroying this sequence now would give back to the pool.
  size_t nbytes_exclusive() const;
  // The position this sequence can reach before the pool needs another slab, if nobody else takes
  // blocks meanwhile.
  int64_t capacity_tokens() const;

  // Encodes rows [first_row, first_row + n) of a layer that owns rows; n from rows.keys.
  // REQUIRES: host memory, layer owns rows, range within [position, reserved_end), sizes fit.
  void WriteRows(int layer, Position first_row, const KvRows& rows);
  // Decodes rows [begin, end). REQUIRES: host memory, range within [first_row, reserved_end).
  KvRows ReadRows(int layer, Position begin, Position end) const;
  // One row: [kv_heads, key_dim] and [kv_heads, value_dim].
  std::vector<float> ReadKeys(int layer, Position row) const;
  std::vector<float> ReadValues(int layer, Position row) const;

 private:
  friend class Speculation;

  struct Needs;  // what a reservation takes from the pool

  KvSequence(std::shared_ptr<const KvPlan> plan, Position position);

  void AddNeeds(int64_t tokens, Needs* needs) const;
  void TakeReserved(int64_t tokens);
  void ReleaseUnneeded();
  void SetPosition(Position position);

  std::shared_ptr<const KvPlan> plan_;
  std::vector<KvLayer> stores_;  // parallel to plan_->stores()
  Position position_ = 0;
  Position reserved_end_ = 0;
  // Start of the open Speculation; -1: none. While it is open no row is released.
  Position speculation_start_ = -1;
};

// Far beyond any context; keeps arithmetic on positions from overflowing.
inline constexpr Position kMaxPosition = Position{1} << 40;

}  // namespace kvasir

#endif  // KVASIR_KV_KV_SEQUENCE_H_
