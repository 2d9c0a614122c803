// LFM2 and LFM2.5: most layers are gated short convolutions, the others have attention with norms
// on queries and keys; experts, where there are some, are chosen by sigmoids and biases.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec Lfm2Spec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.short_conv = {.width = config.short_conv.width, .has_bias = config.short_conv.has_bias};
  return spec;
}

}  // namespace kvasir
