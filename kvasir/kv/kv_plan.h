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
#include "kvasir/kv/retention.h"

namespace kvasir {

class KvPlan {
 public:
  // A layer that owns rows. Others find theirs through store_of().
  struct Store {
    int layer = 0;  // index in the spec
    size_t block_bytes = 0;
    std::unique_ptr<const Retention> retention;
  };

  // REQUIRES: pool outlives the plan. ERRORS: kInvalidArgument from KvCacheSpec::Validate.
  static Result<std::shared_ptr<const KvPlan>> Make(KvPool* pool,
                                                    std::shared_ptr<const KvCacheSpec> spec);

  KvPool* pool() const { return pool_; }
  const KvCacheSpec& spec() const { return *spec_; }
  const std::shared_ptr<const KvCacheSpec>& shared_spec() const { return spec_; }
  const std::vector<Store>& stores() const { return stores_; }
  int layer_count() const { return static_cast<int>(store_of_.size()); }
  // Index in stores() of the rows that `layer` reads. REQUIRES: 0 <= layer < layer_count().
  size_t store_of(int layer) const;
  // "layer 3 (window:512)", for messages.
  std::string StoreName(size_t store) const;
  // Same pool, same spec: blocks of one may be used by the other.
  bool Compatible(const KvPlan& other) const;

 private:
  KvPlan() = default;

  KvPool* pool_ = nullptr;
  std::shared_ptr<const KvCacheSpec> spec_;
  std::vector<Store> stores_;
  std::vector<size_t> store_of_;  // per layer of the spec
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_PLAN_H_
