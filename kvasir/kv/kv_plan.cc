#include "kvasir/kv/kv_plan.h"

#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

Result<std::shared_ptr<const KvPlan>> KvPlan::Make(KvPool* pool,
                                                   std::shared_ptr<const KvCacheSpec> spec) {
  KVASIR_CHECK(pool != nullptr && spec != nullptr);
  KVASIR_TRY_OK(spec->Validate());
  std::shared_ptr<KvPlan> plan(new KvPlan);
  plan->pool_ = pool;
  plan->spec_ = std::move(spec);
  for (size_t i = 0; i < plan->spec_->layers.size(); ++i) {
    const KvLayerSpec& layer = plan->spec_->layers[i];
    if (!layer.owns_rows()) {
      plan->store_of_.push_back(plan->store_of(layer.shares_layer));
      continue;
    }
    KVASIR_TRY(auto retention, Retention::Make(layer.retention));
    plan->store_of_.push_back(plan->stores_.size());
    plan->stores_.push_back({static_cast<int>(i), layer.layout.BlockBytes(0), std::move(retention)});
  }
  return std::shared_ptr<const KvPlan>(std::move(plan));
}

size_t KvPlan::store_of(int layer) const {
  KVASIR_CHECK(layer >= 0 && layer < layer_count());
  return store_of_[static_cast<size_t>(layer)];
}

std::string KvPlan::StoreName(size_t store) const {
  const int layer = stores_[store].layer;
  return "layer " + std::to_string(layer) + " (" +
         spec_->layers[static_cast<size_t>(layer)].retention.name() + ")";
}

bool KvPlan::Compatible(const KvPlan& other) const {
  return this == &other || (pool_ == other.pool_ && *spec_ == *other.spec_);
}

}  // namespace kvasir
