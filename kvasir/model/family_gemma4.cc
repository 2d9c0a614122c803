// Gemma 4 text: norms around attention and MLP, queries, keys and values normed per head (so scores
// need no scale), another head size on full-attention layers, a scalar on every layer's output; by
// size also per-layer embeddings, shared keys and values, values that are keys, experts.
#include <cmath>

#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec Gemma4Spec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  spec.has_value_norm = true;
  spec.has_layer_scalar = true;
  spec.per_layer_size = config.per_layer_embedding_size;
  return spec;
}

}  // namespace kvasir
