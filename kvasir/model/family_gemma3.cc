// Gemma 3 text: norms around attention and MLP, norm weights stored around 0, embeddings scaled by
// sqrt(hidden), window layers with a rope of their own between full ones.
#include <cmath>

#include "kvasir/model/families.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {

DecoderSpec Gemma3Spec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.norms = DecoderSpec::Norms::kSandwich;
  spec.norm_offset = config.norms_hold_offset ? 0 : 1;
  // The reference rounds the scale to bfloat16 whatever it computes in.
  const float scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  spec.embedding_scale = Bf16ToFloat(FloatToBf16(scale));
  return spec;
}

}  // namespace kvasir
