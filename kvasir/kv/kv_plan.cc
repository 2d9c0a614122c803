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
  for (int layer = 0; layer < plan->layer_count(); ++layer) {
    KVASIR_TRY_OK(plan->AddLayer(layer));
  }
  return std::shared_ptr<const KvPlan>(std::move(plan));
}

Status KvPlan::AddLayer(int layer) {
  const KvLayerSpec& layer_spec = spec_->layers[static_cast<size_t>(layer)];
  if (layer_spec.is_recurrent()) {
    index_of_.push_back(states_.size());
    states_.push_back({layer, layer_spec.state_bytes});
    return {};
  }
  if (!layer_spec.owns_rows()) {
    index_of_.push_back(store_of(layer_spec.shares_layer));
    return {};
  }
  KVASIR_TRY(auto stores, KvStore::OfLayer(layer, layer_spec));
  const int group = GroupFor(layer);
  index_of_.push_back(stores_.size());
  for (KvStore& store : stores) {
    if (group >= 0) groups_[static_cast<size_t>(group)].stores.push_back(stores_.size());
    group_of_.push_back(group);
    stores_.push_back(std::move(store));
  }
  return {};
}

int KvPlan::GroupFor(int layer) {
  const RetentionSpec& retention = spec_->layers[static_cast<size_t>(layer)].retention;
  if (retention.kind != RetentionSpec::Kind::kBudget) return -1;
  for (size_t i = 0; i < groups_.size() && !retention.per_layer; ++i) {
    if (groups_[i].budget.per_layer) continue;
    groups_[i].layers.push_back(layer);
    return static_cast<int>(i);
  }
  groups_.push_back({retention, {layer}, {}});
  return static_cast<int>(groups_.size()) - 1;
}

size_t KvPlan::store_of(int layer) const {
  KVASIR_CHECK(layer >= 0 && layer < layer_count());
  KVASIR_CHECK(!spec_->layers[static_cast<size_t>(layer)].is_recurrent());
  return index_of_[static_cast<size_t>(layer)];
}

size_t KvPlan::state_of(int layer) const {
  KVASIR_CHECK(layer >= 0 && layer < layer_count());
  KVASIR_CHECK(spec_->layers[static_cast<size_t>(layer)].is_recurrent());
  return index_of_[static_cast<size_t>(layer)];
}

std::string KvPlan::StoreName(size_t store) const {
  const int layer = stores_[store].layer();
  const bool recent = stores_[store].kind() == KvStore::Kind::kRecent;
  return "layer " + std::to_string(layer) + " (" +
         spec_->layers[static_cast<size_t>(layer)].retention.name() +
         (recent ? ", its recent rows)" : ")");
}

bool KvPlan::Compatible(const KvPlan& other) const {
  return this == &other || (pool_ == other.pool_ && *spec_ == *other.spec_);
}

}  // namespace kvasir
