// Llama 3.x: pre-norm blocks, SiLU gate, no biases. Everything is what CommonSpec says.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec LlamaSpec(const ModelConfig& config) { return CommonSpec(config); }

}  // namespace kvasir
