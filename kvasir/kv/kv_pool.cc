#include "kvasir/kv/kv_pool.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr int64_t kSmallestSlabCapBlocks = 4;
constexpr size_t kLargestBudgetShare = 8;

}  // namespace

KvPool::KvPool(KvPoolOptions options)
    : budget_bytes_(options.budget_bytes),
      max_slab_bytes_(std::min(options.max_slab_bytes, options.budget_bytes / kLargestBudgetShare)),
      memory_(options.memory != nullptr ? std::move(options.memory) : KvMemory::Host()) {}

KvPool::~KvPool() = default;

size_t KvPool::used_bytes() const {
  size_t bytes = 0;
  for (const auto& size_class : classes_) {
    const int64_t used = size_class->blocks() - size_class->free_blocks();
    bytes += static_cast<size_t>(used) * size_class->block_bytes();
  }
  return bytes;
}

uint64_t KvPool::committed_bytes() const {
  uint64_t bytes = 0;
  for (const auto& size_class : classes_) bytes += size_class->committed_bytes();
  return bytes;
}

KvPoolStats KvPool::Stats() const {
  KvPoolStats stats;
  stats.budget_bytes = budget_bytes_;
  stats.reserved_bytes = reserved_bytes_;
  stats.used_bytes = used_bytes();
  stats.peak_used_bytes = peak_used_bytes_;
  stats.copied_bytes = copied_bytes_;
  stats.growth_events = growth_events_;
  for (const auto& size_class : classes_) {
    stats.size_classes.push_back({size_class->block_bytes(), size_class->blocks(),
                                  size_class->blocks() - size_class->free_blocks(),
                                  size_class->slabs()});
  }
  return stats;
}

void KvPool::AddDemand(Demand demand, std::vector<Demand>* demands) {
  for (Demand& other : *demands) {
    if (other.block_bytes != demand.block_bytes) continue;
    other.count += demand.count;
    return;
  }
  demands->push_back(demand);
}

Status KvPool::EnsureFree(std::span<const Demand> demands) {
  const std::optional<size_t> missing_bytes = MissingBytes(demands);
  if (missing_bytes == size_t{0}) return {};
  if (!missing_bytes || !MakeRoom(demands, *missing_bytes)) return OverBudget(demands);
  size_t spare_bytes = budget_bytes_ - reserved_bytes_ - *missing_bytes;
  for (const Demand& demand : demands) {
    const Status grown = Grow(ClassOf(demand.block_bytes), demand.count, &spare_bytes);
    if (grown.ok()) continue;
    // The system is short of memory: what it gave until then is of more use elsewhere.
    ReleaseFreeSlabs();
    return grown.error();
  }
  return {};
}

std::optional<size_t> KvPool::MissingBytes(std::span<const Demand> demands) const {
  size_t missing_bytes = 0;
  for (const Demand& demand : demands) {
    const int64_t missing = demand.count - FreeBlocks(demand.block_bytes);
    if (missing <= 0) continue;
    const size_t left = (budget_bytes_ - missing_bytes) / demand.block_bytes;
    if (static_cast<size_t>(missing) > left) return std::nullopt;
    missing_bytes += static_cast<size_t>(missing) * demand.block_bytes;
  }
  return missing_bytes;
}

bool KvPool::MakeRoom(std::span<const Demand> demands, size_t missing_bytes) {
  if (missing_bytes <= budget_bytes_ - reserved_bytes_) return true;
  const auto demanded = [&](size_t block_bytes) {
    for (const Demand& demand : demands) {
      if (demand.block_bytes == block_bytes) return demand.count;
    }
    return int64_t{0};
  };
  const size_t excess_bytes = missing_bytes - (budget_bytes_ - reserved_bytes_);
  size_t releasable_bytes = 0;
  for (const auto& size_class : classes_) {
    releasable_bytes += size_class->EmptySlabBytes(demanded(size_class->block_bytes()));
  }
  if (releasable_bytes < excess_bytes) return false;
  size_t released_bytes = 0;
  for (const auto& size_class : classes_) {
    if (released_bytes >= excess_bytes) break;
    released_bytes += size_class->ReleaseEmptySlabs(demanded(size_class->block_bytes()),
                                                    excess_bytes - released_bytes);
  }
  reserved_bytes_ -= released_bytes;
  return true;
}

Status KvPool::Grow(KvSizeClass& size_class, int64_t wanted_free, size_t* spare_bytes) {
  const size_t block_bytes = size_class.block_bytes();
  const auto cap =
      std::max(kSmallestSlabCapBlocks, static_cast<int64_t>(max_slab_bytes_ / block_bytes));
  while (size_class.free_blocks() < wanted_free) {
    const int64_t needed = wanted_free - size_class.free_blocks();
    const auto affordable = needed + static_cast<int64_t>(*spare_bytes / block_bytes);
    const int64_t most = grows_exactly_ ? needed : size_class.NextSlabBlocks();
    const int64_t blocks = std::min({most, cap, affordable});
    KVASIR_TRY_OK(size_class.Grow(blocks));
    if (blocks > needed) *spare_bytes -= static_cast<size_t>(blocks - needed) * block_bytes;
    reserved_bytes_ += static_cast<size_t>(blocks) * block_bytes;
    ++growth_events_;
  }
  return {};
}

Error KvPool::OverBudget(std::span<const Demand> demands) const {
  std::string wanted;
  for (const Demand& demand : demands) {
    if (!wanted.empty()) wanted += " and ";
    wanted += std::to_string(demand.count) + " blocks of " + std::to_string(demand.block_bytes) +
              " bytes (" + std::to_string(FreeBlocks(demand.block_bytes)) + " free)";
  }
  return {ErrorCode::kResourceExhausted,
          "KV pool: " + wanted + " are wanted and do not fit into the budget of " +
              std::to_string(budget_bytes_) + " bytes, of which " +
              std::to_string(reserved_bytes_) + " are in slabs and " +
              std::to_string(used_bytes()) +
              " in use; end sequences, drop snapshots or raise the cache budget (--cache-bytes)"};
}

BlockRef KvPool::Take(size_t block_bytes) {
  BlockRef block = ClassOf(block_bytes).Take();
  peak_used_bytes_ = std::max(peak_used_bytes_, used_bytes());
  return block;
}

BlockRef KvPool::TakeZeroed(size_t block_bytes) {
  BlockRef block = Take(block_bytes);
  memory_->Zero(block.data(), block_bytes);
  return block;
}

BlockRef KvPool::TakeCopy(const BlockRef& block) {
  const size_t block_bytes = block.get()->owner->block_bytes();
  BlockRef copy = Take(block_bytes);
  memory_->Copy(copy.data(), block.data(), block_bytes);
  copied_bytes_ += block_bytes;
  return copy;
}

int64_t KvPool::FreeBlocks(size_t block_bytes) const {
  const KvSizeClass* size_class = FindClass(block_bytes);
  return size_class != nullptr ? size_class->free_blocks() : 0;
}

size_t KvPool::ReleaseFreeSlabs() {
  size_t released_bytes = 0;
  for (const auto& size_class : classes_) {
    released_bytes += size_class->ReleaseEmptySlabs(0, SIZE_MAX);
  }
  reserved_bytes_ -= released_bytes;
  return released_bytes;
}

KvSizeClass& KvPool::ClassOf(size_t block_bytes) {
  if (const KvSizeClass* found = FindClass(block_bytes)) return const_cast<KvSizeClass&>(*found);
  return *classes_.emplace_back(std::make_unique<KvSizeClass>(block_bytes, memory_.get()));
}

const KvSizeClass* KvPool::FindClass(size_t block_bytes) const {
  for (const auto& size_class : classes_) {
    if (size_class->block_bytes() == block_bytes) return size_class.get();
  }
  return nullptr;
}

}  // namespace kvasir
