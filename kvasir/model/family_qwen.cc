// Qwen2/2.5: Llama with biases on q, k and v. Qwen3: no biases, but a norm on every query and key
// head. Both differences are read from the config, so the graph is the common one.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec QwenSpec(const ModelConfig& config) { return CommonSpec(config); }

}  // namespace kvasir
