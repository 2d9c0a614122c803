#include "kvasir/model/model.h"

#include <string>

namespace kvasir {
namespace {

Error Misfit(size_t layer, const char* what, int64_t given, int64_t wanted) {
  return {ErrorCode::kInvalidArgument, "cache spec: layer " + std::to_string(layer) + " has " +
                                           std::to_string(given) + " " + what + ", the model's " +
                                           std::to_string(wanted)};
}

}  // namespace

Status CheckCacheSpec(const KvCacheSpec& spec, const Model& model) {
  const KvCacheSpec own = model.CacheSpec(KvCodec());
  if (spec.layers.size() != own.layers.size()) {
    return {ErrorCode::kInvalidArgument,
            "cache spec: it has " + std::to_string(spec.layers.size()) + " layers and the model " +
                std::to_string(own.layers.size())};
  }
  for (size_t i = 0; i < own.layers.size(); ++i) {
    const KvLayerSpec& given = spec.layers[i];
    const KvLayerSpec& wanted = own.layers[i];
    const KvLayout& layout = given.layout;
    if (given.state_bytes != wanted.state_bytes) {
      return Misfit(i, "bytes of recurrent state", static_cast<int64_t>(given.state_bytes),
                    static_cast<int64_t>(wanted.state_bytes));
    }
    if (wanted.is_recurrent()) continue;
    if (layout.kv_heads != wanted.layout.kv_heads) {
      return Misfit(i, "kv heads", layout.kv_heads, wanted.layout.kv_heads);
    }
    if (layout.key_dim != wanted.layout.key_dim) {
      return Misfit(i, "floats in a key", layout.key_dim, wanted.layout.key_dim);
    }
    if (layout.value_dim != wanted.layout.value_dim) {
      return Misfit(i, "floats in a value", layout.value_dim, wanted.layout.value_dim);
    }
  }
  return {};
}

}  // namespace kvasir
