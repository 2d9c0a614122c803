// Phi-3 and Phi-4: Llama whose queries, keys and values are one matrix, as are gates and ups; of
// the smaller ones only the first part of a head turns.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec Phi3Spec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.has_fused_qkv = true;
  spec.mlp_names = DecoderSpec::MlpNames::kFused;
  return spec;
}

}  // namespace kvasir
