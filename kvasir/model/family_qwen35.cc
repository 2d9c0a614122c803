// Qwen3.5, 3.6 and Qwen3-Next: most layers are gated delta nets, the others have attention with
// norms and a gate on every query head, of which only the first part is rotated; norms are stored
// around 0.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec Qwen35Spec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  const DeltaNetConfig& net = config.delta_net;
  spec.norm_offset = config.norms_hold_offset ? 0 : 1;
  spec.delta_net = {.key_heads = net.key_heads,
                    .value_heads = net.value_heads,
                    .key_dim = net.key_dim,
                    .value_dim = net.value_dim,
                    .conv_width = net.conv_width,
                    .is_tiled = net.is_tiled};
  return spec;
}

}  // namespace kvasir
