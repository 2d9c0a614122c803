// What a sequence or a snapshot holds: the blocks of every store, which positions its rows belong
// to, and the states of recurrent layers. Internal to kvasir/kv.
// Deliberately without a position: its owner knows where it ends.
#ifndef KVASIR_KV_KV_CONTENT_H_
#define KVASIR_KV_KV_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "kvasir/kv/kept_rows.h"
#include "kvasir/kv/kv_layer.h"
#include "kvasir/kv/kv_plan.h"
#include "kvasir/kv/recurrent_states.h"

namespace kvasir {

struct KvContent {
  std::shared_ptr<const KvPlan> plan;
  std::vector<KvLayer> stores;      // parallel to plan->stores()
  std::vector<KvKeptRowsRef> kept;  // parallel to plan->groups()
  RecurrentStates states;           // blocks parallel to plan->states()
  // What came from outside may lack rows in the blocks it holds: no state below this position but
  // the empty one is whole. 0: all are.
  Position floor = 0;

  bool evicted() const;

  // Nothing, as at position 0.
  static KvContent Empty(std::shared_ptr<const KvPlan> plan);

  // Null where nothing was evicted.
  const KvKeptRows* KeptOf(size_t store) const;
  // Row of a position in this store. REQUIRES: nothing was evicted after it.
  int64_t RowAt(size_t store, Position position) const { return RowOf(KeptOf(store), position); }
  // Whether the store holds every row that a query at `position` or later reads.
  bool Continues(size_t store, Position position) const;

  // What is held of [begin, end). Rows that were kept from before `begin` come along with those
  // before the last compaction. The recurrent state at `end` is that of the checkpoint there.
  KvContent Slice(Position begin, Position end) const;

  // Every reference to a block, as often as it is held.
  std::vector<const KvBlock*> References() const;
};

// Bytes of these blocks, each once.
size_t BlockBytes(std::vector<const KvBlock*> references);
// Bytes of those that nobody else references.
size_t ExclusiveBlockBytes(std::vector<const KvBlock*> references);

}  // namespace kvasir

#endif  // KVASIR_KV_KV_CONTENT_H_
