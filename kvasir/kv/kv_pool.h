// The memory of a KV cache: blocks under one byte budget, carved from slabs that double.
// Deliberately knows neither layers nor sequences, and never evicts: it refuses, others decide.
#ifndef KVASIR_KV_KV_POOL_H_
#define KVASIR_KV_KV_POOL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_block.h"
#include "kvasir/kv/kv_memory.h"
#include "kvasir/kv/kv_size_class.h"

namespace kvasir {

struct KvPoolOptions {
  // Upper bound of the bytes of all slabs together.
  size_t budget_bytes = 0;
  // No slab is larger than this or an eighth of the budget (but 4 blocks are always allowed): what
  // a growing size class takes ahead of its need can cost another class at most that much.
  size_t max_slab_bytes = size_t{64} << 20;
  // Null: KvMemory::Host().
  std::unique_ptr<KvMemory> memory;
};

struct KvPoolStats {
  struct SizeClass {
    size_t block_bytes = 0;
    int64_t blocks = 0;  // in slabs
    int64_t blocks_used = 0;
    int64_t slabs = 0;
  };

  size_t budget_bytes = 0;
  size_t reserved_bytes = 0;  // slabs; at most budget_bytes
  size_t used_bytes = 0;      // blocks in use, each counted once however often it is shared
  size_t peak_used_bytes = 0;
  uint64_t copied_bytes = 0;   // since creation; only copy-on-write of shared tail blocks copies
  uint64_t growth_events = 0;  // slabs ever added
  std::vector<SizeClass> size_classes;
};

// THREADS: one thread uses a pool and everything that references it.
// The pool must outlive every sequence and snapshot made from it (checked).
class KvPool {
 public:
  // `count` blocks of `block_bytes` bytes.
  struct Demand {
    size_t block_bytes = 0;
    int64_t count = 0;
  };
  // Adds to the demand of that size, or a new one.
  static void AddDemand(Demand demand, std::vector<Demand>* demands);

  explicit KvPool(KvPoolOptions options);
  ~KvPool();
  KvPool(const KvPool&) = delete;
  KvPool& operator=(const KvPool&) = delete;

  size_t budget_bytes() const { return budget_bytes_; }
  size_t reserved_bytes() const { return reserved_bytes_; }
  size_t used_bytes() const;
  // Of blocks that were taken for the first time since their slab was made, ever: the system gives
  // the pages then, which takes longer than writing them again.
  uint64_t committed_bytes() const;
  KvPoolStats Stats() const;

  // Makes sure that all of `demands` (one per size at most) can be taken; adds slabs where needed
  // and gives back empty ones when only that makes room. When the budget refuses, nothing has
  // changed; when the system refuses memory, what is free goes back to it.
  // ERRORS: kResourceExhausted, with the bytes wanted, the budget and what is in use.
  Status EnsureFree(std::span<const Demand> demands);

  // A block with undefined bytes. REQUIRES: EnsureFree promised it.
  BlockRef Take(size_t block_bytes);
  // A block of zero bytes. REQUIRES: EnsureFree promised it.
  BlockRef TakeZeroed(size_t block_bytes);
  // A private copy of a whole block. Counts into copied_bytes. REQUIRES: EnsureFree promised it.
  BlockRef TakeCopy(const BlockRef& block);
  // Blocks of this size that can be taken without a new slab.
  int64_t FreeBlocks(size_t block_bytes) const;

  // Whether new slabs hold only what is wanted of them, instead of doubling: for whoever has the
  // pool alone and needs all of it, as free blocks of one size do not serve another.
  void SetExactGrowth(bool is_exact) { grows_exactly_ = is_exact; }

  // Gives every slab without a block in use back to the system. Returns the bytes given back.
  size_t ReleaseFreeSlabs();

 private:
  KvSizeClass& ClassOf(size_t block_bytes);
  const KvSizeClass* FindClass(size_t block_bytes) const;
  // Bytes of new blocks that `demands` need; none if that is more than the whole budget.
  std::optional<size_t> MissingBytes(std::span<const Demand> demands) const;
  // Brings reserved_bytes() + missing_bytes within the budget by giving back empty slabs, as far
  // as `demands` do not count on their blocks. Gives back nothing if that is not enough.
  bool MakeRoom(std::span<const Demand> demands, size_t missing_bytes);
  // Adds slabs until wanted_free blocks are free. What a slab holds beyond the need comes out of
  // *spare_bytes.
  Status Grow(KvSizeClass& size_class, int64_t wanted_free, size_t* spare_bytes);
  Error OverBudget(std::span<const Demand> demands) const;

  size_t budget_bytes_;
  size_t max_slab_bytes_;
  std::unique_ptr<KvMemory> memory_;
  std::vector<std::unique_ptr<KvSizeClass>> classes_;  // few: a model has one or two block sizes
  bool grows_exactly_ = false;
  size_t reserved_bytes_ = 0;
  size_t peak_used_bytes_ = 0;
  uint64_t copied_bytes_ = 0;
  uint64_t growth_events_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_POOL_H_
