#include "kvasir/kv/kv_spec.h"

#include <limits>
#include <string>

#include "kvasir/base/check.h"
#include "kvasir/kv/kv_store.h"

namespace kvasir {
namespace {

constexpr size_t kMaxStateBytes = size_t{1} << 40;

Error Invalid(const std::string& what) { return {ErrorCode::kInvalidArgument, what}; }

// Rows of a budget layer at `position`: compactions happen every `interval` tokens.
int64_t RowsAt(const RetentionSpec& retention, Position position) {
  if (retention.kind != RetentionSpec::Kind::kBudget || retention.interval == 0) return position;
  if (position <= retention.size + retention.interval) return position;
  return retention.size + (position - retention.size - 1) % retention.interval + 1;
}

Status ValidateRecurrent(const KvLayerSpec& layer) {
  KvLayerSpec plain;
  plain.state_bytes = layer.state_bytes;
  if (layer != plain) {
    return Invalid(
        "a recurrent layer (state_bytes > 0) has no rows; leave layout, retention, "
        "shares_layer, inv_freq and key_norm as they are");
  }
  if (layer.state_bytes <= kMaxStateBytes) return {};
  return Invalid("state_bytes is " + std::to_string(layer.state_bytes) + ", it must be at most " +
                 std::to_string(kMaxStateBytes));
}

// What the layout brings for the budget's scores, and what the budget needs of the layout.
Status ValidateBudget(const KvLayout& layout, const RetentionSpec& retention) {
  const bool budget = retention.kind == RetentionSpec::Kind::kBudget;
  if (layout.query_floats < 0 || (layout.query_floats > 0 && !(budget && retention.interval > 0))) {
    return Invalid("query_floats is " + std::to_string(layout.query_floats) +
                   "; only a budget with an interval observes queries, others need 0");
  }
  if (layout.query_floats > 0) {
    const int64_t last = (retention.size + retention.interval) / kBlockTokens - 1;
    if (layout.query_floats % layout.key_dim != 0 || layout.observed_block != last) {
      return Invalid("query_floats must be a multiple of key_dim and observed_block " +
                     std::to_string(last) + ", the last block before rows are evicted");
    }
  }
  if (!budget || layout.dense_recent == 0) return {};
  if (retention.size % kBlockTokens != 0 || retention.recent < layout.dense_recent) {
    return Invalid("with dense_recent " + std::to_string(layout.dense_recent) +
                   " a budget's size must be a multiple of " + std::to_string(kBlockTokens) +
                   " and its recent at least dense_recent: the last rows are kept as they are");
  }
  return {};
}

Status ValidateDerivation(const KvLayerSpec& layer) {
  const KvLayout& layout = layer.layout;
  const bool derived = layout.key_codec.kind == KvCodec::Kind::kFromValue;
  const auto key_dim = static_cast<size_t>(layout.key_dim);
  if (!layer.inv_freq.empty() && layer.inv_freq.size() != key_dim / 2) {
    return Invalid("inv_freq has " + std::to_string(layer.inv_freq.size()) +
                   " entries, it must have none or key_dim / 2");
  }
  if (layer.key_norm.size() != (derived ? key_dim : 0)) {
    return Invalid("key_norm has " + std::to_string(layer.key_norm.size()) +
                   " entries, it must have key_dim for from-value keys and none for others");
  }
  if (derived && (layer.inv_freq.empty() || layout.key_dim != layout.value_dim)) {
    return Invalid("from-value keys need inv_freq and key_dim equal to value_dim");
  }
  const RetentionSpec& retention = layer.retention;
  if (retention.kind == RetentionSpec::Kind::kBudget &&
      retention.score == RowScore::kExpectedAttention && layer.inv_freq.empty()) {
    return Invalid("the score expected-attention needs inv_freq; give it or use another score");
  }
  return {};
}

Status ValidateRows(const KvLayerSpec& layer) {
  KVASIR_TRY_OK(layer.layout.Validate());
  if (layer.layout.dense_start > kMaxRetentionTokens ||
      layer.layout.dense_recent > kMaxRetentionTokens) {
    return Invalid("dense_start and dense_recent must be at most " +
                   std::to_string(kMaxRetentionTokens));
  }
  if (!(layer.attention_scale >= 0 && layer.attention_scale <= std::numeric_limits<float>::max())) {
    return Invalid("attention_scale must be finite and 0 or more");
  }
  KVASIR_TRY_OK(layer.retention.Validate());
  KVASIR_TRY_OK(ValidateBudget(layer.layout, layer.retention));
  return ValidateDerivation(layer);
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
    if (layer.is_recurrent() && position > 0) bytes += layer.state_bytes;
    if (!layer.owns_rows()) continue;
    const auto stores = KvStore::OfLayer(0, layer);
    KVASIR_CHECK(stores.ok());
    for (const KvStore& store : *stores) bytes += store.BytesAt(RowsAt(layer.retention, position));
  }
  return bytes;
}

Status KvCacheSpec::Validate() const {
  if (layers.empty()) {
    return {ErrorCode::kInvalidArgument, "KV cache: it has no layers; give it at least one"};
  }
  const RetentionSpec* common = nullptr;  // of the layers that keep one set of rows
  for (size_t i = 0; i < layers.size(); ++i) {
    const auto invalid = [i](const std::string& what) {
      return Invalid("KV cache layer " + std::to_string(i) + ": " + what);
    };
    const KvLayerSpec& layer = layers[i];
    const Status status = layer.is_recurrent() ? ValidateRecurrent(layer) : ValidateRows(layer);
    if (!status.ok()) return invalid(status.error().message);
    if (layer.retention.kind == RetentionSpec::Kind::kBudget && !layer.retention.per_layer) {
      if (common != nullptr && *common != layer.retention) {
        return invalid("its budget '" + layer.retention.name() + "' differs from '" +
                       common->name() + "' of an earlier layer; make them equal or per-layer");
      }
      common = &layer.retention;
    }
    if (layer.owns_rows() || layer.is_recurrent()) continue;
    const auto shared = static_cast<size_t>(layer.shares_layer);
    if (shared >= i || !layers[shared].owns_rows()) {
      return invalid("shares_layer is " + std::to_string(layer.shares_layer) +
                     ", it must be an earlier layer that owns its rows");
    }
    if (layers[shared].layout != layer.layout || layers[shared].retention != layer.retention) {
      return invalid("it shares the rows of layer " + std::to_string(layer.shares_layer) +
                     " and must have the same layout and retention");
    }
  }
  return {};
}

}  // namespace kvasir
