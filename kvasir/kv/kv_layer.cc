#include "kvasir/kv/kv_layer.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

const BlockRef& KvLayer::block(int64_t index) const {
  KVASIR_DCHECK(index >= first_block_ && index < end_block());
  return blocks_[static_cast<size_t>(index - first_block_)];
}

size_t KvLayer::nbytes_exclusive(size_t block_bytes) const {
  const auto exclusive = std::count_if(blocks_.begin(), blocks_.end(),
                                       [](const BlockRef& block) { return !block.shared(); });
  return static_cast<size_t>(exclusive) * block_bytes;
}

void KvLayer::Append(BlockRef block) {
  data_.push_back(block.data());
  blocks_.push_back(std::move(block));
}

void KvLayer::ReplaceLast(BlockRef block) {
  KVASIR_CHECK(!blocks_.empty());
  data_.back() = block.data();
  blocks_.back() = std::move(block);
}

void KvLayer::DropBefore(int64_t block) {
  if (block <= first_block_) return;
  const auto dropped = std::min(block - first_block_, block_count());
  blocks_.erase(blocks_.begin(), blocks_.begin() + dropped);
  data_.erase(data_.begin(), data_.begin() + dropped);
  first_block_ = block;
}

void KvLayer::DropFrom(int64_t block) {
  const auto kept =
      static_cast<size_t>(std::clamp<int64_t>(block - first_block_, 0, block_count()));
  blocks_.resize(kept);
  data_.resize(kept);
}

KvLayer KvLayer::Slice(int64_t begin_block, int64_t end_block) const {
  KvLayer slice;
  slice.first_block_ = std::max(begin_block, first_block_);
  const int64_t end = std::max(slice.first_block_, std::min(end_block, this->end_block()));
  const auto from = slice.first_block_ - first_block_;
  const auto to = end - first_block_;
  if (from < to) {
    slice.blocks_.assign(blocks_.begin() + from, blocks_.begin() + to);
    slice.data_.assign(data_.begin() + from, data_.begin() + to);
  }
  return slice;
}

KvLayer KvLayer::Joined(const KvLayer& next) const {
  if (next.first_block_ > end_block()) return next;
  KvLayer joined = Slice(first_block_, next.first_block_);
  if (joined.blocks_.empty()) return next;
  joined.blocks_.insert(joined.blocks_.end(), next.blocks_.begin(), next.blocks_.end());
  joined.data_.insert(joined.data_.end(), next.data_.begin(), next.data_.end());
  return joined;
}

}  // namespace kvasir
