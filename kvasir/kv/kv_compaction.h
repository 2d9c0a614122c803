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

  // Blocks to take, at most one demand per size: those that are not taken over whole.
  std::vector<KvPool::Demand> Needs(const KvContent& content) const;
  // REQUIRES: the content Plan was given, unchanged; KvPool::EnsureFree(Needs()).
  void Apply(KvContent* content) const;

 private:
  // Index of the old block whose rows are those of the new one; -1 if rows must be copied.
  int64_t WholeSource(const KvStore& store, int64_t block) const;
  KvLayer Rearranged(const KvContent& content, size_t store) const;

  size_t group_ = 0;
  std::vector<int64_t> source_;  // old row of each new one
  KvKeptRowsRef kept_;
};

// Positions of the rows of a group that ends at `next`, by row.
std::vector<Position> PositionsOf(const KvKeptRows* kept, Position next);

}  // namespace kvasir

#endif  // KVASIR_KV_KV_COMPACTION_H_
