// The cache of one sequence: blocks of every layer and the next position.
// Deliberately computes nothing but which rows a budget evicts: backends write rows into the blocks
// and attend to them.
#ifndef KVASIR_KV_KV_SEQUENCE_H_
#define KVASIR_KV_KV_SEQUENCE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/kv_content.h"
#include "kvasir/kv/kv_layer.h"
#include "kvasir/kv/kv_plan.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_snapshot.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/tensor/kv_blocks_view.h"

namespace kvasir {

class KvCompaction;

// Rows of one layer as floats.
struct KvRows {
  std::vector<float> keys;    // [rows, kv_heads, key_dim]
  std::vector<float> values;  // [rows, kv_heads, value_dim]
};

// One step of a sequence is: Reserve(n), write the rows of the positions [position, position + n)
// of every layer through Blocks() and RecentBlocks() and the states through MutableState(), attend,
// Advance(n).
//
// Positions count tokens; rows are where a layer stores them. RowOf(layer, position) is the
// position itself unless a budget has evicted rows of that layer: then rows are numbered anew, and
// positions go on. Block views, VisibleRows, WriteRows and ReadRows speak rows.
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

  const KvCacheSpec& spec() const { return content_.plan->spec(); }
  KvPool* pool() const { return content_.plan->pool(); }
  // The position of the next token, which is the number of tokens so far.
  Position position() const { return position_; }
  // The rows of the positions [position, reserved_end) may be written.
  Position reserved_end() const { return reserved_end_; }

  // Makes the rows of [position, position + tokens) of every layer writable: takes blocks, and
  // copies a partly filled last block or a state that others reference (at most one per layer).
  // Where a budget is full it first evicts rows (as CompactIfDue). All layers or none; after an
  // error everything is as before. Counted from position, not from an earlier reservation, which
  // a smaller one does not shrink.
  // ERRORS: kResourceExhausted from KvPool::EnsureFree; kInvalidArgument for tokens < 0, beyond
  // RunLimit() (naming the position where to cut) or beyond kMaxPosition; kFailedPrecondition if
  // rows must be evicted and a Speculation is open.
  Status Reserve(int64_t tokens);
  // Reserve for several sequences of one pool, all of them or none. A step reserves with this.
  // REQUIRES: as many counts as sequences, no sequence twice.
  static Status ReserveAll(std::span<KvSequence* const> sequences, std::span<const int64_t> tokens);
  // Bytes that Reserve(tokens) would take from the pool now; where a budget is full this ranks its
  // rows, as Reserve does. REQUIRES: 0 <= tokens <= RunLimit().
  size_t BytesToReserve(int64_t tokens) const;
  // Gives back reserved blocks that Advance did not use.
  void Unreserve();

  // How many tokens may be appended before rows must be evicted, which happens at positions fixed
  // by the sequence; runs are cut there. kMaxPosition - position without such a budget; 0 only
  // while a Speculation is open.
  int64_t RunLimit() const;
  // Evicts rows of budgets that are full, as the next Reserve would: it stores size + interval rows
  // and keeps `size`. Blocks that lose no row are not copied.
  // ERRORS: kResourceExhausted for the blocks of moved rows, kFailedPrecondition while a
  // Speculation is open: then nothing was evicted.
  Status CompactIfDue();
  // The same for all of them, or none.
  static Status CompactAllDue(std::span<KvSequence* const> sequences);
  // Evicts rows of every budget that stores more than size + slack_rows, down to `size`; drops the
  // reservation, whose blocks count as used until then: where room is short, Unreserve before.
  // Says whether there was one. ERRORS: as CompactIfDue; kInvalidArgument for
  // slack_rows < 0; kFailedPrecondition if no layer has a budget.
  Result<bool> Compact(int64_t slack_rows = 0);
  // Whether rows were ever evicted: then what is stored is not a function of the last tokens alone.
  bool evicted() const { return content_.evicted(); }

  // Row of a position that `layer` stores, or will. REQUIRES: it was not evicted with others, that
  // is, it is not below the position of the last compaction.
  int64_t RowOf(int layer, Position position) const;
  // The position of the last compaction of the rows that `layer` reads; 0: there was none.
  Position EvictedUntil(int layer) const {
    const KvKeptRows* kept = content_.KeptOf(content_.plan->store_of(layer));
    return kept != nullptr ? kept->until : 0;
  }
  // Rows of [0, position) that `layer` has not evicted; a window may have released some of them.
  int64_t StoredRows(int layer) const { return RowOf(layer, position_); }
  // Positions of these rows, by row. Ascending unless rows were evicted.
  std::vector<Position> RowPositions(int layer) const;

  // The blocks that `layer` reads: its own or those of the layer it shares. Rows up to
  // StoredRows(layer) are readable where the view holds them, rows up to that of reserved_end
  // writable; all others hold anything, stale bytes of other sequences included, which nobody sees
  // because visible ranges end before them. Valid until the next change of this sequence.
  KvBlocksView Blocks(int layer) const { return layer_blocks(layer).view(); }
  // The blocks that hold the last rows of `layer` once more, each in layout.RecentBlock(): what
  // queries read from layout.RecentBegin on. Empty unless the layout has dense_recent.
  KvBlocksView RecentBlocks(int layer) const;
  // Rows of `layer` that the token at position `query` attends to, its own included. They are all
  // held from the reservation of that position until Advance passes it: attend before you advance.
  VisibleRows Visible(int layer, Position query) const;
  // The block list itself, for statistics. REQUIRES: the layer is not recurrent.
  const KvLayer& layer_blocks(int layer) const {
    return content_.stores[content_.plan->store_of(layer)];
  }

  // The state of a recurrent layer, [state_bytes]. State: that at position(), null while it is all
  // zero because nothing was ever reserved. MutableState: to become that at the position that the
  // next Advance reaches. REQUIRES: the layer is recurrent; MutableState: reserved.
  const std::byte* State(int layer) const;
  std::byte* MutableState(int layer) const;
  // Positions, strictly ascending, at which coming runs are to leave checkpoints: for those within
  // a run the next Reserve takes blocks of their own, which are written through InnerStates, and
  // Advance makes checkpoints of them; where a run ends the checkpoint is a reference. Replaces
  // what was asked for before; Trim and the end of a Speculation forget it. REQUIRES: nothing is
  // reserved.
  void KeepStatesAt(std::vector<Position> positions);
  // Where a recurrent layer's state at a position within the reserved run is to be written; by a
  // run that is shorter only those before its end.
  struct InnerState {
    Position position = 0;
    std::byte* data = nullptr;  // [state_bytes]
  };
  // How many of them a run of so many tokens would have.
  size_t InnerStateCount(int64_t tokens) const { return NewInnerPositions(tokens).size(); }
  // Ascending. REQUIRES: the layer is recurrent.
  std::vector<InnerState> InnerStates(int layer) const;
  // Remembers the states at position() by reference, so that Trim, Snapshot and Restore can come
  // back to it. Without recurrent layers there is nothing to do.
  // ERRORS: kFailedPrecondition while rows are reserved: states may be half written.
  Status Checkpoint();
  std::vector<Position> Checkpoints() const;
  // Forgets those below `position`.
  void DropCheckpoints(Position position);

  // The rows are written: moves the position on and releases blocks that no later token can see
  // (not while a Speculation is open). REQUIRES: 0 <= tokens, position + tokens <= reserved_end.
  void Advance(int64_t tokens);

  // Removes the last min(tokens, position) tokens and returns that number; drops the reservation.
  // What comes after is as if they had never been appended. Copies no row. All tokens can always be
  // removed: an empty cache needs no row.
  // ERRORS: kFailedPrecondition if the state there is not whole any more (MaxTrim): nothing is
  // removed, the message names the layer and how far it can go; kInvalidArgument for tokens < 0.
  Result<int64_t> Trim(int64_t tokens);
  // Every count up to this one can be trimmed: all, unless a window or chunk layer has released
  // rows that the earlier state needs, a budget has evicted rows, a recurrent layer has no
  // checkpoint there, or an open Speculation began later.
  int64_t MaxTrim() const;

  // An independent sequence with the same content, of which no states are asked for. O(blocks),
  // copies no row.
  // REQUIRES: with recurrent layers, nothing is reserved.
  KvSequence Fork() const;
  // What every layer holds of [begin, end). REQUIRES: 0 <= begin <= end <= position.
  KvSnapshot Snapshot(Position begin, Position end) const;
  KvSnapshot Snapshot() const { return Snapshot(0, position_); }

  // Bytes of all blocks referenced, reserved ones included; a shared block counts whole.
  size_t nbytes() const;
  // Bytes that destroying this sequence now would give back to the pool.
  size_t nbytes_exclusive() const;
  // Every reference to a block, as often as this sequence holds it. For statistics.
  std::vector<const KvBlock*> BlockReferences() const;
  // All that it holds, for pictures of it.
  const KvContent& content() const { return content_; }
  // The position this sequence can reach before the pool needs another slab, if nobody else takes
  // blocks meanwhile.
  int64_t capacity_tokens() const;

  // Encodes rows [first_row, first_row + n) of a layer that owns rows, and their recent copies; n
  // from rows.keys. REQUIRES: host memory, layer owns rows, range within the rows of
  // [position, reserved_end), sizes fit.
  void WriteRows(int layer, int64_t first_row, const KvRows& rows);
  // Decodes rows [begin, end). REQUIRES: host memory, all of them held (ReadRecentRows: by
  // RecentBlocks), end at most the row of reserved_end.
  KvRows ReadRows(int layer, int64_t begin, int64_t end) const;
  KvRows ReadRecentRows(int layer, int64_t begin, int64_t end) const;
  // One row: [kv_heads, key_dim] and [kv_heads, value_dim].
  std::vector<float> ReadKeys(int layer, int64_t row) const;
  std::vector<float> ReadValues(int layer, int64_t row) const;

 private:
  friend class Speculation;

  struct Needs;  // what a reservation takes from the pool

  KvSequence(KvContent content, Position position);

  Status CheckReserve(int64_t tokens) const;
  std::vector<KvCompaction> DueCompactions() const;
  void AddNeeds(int64_t tokens, std::span<const KvCompaction> first, Needs* needs) const;
  void AddStateNeeds(int64_t tokens, Needs* needs) const;
  void TakeReserved(int64_t tokens);
  void TakeStates(int64_t tokens);
  // Those asked for within [position(), position() + tokens) that have no blocks yet.
  std::vector<Position> NewInnerPositions(int64_t tokens) const;
  // Of what nobody can see any more, after the run [run_begin, position()).
  void ReleaseUnneeded(Position run_begin);
  void SetPosition(Position position);
  bool StatesReach(Position position) const;
  KvRows ReadStore(size_t store, int64_t begin, int64_t end) const;

  KvContent content_;
  Position position_ = 0;
  Position reserved_end_ = 0;
  std::vector<Position> kept_positions_;                   // of KeepStatesAt, behind position_
  std::vector<RecurrentStates::Checkpoint> inner_states_;  // of the reserved run, ascending
  // Start of the open Speculation; -1: none. While it is open no row is released.
  Position speculation_start_ = -1;
};

// Far beyond any context; keeps arithmetic on positions from overflowing.
inline constexpr Position kMaxPosition = Position{1} << 40;

}  // namespace kvasir

#endif  // KVASIR_KV_KV_SEQUENCE_H_
