// OLMo 2 and 3: norms only after attention and MLP, queries and keys normed over all their heads
// together; OLMo 3 has a window in three of four layers, whose rope is not scaled.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec OlmoSpec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.norms = DecoderSpec::Norms::kPost;
  spec.has_wide_qk_norm = true;
  return spec;
}

}  // namespace kvasir
