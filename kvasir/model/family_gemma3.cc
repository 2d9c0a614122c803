// Gemma 2 and 3 text: norms around attention and MLP, norm weights stored around 0, embeddings
// scaled by sqrt(hidden), window layers between full ones; Gemma 3 has a rope of its own for them.
#include <cmath>

#include "kvasir/model/families.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {

DecoderSpec Gemma2Spec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.norm_offset = config.norms_hold_offset ? 0 : 1;
  spec.embedding_scale = static_cast<float>(std::sqrt(static_cast<double>(config.hidden_size)));
  return spec;
}

DecoderSpec Gemma3Spec(const ModelConfig& config) {
  DecoderSpec spec = Gemma2Spec(config);
  // Rounded to bfloat16, the type that all are published in: as mlx-lm, whatever it computes in.
  // transformers rounds it to the type of the weights; a copy in f32 is another model there.
  spec.embedding_scale = Bf16ToFloat(FloatToBf16(spec.embedding_scale));
  return spec;
}

}  // namespace kvasir
