// A validated KvCacheSpec with its rules worked out, shared by all sequences and snapshots that
// stem from one KvSequence::Create. Internal to kvasir/kv.
// Deliberately immutable.
#ifndef KVASIR_KV_KV_PLAN_H_
#define KVASIR_KV_KV_PLAN_H_

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/kv/kv_store.h"

namespace kvasir {

class KvPlan {
 public:
  // Layers whose rows are evicted together: they keep the same positions.
  struct Group {
    RetentionSpec budget;
    std::vector<int> layers;
    std::vector<size_t> stores;  // of these layers
  };
  // A recurrent layer.
  struct State {
    int layer = 0;
    size_t bytes = 0;
  };

  // REQUIRES: pool outlives the plan. ERRORS: kInvalidArgument from KvCacheSpec::Validate.
  static Result<std::shared_ptr<const KvPlan>> Make(KvPool* pool,
                                                    std::shared_ptr<const KvCacheSpec> spec);

  KvPool* pool() const { return pool_; }
  const KvCacheSpec& spec() const { return *spec_; }
  const std::shared_ptr<const KvCacheSpec>& shared_spec() const { return spec_; }
  const std::vector<KvStore>& stores() const { return stores_; }
  const std::vector<Group>& groups() const { return groups_; }
  const std::vector<State>& states() const { return states_; }
  int layer_count() const { return static_cast<int>(spec_->layers.size()); }

  // Index in stores() of the rows that `layer` reads.
  // REQUIRES: 0 <= layer < layer_count(), not recurrent.
  size_t store_of(int layer) const;
  // Index in stores() of the recent copies that `layer` reads. REQUIRES: its layout has them.
  size_t recent_store_of(int layer) const { return store_of(layer) + 1; }
  // Index in states(). REQUIRES: the layer is recurrent.
  size_t state_of(int layer) const;
  // Index in groups() of a store, or -1.
  int group_of(size_t store) const { return group_of_[store]; }

  // "layer 3 (window:512)", for messages.
  std::string StoreName(size_t store) const;
  // Same pool, same spec: blocks of one may be used by the other.
  bool Compatible(const KvPlan& other) const;

 private:
  KvPlan() = default;
  Status AddLayer(int layer);
  int GroupFor(int layer);

  KvPool* pool_ = nullptr;
  std::shared_ptr<const KvCacheSpec> spec_;
  std::vector<KvStore> stores_;
  std::vector<Group> groups_;
  std::vector<State> states_;
  std::vector<size_t> index_of_;  // per layer of the spec: in stores_ or states_
  std::vector<int> group_of_;     // per store
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_PLAN_H_
