// The blocks that one layer of one sequence (or snapshot) references: consecutive, aligned.
// Deliberately neither a position nor a retention: the same list serves sequences and slices.
#ifndef KVASIR_KV_KV_LAYER_H_
#define KVASIR_KV_KV_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_block.h"
#include "kvasir/tensor/kv_blocks_view.h"

namespace kvasir {

// Block i of a sequence covers the positions [64i, 64i + 64), always: block borders never depend on
// history. A block is filled from its first slot on, so that every row from first_row() to the
// holder's position is readable.
class KvLayer {
 public:
  KvLayer() = default;
  // Copies references, never rows.
  KvLayer(const KvLayer&) = default;
  KvLayer& operator=(const KvLayer&) = default;
  KvLayer(KvLayer&&) noexcept = default;
  KvLayer& operator=(KvLayer&&) noexcept = default;

  // Index of the first block held; equals end_block() when none is.
  int64_t first_block() const { return first_block_; }
  int64_t end_block() const { return first_block_ + block_count(); }
  int64_t block_count() const { return static_cast<int64_t>(blocks_.size()); }
  // The first row held.
  Position first_row() const { return first_block_ * kBlockTokens; }
  // The position up to which rows fit into the blocks held.
  int64_t capacity_tokens() const { return end_block() * kBlockTokens; }

  KvBlocksView view() const { return {data_, first_block_}; }
  // REQUIRES: first_block() <= index < end_block().
  const BlockRef& block(int64_t index) const;

  // Bytes of all blocks held, `block_bytes` each, shared or not.
  size_t nbytes(size_t block_bytes) const { return blocks_.size() * block_bytes; }
  // Bytes that dropping this layer would give back to the pool: blocks nobody else references.
  size_t nbytes_exclusive(size_t block_bytes) const;

  // Adds the block with index end_block().
  void Append(BlockRef block);
  // Exchanges the last block. REQUIRES: block_count() > 0.
  void ReplaceLast(BlockRef block);
  // Drops every block below `block`; an empty layer then starts there. No effect if block <=
  // first_block().
  void DropBefore(int64_t block);
  // Drops every block from `block` on.
  void DropFrom(int64_t block);
  // References to the blocks within [begin_block, end_block); what is not held is left out.
  KvLayer Slice(int64_t begin_block, int64_t end_block) const;
  // This layer continued by `next`. Where both hold a block, the one of `next` counts: it was
  // filled further. A gap between the two leaves `next` alone: rows before a gap are out of reach.
  KvLayer Joined(const KvLayer& next) const;

 private:
  // Parallel lists: kernels take a plain array of addresses.
  std::vector<BlockRef> blocks_;
  std::vector<std::byte*> data_;
  int64_t first_block_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_LAYER_H_
