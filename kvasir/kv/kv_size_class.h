// All blocks of one size in a pool: slabs that double, and the free blocks in them.
// Deliberately without a budget: KvPool decides how many blocks a new slab may have.
#ifndef KVASIR_KV_KV_SIZE_CLASS_H_
#define KVASIR_KV_KV_SIZE_CLASS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_block.h"
#include "kvasir/kv/kv_memory.h"

namespace kvasir {

// Free blocks are taken from the oldest slab that has one, and within it the last freed first.
// Oldest slab first packs live blocks into few slabs, so that young (large) slabs run empty and
// can be given back; last freed first hands out bytes that are likely still in the processor cache.
class KvSizeClass {
 public:
  // `memory` must outlive this object.
  KvSizeClass(size_t block_bytes, KvMemory* memory);
  ~KvSizeClass();
  KvSizeClass(const KvSizeClass&) = delete;
  KvSizeClass& operator=(const KvSizeClass&) = delete;

  size_t block_bytes() const { return block_bytes_; }
  int64_t blocks() const { return blocks_; }
  int64_t free_blocks() const { return free_blocks_; }
  int64_t slabs() const { return live_slabs_; }
  // Of blocks that were the first to be taken where they lie.
  uint64_t committed_bytes() const { return committed_bytes_; }

  // Blocks of the next slab of the doubling series: 4, 4, 8, 16, ...: as many as there are, so
  // that the total runs 4, 8, 16, 32, ...
  int64_t NextSlabBlocks() const;

  // Adds a slab. REQUIRES: slab_blocks > 0. ERRORS: kResourceExhausted from the memory.
  Status Grow(int64_t slab_blocks);
  // A free block; its bytes are whatever its last user left. REQUIRES: free_blocks() > 0.
  BlockRef Take();
  // Called by the last BlockRef.
  void GiveBack(KvBlock* block);

  // Bytes of slabs without a block in use, as far as `keep_free` free blocks remain.
  size_t EmptySlabBytes(int64_t keep_free) const;
  // Gives such slabs back to the memory, youngest first, until `enough_bytes` are given back.
  // Returns the bytes given back.
  size_t ReleaseEmptySlabs(int64_t keep_free, size_t enough_bytes);

 private:
  struct Slab {
    std::unique_ptr<KvMemory::Slab> memory;  // null: given back, the place can be reused
    std::unique_ptr<KvBlock[]> blocks;
    int64_t block_count = 0;
    int64_t used = 0;
    int64_t committed = 0;  // blocks that were taken before, the first ones
    KvBlock* free_list = nullptr;
  };

  size_t block_bytes_;
  KvMemory* memory_;
  std::vector<Slab> slabs_;
  size_t first_slab_with_free_ = 0;  // no slab below it has a free block
  int64_t blocks_ = 0;
  int64_t free_blocks_ = 0;
  int64_t live_slabs_ = 0;
  uint64_t committed_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_SIZE_CLASS_H_
