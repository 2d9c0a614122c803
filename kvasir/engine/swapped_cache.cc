#include "kvasir/engine/swapped_cache.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/kv_size_class.h"

namespace kvasir {
namespace {

using Part = KvBlockMap::Part;

// Block numbers, those that cover the last rows first and states before all others.
std::vector<uint32_t> FromTheEnd(const KvBlockMap& map) {
  std::vector<int64_t> index_of(map.block_bytes.size(), std::numeric_limits<int64_t>::max());
  for (const KvBlockMap::List& list : map.sequences[0].lists) {
    if (list.part == Part::kState) continue;
    const auto number = [&](const std::vector<uint32_t>& blocks, int64_t first) {
      for (size_t i = 0; i < blocks.size(); ++i) {
        index_of[blocks[i]] = first + static_cast<int64_t>(i);
      }
    };
    number(list.head, list.head_first);
    number(list.blocks, list.first_block);
  }
  std::vector<uint32_t> order(index_of.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t a, uint32_t b) { return index_of[a] > index_of[b]; });
  return order;
}

// References to the blocks of a snapshot by number.
std::vector<BlockRef> BlocksOf(const KvContent& content, const NumberedBlocks& numbered) {
  std::vector<std::pair<const KvBlock*, uint32_t>> numbers;
  for (size_t i = 0; i < numbered.blocks.size(); ++i) {
    numbers.emplace_back(numbered.blocks[i], static_cast<uint32_t>(i));
  }
  std::sort(numbers.begin(), numbers.end());
  std::vector<BlockRef> blocks(numbers.size());
  const auto add = [&](const std::vector<BlockRef>& list) {
    for (const BlockRef& block : list) {
      const auto found = std::lower_bound(numbers.begin(), numbers.end(),
                                          std::pair<const KvBlock*, uint32_t>(block.get(), 0));
      blocks[found->second] = block;
    }
  };
  for (const KvLayer& layer : content.stores) {
    add(layer.head());
    add(layer.blocks());
  }
  add(content.states.current);
  for (const auto& checkpoint : content.states.checkpoints) add(checkpoint.blocks);
  return blocks;
}

}  // namespace

std::unique_ptr<SwappedCache> SwappedCache::Write(SwapStore* store, const KvSequence& sequence) {
  const NamedSnapshot named = {"", sequence.Snapshot(), {}};
  auto numbered = NumberBlocks(std::span(&named, 1));
  if (!numbered.ok() || numbered->blocks.empty()) return nullptr;
  std::vector<BlockRef> blocks = BlocksOf(named.snapshot.content(), *numbered);
  auto cache = std::unique_ptr<SwappedCache>(new SwappedCache(store, std::move(numbered->map)));
  cache->order_ = FromTheEnd(cache->map_);
  std::vector<std::span<const std::byte>> sources;
  for (const uint32_t number : cache->order_) {
    cache->blocks_.push_back(std::move(blocks[number]));
    sources.emplace_back(cache->blocks_.back().data(), cache->map_.block_bytes[number]);
    cache->bytes_ += sources.back().size();
  }
  cache->file_ = store->Write(std::move(sources));
  return cache->file_ == nullptr ? nullptr : std::move(cache);
}

SwappedCache::~SwappedCache() { Drop(); }

void SwappedCache::Drop() {
  if (file_ != nullptr) (void)store_->Release(file_, std::move(blocks_));
  file_.reset();
  blocks_.clear();
  state_ = State::kLost;
}

SwappedCache::State SwappedCache::Update() {
  if (state_ != State::kWriting && state_ != State::kReading) return state_;
  const SwapStore::Progress progress = store_->ProgressOf(*file_);
  if (progress.state == SwapStore::State::kFailed) {
    Drop();
  } else if (state_ == State::kWriting) {
    for (size_t i = 0; i < progress.blocks; ++i) blocks_[i] = BlockRef();
    if (progress.state == SwapStore::State::kDone) state_ = State::kWritten;
  } else if (progress.state == SwapStore::State::kDone) {
    state_ = State::kRead;
  }
  if (state_ == State::kWritten) blocks_.clear();
  return state_;
}

std::vector<BlockRef> SwappedCache::SharedWith(const KvSequence& known) const {
  std::vector<BlockRef> shared(map_.block_bytes.size());
  for (const KvBlockMap::List& list : map_.sequences[0].lists) {
    const RetentionSpec& retention = map_.spec.layers[static_cast<size_t>(list.layer)].retention;
    if (list.part != Part::kRows || retention.kind != RetentionSpec::Kind::kAll) continue;
    const KvLayer& layer = known.layer_blocks(list.layer);
    for (size_t i = 0; i < list.blocks.size(); ++i) {
      const int64_t index = list.first_block + static_cast<int64_t>(i);
      if ((index + 1) * kBlockTokens > known.position()) break;
      shared[list.blocks[i]] = layer.block(index);
    }
  }
  return shared;
}

size_t SwappedCache::bytes_to_read(const KvSequence& known) const {
  const std::vector<BlockRef> shared = SharedWith(known);
  size_t bytes = 0;
  for (size_t i = 0; i < shared.size(); ++i) {
    if (shared[i].get() == nullptr) bytes += map_.block_bytes[i];
  }
  return bytes;
}

Status SwappedCache::Read(KvPool* pool, const KvSequence& known) {
  KVASIR_CHECK(state_ == State::kWritten);
  std::vector<BlockRef> blocks = SharedWith(known);
  std::vector<KvPool::Demand> demands;
  for (size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].get() == nullptr) KvPool::AddDemand({map_.block_bytes[i], 1}, &demands);
  }
  KVASIR_TRY_OK(pool->EnsureFree(demands));
  std::vector<std::span<std::byte>> targets;
  for (const uint32_t number : order_) {
    BlockRef& block = blocks[number];
    const size_t bytes = map_.block_bytes[number];
    const bool is_shared = block.get() != nullptr;
    if (!is_shared) block = pool->Take(bytes);
    targets.emplace_back(block.data(), is_shared ? 0 : bytes);
  }
  blocks_ = std::move(blocks);
  store_->Read(file_, std::move(targets));
  state_ = State::kReading;
  return {};
}

void SwappedCache::StopReading() {
  KVASIR_CHECK(state_ == State::kReading || state_ == State::kRead);
  const bool is_free = store_->Release(file_, std::move(blocks_));
  blocks_.clear();
  state_ = State::kWritten;
  if (!is_free) Drop();
}

Result<KvSequence> SwappedCache::Take(KvPool* pool) {
  KVASIR_CHECK(state_ == State::kRead);
  KVASIR_TRY(const auto snapshots, MakeSnapshots(pool, map_, blocks_));
  auto sequence = KvSequence::Restore(pool, snapshots[0].snapshot);
  Drop();
  return sequence;
}

size_t SwappedCache::unwritten_bytes() const {
  if (state_ != State::kWriting) return 0;
  size_t bytes = 0;
  for (const KvBlock* block : BlockReferences()) bytes += block->owner->block_bytes();
  return bytes;
}

std::vector<const KvBlock*> SwappedCache::BlockReferences() const {
  std::vector<const KvBlock*> references;
  for (const BlockRef& block : blocks_) {
    if (block.get() != nullptr) references.push_back(block.get());
  }
  return references;
}

}  // namespace kvasir
