// Llama 3.x: pre-norm blocks, SiLU gate, no biases: what CommonSpec says. Ministral 3 scales
// queries by their positions and SmolLM3 has layers that do not turn, which ropes say; Granite has
// factors on embeddings, residuals and logits, and Granite 4's hybrids Mamba-2 in most layers.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec LlamaSpec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.embedding_scale = static_cast<float>(config.embedding_multiplier);
  spec.residual_scale = static_cast<float>(config.residual_multiplier);
  spec.logits_scale = static_cast<float>(1.0 / config.logits_scaling);
  if (config.has_shared_mlp) spec.mlp_names = DecoderSpec::MlpNames::kShared;
  const DeltaNetConfig& net = config.delta_net;
  if (!net.is_mamba) return spec;
  spec.delta_net = {.rule = DeltaShape::Rule::kMamba,
                    .key_heads = net.key_heads,
                    .value_heads = net.value_heads,
                    .key_dim = net.key_dim,
                    .value_dim = net.value_dim,
                    .conv_width = net.conv_width};
  spec.has_conv_bias = net.has_conv_bias;
  return spec;
}

}  // namespace kvasir
