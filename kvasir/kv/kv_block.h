// A block (64 rows of one layer, K and V) and the counted reference to it.
// Deliberately not atomic: a pool and everything that references it live on one thread.
#ifndef KVASIR_KV_KV_BLOCK_H_
#define KVASIR_KV_KV_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <utility>

namespace kvasir {

class KvSizeClass;

// The bookkeeping of one block, kept apart from its bytes so that walking it pulls no K or V into
// the processor cache. Lives as long as its slab.
struct KvBlock {
  std::byte* data = nullptr;
  KvSizeClass* owner = nullptr;
  KvBlock* next_free = nullptr;  // while in the free list
  uint32_t slab = 0;             // index in the owner's list of slabs
  uint32_t references = 0;
};

// Shares a block; the last reference gives it back to the pool. Copies count, moves are free.
// A block with one reference may be written by its holder; a shared one is immutable below the
// position that is common to its holders.
class BlockRef {
 public:
  BlockRef() = default;
  explicit BlockRef(KvBlock* block) : block_(block) { ++block_->references; }
  BlockRef(const BlockRef& other) : block_(other.block_) {
    if (block_ != nullptr) ++block_->references;
  }
  BlockRef(BlockRef&& other) noexcept : block_(std::exchange(other.block_, nullptr)) {}
  BlockRef& operator=(BlockRef other) noexcept {
    std::swap(block_, other.block_);
    return *this;
  }
  ~BlockRef() {
    if (block_ != nullptr && --block_->references == 0) GiveBack(block_);
  }

  const KvBlock* get() const { return block_; }
  std::byte* data() const { return block_->data; }
  bool shared() const { return block_->references > 1; }

 private:
  static void GiveBack(KvBlock* block);

  KvBlock* block_ = nullptr;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_BLOCK_H_
