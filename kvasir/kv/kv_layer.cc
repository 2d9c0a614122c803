#include "kvasir/kv/kv_layer.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

void KvLayer::Run::Append(BlockRef block) {
  data.push_back(block.data());
  blocks.push_back(std::move(block));
}

void KvLayer::Run::Append(const Run& other) {
  blocks.insert(blocks.end(), other.blocks.begin(), other.blocks.end());
  data.insert(data.end(), other.data.begin(), other.data.end());
}

KvLayer::Run KvLayer::Run::Slice(int64_t begin, int64_t end) const {
  Run slice;
  slice.first = std::min(std::max(begin, first), std::max(begin, end));
  const int64_t from = slice.first - first;
  const int64_t to = std::min(end, this->end()) - first;
  if (from < to) {
    slice.blocks.assign(blocks.begin() + from, blocks.begin() + to);
    slice.data.assign(data.begin() + from, data.begin() + to);
  }
  return slice;
}

const BlockRef& KvLayer::block(int64_t index) const {
  KVASIR_CHECK(rows_.Holds(index));
  return rows_.blocks[static_cast<size_t>(index - rows_.first)];
}

void KvLayer::Append(BlockRef block) { rows_.Append(std::move(block)); }

void KvLayer::AppendHead(BlockRef block, int64_t first) {
  if (head_.blocks.empty()) head_.first = first;
  KVASIR_CHECK(head_.end() < rows_.first);
  head_.Append(std::move(block));
}

void KvLayer::ReplaceLast(BlockRef block) {
  KVASIR_CHECK(!rows_.blocks.empty());
  rows_.data.back() = block.data();
  rows_.blocks.back() = std::move(block);
}

void KvLayer::DropBefore(int64_t block, int64_t head_blocks) {
  if (block <= std::max(rows_.first, head_blocks)) return;
  Run kept = rows_.Slice(block, std::max(block, rows_.end()));
  if (rows_.first < head_blocks) head_ = Lowest(head_blocks);
  rows_ = std::move(kept);
}

void KvLayer::DropFrom(int64_t block) {
  if (block < rows_.first) {
    rows_ = head_.Slice(0, block);
    if (rows_.blocks.empty()) rows_.first = block;
    head_ = Run();
    return;
  }
  const auto kept = static_cast<size_t>(std::min(block - rows_.first, rows_.count()));
  rows_.blocks.resize(kept);
  rows_.data.resize(kept);
}

KvLayer::Run KvLayer::Lowest(int64_t end_block) const {
  Run lowest = head_.Slice(0, end_block);
  const Run more = rows_.Slice(0, end_block);
  if (lowest.blocks.empty()) return more;
  // A gap between the two ends what begins at the head.
  if (more.first == lowest.end()) lowest.Append(more);
  return lowest;
}

KvLayer KvLayer::Slice(int64_t begin_block, int64_t end_block) const {
  KvLayer slice;
  slice.head_ = head_.Slice(begin_block, end_block);
  slice.rows_ = rows_.Slice(begin_block, end_block);
  if (slice.rows_.blocks.empty() && slice.head_.end() == slice.rows_.first) {
    std::swap(slice.rows_, slice.head_);  // it ends within the head
    slice.head_ = Run();
  }
  return slice;
}

KvLayer KvLayer::Joined(const KvLayer& next, int64_t head_blocks) const {
  const bool gap = next.first_block() > end_block();
  KvLayer joined;
  if (!gap) joined.rows_ = rows_.Slice(rows_.first, next.first_block());
  if (joined.rows_.blocks.empty()) joined.rows_.first = next.first_block();
  joined.rows_.Append(next.rows_);
  if (joined.rows_.first > head_blocks) {
    const Run theirs = next.Lowest(head_blocks);
    joined.head_ = Lowest(theirs.blocks.empty() ? head_blocks : theirs.first);
    if (joined.head_.blocks.empty()) {
      joined.head_ = theirs;
    } else if (joined.head_.end() == theirs.first) {
      joined.head_.Append(theirs);
    }
  }
  return joined;
}

}  // namespace kvasir
