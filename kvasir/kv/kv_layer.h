// The blocks that one layer of one sequence (or snapshot) references: consecutive, aligned, and the
// first few once more apart where a retention keeps them in view.
// Deliberately neither a position nor a retention: the same list serves sequences and slices.
#ifndef KVASIR_KV_KV_LAYER_H_
#define KVASIR_KV_KV_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/kv/kv_block.h"
#include "kvasir/tensor/kv_blocks_view.h"

namespace kvasir {

// Block i covers the rows [64i, 64i + 64), always: block borders never depend on history. A block
// is filled from its first slot on, so that every row from first_row() to the holder's last one is
// readable, and so is every row of the head blocks.
class KvLayer {
 public:
  // Holds nothing; the first block appended gets the index `first_block`.
  explicit KvLayer(int64_t first_block = 0) : rows_{{}, {}, first_block} {}
  // Copies references, never rows.
  KvLayer(const KvLayer&) = default;
  KvLayer& operator=(const KvLayer&) = default;
  KvLayer(KvLayer&&) noexcept = default;
  KvLayer& operator=(KvLayer&&) noexcept = default;

  // Index of the first block held, the head aside; equals end_block() when none is.
  int64_t first_block() const { return rows_.first; }
  int64_t end_block() const { return rows_.end(); }
  int64_t block_count() const { return rows_.count(); }
  // The first row held, the head aside.
  int64_t first_row() const { return rows_.first * kBlockTokens; }
  // The number of rows that fit into the blocks held and those before them.
  int64_t capacity_rows() const { return end_block() * kBlockTokens; }
  // The head blocks held are [head_first, head_first + n): those of a sequence begin at 0. They lie
  // below first_block().
  const std::vector<BlockRef>& head() const { return head_.blocks; }
  int64_t head_first() const { return head_.first; }
  // [first_block(), end_block())
  const std::vector<BlockRef>& blocks() const { return rows_.blocks; }

  KvBlocksView view() const {
    return {rows_.data, rows_.first, head_.first == 0 ? head_.data : std::span<std::byte* const>()};
  }
  // REQUIRES: first_block() <= index < end_block().
  const BlockRef& block(int64_t index) const;
  // Whether the block is held, in the head or after it.
  bool Holds(int64_t index) const { return rows_.Holds(index) || head_.Holds(index); }

  // Adds the block with index end_block().
  void Append(BlockRef block);
  // Adds the block after the last head block, from index `first` on if there is none.
  // REQUIRES: it lies below first_block().
  void AppendHead(BlockRef block, int64_t first = 0);
  // Exchanges the last block. REQUIRES: block_count() > 0.
  void ReplaceLast(BlockRef block);
  // Drops every block below `block` but the first `head_blocks`, which become the head; an empty
  // layer then starts at `block`. No effect if block <= first_block() or nothing lies between.
  void DropBefore(int64_t block, int64_t head_blocks = 0);
  // Drops every block from `block` on. If that is before first_block(), what remains is the head's.
  void DropFrom(int64_t block);
  // References to the blocks within [begin_block, end_block); what is not held is left out, and a
  // slice of nothing starts where it ends.
  KvLayer Slice(int64_t begin_block, int64_t end_block) const;
  // This layer continued by `next`. Where both hold a block, the one of `next` counts: it was
  // filled further. A gap between the two leaves `next` and the blocks below `head_blocks`: other
  // rows before a gap are out of reach.
  KvLayer Joined(const KvLayer& next, int64_t head_blocks = 0) const;

 private:
  // Consecutive blocks. Parallel lists: kernels take a plain array of addresses.
  struct Run {
    std::vector<BlockRef> blocks;
    std::vector<std::byte*> data;
    int64_t first = 0;

    int64_t count() const { return static_cast<int64_t>(blocks.size()); }
    int64_t end() const { return first + count(); }
    bool Holds(int64_t index) const { return index >= first && index < end(); }
    void Append(BlockRef block);
    void Append(const Run& other);
    Run Slice(int64_t begin, int64_t end) const;
  };

  // What both parts hold of the blocks [0, end_block), in order.
  Run Lowest(int64_t end_block) const;

  Run head_;
  Run rows_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_LAYER_H_
