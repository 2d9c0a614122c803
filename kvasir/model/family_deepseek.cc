// DeepSeek-V2 and V3 and what has their attention: keys and values in one latent for each token,
// and experts beside a shared one, chosen among the best groups.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec DeepSeekSpec(const ModelConfig& config) {
  DecoderSpec spec = CommonSpec(config);
  spec.experts.has_deepseek_names = true;
  spec.ropes[0].is_interleaved = true;
  return spec;
}

}  // namespace kvasir
