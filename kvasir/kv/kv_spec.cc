#include "kvasir/kv/kv_spec.h"

#include <string>

#include "kvasir/base/check.h"
#include "kvasir/kv/retention.h"

namespace kvasir {
namespace {

Error Invalid(size_t layer, const std::string& what) {
  return {ErrorCode::kInvalidArgument, "KV cache layer " + std::to_string(layer) + ": " + what};
}

}  // namespace

KvCacheSpec KvCacheSpec::Uniform(int layer_count, const KvLayerSpec& layer) {
  return {std::vector<KvLayerSpec>(static_cast<size_t>(layer_count), layer)};
}

size_t KvCacheSpec::TokenBytes() const {
  size_t bytes = 0;
  for (const KvLayerSpec& layer : layers) {
    if (layer.owns_rows()) bytes += layer.layout.TokenBytes();
  }
  return bytes;
}

size_t KvCacheSpec::BytesAt(Position position) const {
  size_t bytes = 0;
  for (const KvLayerSpec& layer : layers) {
    if (!layer.owns_rows()) continue;
    const auto retention = Retention::Make(layer.retention);
    KVASIR_CHECK(retention.ok());
    const int64_t first_block = retention.value()->FirstNeeded(position) / kBlockTokens;
    const int64_t end_block = (position + kBlockTokens - 1) / kBlockTokens;
    bytes += static_cast<size_t>(end_block - first_block) * layer.layout.BlockBytes(0);
  }
  return bytes;
}

Status KvCacheSpec::Validate() const {
  if (layers.empty()) {
    return {ErrorCode::kInvalidArgument, "KV cache: it has no layers; give it at least one"};
  }
  for (size_t i = 0; i < layers.size(); ++i) {
    const KvLayerSpec& layer = layers[i];
    if (const Status status = layer.layout.Validate(); !status.ok()) {
      return Invalid(i, status.error().message);
    }
    if (const Status status = layer.retention.Validate(); !status.ok()) {
      return Invalid(i, status.error().message);
    }
    if (layer.owns_rows()) continue;
    const auto shared = static_cast<size_t>(layer.shares_layer);
    if (shared >= i || !layers[shared].owns_rows()) {
      return Invalid(i, "shares_layer is " + std::to_string(layer.shares_layer) +
                            ", it must be an earlier layer that owns its rows");
    }
    if (layers[shared].layout != layer.layout || layers[shared].retention != layer.retention) {
      return Invalid(i, "it shares the rows of layer " + std::to_string(layer.shares_layer) +
                            " and must have the same layout and retention");
    }
  }
  return {};
}

}  // namespace kvasir
