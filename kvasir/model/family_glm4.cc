// GLM-4, whose layers have four norms and one matrix of gates and ups, and GLM-4.5 to 4.7, which
// have the experts of DeepSeek-V3 instead. Half of a head turns, of GLM-4's in pairs of neighbours.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec Glm4Spec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  if (config.family == ModelFamily::kGlm4) {
    spec.mlp_names = DecoderSpec::MlpNames::kFused;
    spec.ropes[0].is_interleaved = true;
    return spec;
  }
  spec.experts.has_deepseek_names = true;
  return spec;
}

}  // namespace kvasir
