// A borrowed view of one layer's rows in blocks: what attention and encode kernels are handed.
// Deliberately without shape or visibility: those are KvLayout and VisibleRows (kv_layout.h).
#ifndef KVASIR_TENSOR_KV_BLOCKS_VIEW_H_
#define KVASIR_TENSOR_KV_BLOCKS_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// blocks[i] holds the rows [64 * (first_block + i), 64 * (first_block + i + 1)); head[i], if there
// are any, the rows [64 * i, 64 * (i + 1)) below them. Rows that were never written hold anything.
// Valid until the owner's next change.
struct KvBlocksView {
  std::span<std::byte* const> blocks;
  int64_t first_block = 0;
  std::span<std::byte* const> head;

  int64_t first_row() const { return first_block * kBlockTokens; }
  int64_t end_row() const {
    return (first_block + static_cast<int64_t>(blocks.size())) * kBlockTokens;
  }
  // The block with this index. REQUIRES: it is held.
  std::byte* block(int64_t index) const {
    return index < first_block ? head[static_cast<size_t>(index)]
                               : blocks[static_cast<size_t>(index - first_block)];
  }
  // The block that holds `row`; the row's slot in it is row % 64. REQUIRES: it is held.
  std::byte* block_of(int64_t row) const { return block(row / kBlockTokens); }
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_KV_BLOCKS_VIEW_H_
