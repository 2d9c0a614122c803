// gpt-oss: Llama with biases on all projections, a sink for each query head, a window in every
// other layer, and experts whose gates are clamped.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec GptOssSpec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.has_sinks = true;
  spec.experts.has_biases = true;
  spec.activation = GateActivation::kClamped;
  return spec;
}

}  // namespace kvasir
