#include "kvasir/kv/kv_store.h"

#include <algorithm>
#include <utility>

#include "kvasir/kv/retention_kinds.h"

namespace kvasir {

Result<std::vector<KvStore>> KvStore::OfLayer(int layer, const KvLayerSpec& spec) {
  std::vector<KvStore> stores(spec.layout.dense_recent > 0 ? 2 : 1);
  KVASIR_TRY(stores[0].retention_, Retention::Make(spec.retention));
  stores[0].head_blocks_ = BlocksUpTo(stores[0].retention_->head_rows());
  const int64_t observed = spec.layout.observed_block;
  stores[0].size_changes_ = {spec.layout.dense_start / kBlockTokens, observed, observed + 1};
  if (stores.size() == 2) {
    stores[1].kind_ = Kind::kRecent;
    stores[1].retention_ = MakeRecentRetention(spec.layout.dense_recent);
  }
  for (KvStore& store : stores) {
    store.layer_ = layer;
    store.layout_ = spec.layout;
  }
  return stores;
}

size_t KvStore::BytesAt(int64_t rows) const {
  const int64_t first = retention_->FirstKept(std::max<int64_t>(rows - 1, 0), rows) / kBlockTokens;
  size_t bytes = 0;
  const auto add = [&bytes](int64_t, int64_t count, size_t block_bytes) {
    bytes += static_cast<size_t>(count) * block_bytes;
  };
  if (first <= head_blocks_) {
    VisitSizes(0, BlocksUpTo(rows), add);
  } else {
    VisitSizes(0, head_blocks_, add);
    VisitSizes(first, BlocksUpTo(rows), add);
  }
  return bytes;
}

}  // namespace kvasir
