// OLMo 2 and 3: norms only after attention and MLP, queries and keys normed over all their heads
// together; OLMo 3 has a window in three of four layers, whose rope is not scaled. All of it is
// read from the config, so the graph is the common one.
#include "kvasir/model/families.h"

namespace kvasir {

DecoderSpec OlmoSpec(const ModelConfig& config) { return CommonSpec(config); }

}  // namespace kvasir
