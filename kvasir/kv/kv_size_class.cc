#include "kvasir/kv/kv_size_class.h"

#include <algorithm>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// 256 tokens of one layer: what other engines call the cache's growth step.
constexpr int64_t kFirstSlabBlocks = 4;

}  // namespace

void BlockRef::GiveBack(KvBlock* block) { block->owner->GiveBack(block); }

KvSizeClass::KvSizeClass(size_t block_bytes, KvMemory* memory)
    : block_bytes_(block_bytes), memory_(memory) {}

KvSizeClass::~KvSizeClass() {
  // A sequence or snapshot that outlives its pool would write into unmapped memory.
  KVASIR_CHECK(free_blocks_ == blocks_);
}

int64_t KvSizeClass::NextSlabBlocks() const { return std::max(kFirstSlabBlocks, blocks_); }

Status KvSizeClass::Grow(int64_t slab_blocks) {
  KVASIR_TRY(std::unique_ptr<KvMemory::Slab> memory,
             memory_->Allocate(static_cast<size_t>(slab_blocks) * block_bytes_));
  const auto hole = std::find_if(slabs_.begin(), slabs_.end(),
                                 [](const Slab& slab) { return slab.memory == nullptr; });
  const auto index = static_cast<size_t>(hole - slabs_.begin());
  if (hole == slabs_.end()) slabs_.emplace_back();
  Slab& slab = slabs_[index];
  slab.memory = std::move(memory);
  slab.blocks = std::make_unique<KvBlock[]>(static_cast<size_t>(slab_blocks));
  slab.block_count = slab_blocks;
  slab.used = 0;
  slab.committed = 0;
  // Linked from the back, so that a fresh slab is used (and its pages committed) front to back.
  slab.free_list = nullptr;
  for (int64_t i = slab_blocks - 1; i >= 0; --i) {
    KvBlock& block = slab.blocks[static_cast<size_t>(i)];
    block.data = slab.memory->data() + static_cast<size_t>(i) * block_bytes_;
    block.owner = this;
    block.slab = static_cast<uint32_t>(index);
    block.next_free = slab.free_list;
    slab.free_list = &block;
  }
  blocks_ += slab_blocks;
  free_blocks_ += slab_blocks;
  ++live_slabs_;
  first_slab_with_free_ = std::min(first_slab_with_free_, index);
  return {};
}

BlockRef KvSizeClass::Take() {
  KVASIR_CHECK(free_blocks_ > 0);
  while (slabs_[first_slab_with_free_].free_list == nullptr) ++first_slab_with_free_;
  Slab& slab = slabs_[first_slab_with_free_];
  KvBlock* block = slab.free_list;
  slab.free_list = block->next_free;
  block->next_free = nullptr;
  ++slab.used;
  --free_blocks_;
  if (block - slab.blocks.get() == slab.committed) {
    ++slab.committed;
    committed_bytes_ += block_bytes_;
  }
  return BlockRef(block);
}

void KvSizeClass::GiveBack(KvBlock* block) {
  Slab& slab = slabs_[block->slab];
  block->next_free = slab.free_list;
  slab.free_list = block;
  --slab.used;
  ++free_blocks_;
  first_slab_with_free_ = std::min<size_t>(first_slab_with_free_, block->slab);
}

size_t KvSizeClass::EmptySlabBytes(int64_t keep_free) const {
  int64_t free_left = free_blocks_;
  int64_t releasable = 0;
  for (auto slab = slabs_.rbegin(); slab != slabs_.rend(); ++slab) {
    if (slab->used != 0 || free_left - slab->block_count < keep_free) continue;
    free_left -= slab->block_count;
    releasable += slab->block_count;
  }
  return static_cast<size_t>(releasable) * block_bytes_;
}

size_t KvSizeClass::ReleaseEmptySlabs(int64_t keep_free, size_t enough_bytes) {
  size_t released_bytes = 0;
  for (auto slab = slabs_.rbegin(); slab != slabs_.rend(); ++slab) {
    if (released_bytes >= enough_bytes) break;
    if (slab->memory == nullptr || slab->used != 0) continue;
    if (free_blocks_ - slab->block_count < keep_free) continue;
    free_blocks_ -= slab->block_count;
    blocks_ -= slab->block_count;
    released_bytes += static_cast<size_t>(slab->block_count) * block_bytes_;
    --live_slabs_;
    *slab = Slab();
  }
  return released_bytes;
}

}  // namespace kvasir
