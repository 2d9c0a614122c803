// A borrowed view of one layer's rows in blocks: what attention and encode kernels are handed.
// Deliberately without shape or visibility: those are KvLayout and VisibleRows (kv_layout.h).
#ifndef KVASIR_TENSOR_KV_BLOCKS_VIEW_H_
#define KVASIR_TENSOR_KV_BLOCKS_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <span>

#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// blocks[i] holds the rows [64 * (first_block + i), 64 * (first_block + i + 1)). Rows that were
// never written hold anything. Valid until the owner's next change.
struct KvBlocksView {
  std::span<std::byte* const> blocks;
  int64_t first_block = 0;

  int64_t first_row() const { return first_block * kBlockTokens; }
  int64_t end_row() const {
    return (first_block + static_cast<int64_t>(blocks.size())) * kBlockTokens;
  }
  // The block that holds `row`; the row's slot in it is row % 64.
  // REQUIRES: first_row() <= row < end_row().
  std::byte* block_of(int64_t row) const {
    return blocks[static_cast<size_t>(row / kBlockTokens - first_block)];
  }
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_KV_BLOCKS_VIEW_H_
