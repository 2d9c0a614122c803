// One eviction of a budget: which rows of a group of layers stay, and the blocks they move to.
// Deliberately in two steps, so that the blocks it needs can be ensured before anything changes.
// Internal to kvasir/kv.
#ifndef KVASIR_KV_KV_COMPACTION_H_
#define KVASIR_KV_KV_COMPACTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/kv/kv_content.h"

namespace kvasir {

class KvCompaction {
 public:
  // Ranks the rows that `group` stores at `next` and chooses those that stay. Host memory only.
  static KvCompaction Plan(const KvContent& content, size_t group, Position next);

  size_t group() const { return group_; }
  int64_t rows() const { return static_cast<int64_t>(source_.size()); }

  // Blocks to take, at most one demand per size. A block that keeps all its rows is taken over; so
  // is one that keeps most, the others written into its gaps, unless others reference it.
  std::vector<KvPool::Demand> Needs(const KvContent& content) const;
  // REQUIRES: the content Plan was given, but for reservations; KvPool::EnsureFree(Needs()).
  void Apply(KvContent* content) const;

 private:
  // How a new block comes about.
  struct NewBlock {
    // Old block of which most of its rows keep their slots; -1: none.
    int64_t base = -1;
    int64_t stays = 0;  // rows that do
    // No row of the base goes elsewhere: the slots of the others are free.
    bool alone = false;
  };
  enum class Way { kShare, kPatch, kCopyAndPatch, kGather };

  void FindBases();
  Way WayOf(const KvStore& store, const KvLayer& old_layer, int64_t block) const;
  int64_t RowsIn(int64_t block) const;
  KvLayer Rearranged(const KvContent& content, size_t store) const;

  size_t group_ = 0;
  std::vector<int64_t> source_;  // old row of each new one
  std::vector<NewBlock> blocks_;
  KvKeptRowsRef kept_;
};

// Positions of the rows of a group that ends at `next`, by row.
std::vector<Position> PositionsOf(const KvKeptRows* kept, Position next);

}  // namespace kvasir

#endif  // KVASIR_KV_KV_COMPACTION_H_
