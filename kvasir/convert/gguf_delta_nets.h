// Tensors of models with delta nets (Qwen3.5, Qwen3-Next) as GGUF files have them.
// Deliberately only where tensors differ from the checkpoint's: names are GgufTensorName's.
#ifndef KVASIR_CONVERT_GGUF_DELTA_NETS_H_
#define KVASIR_CONVERT_GGUF_DELTA_NETS_H_

#include <vector>

#include "kvasir/convert/model_source.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// Rates of decay in place of their logarithms; convolutions without their one input; the gate of
// the shared expert as a vector; projections that Qwen3-Next joins by key head apart, but for
// `in_proj_ba`; and, where they are apart in the checkpoint, value heads in rounds over the key
// heads (the conventions of llama.cpp's converter).
// REQUIRES: a decoder of this config could be loaded from the tensors.
std::vector<SourceTensor> GgufDeltaNets(std::vector<SourceTensor> tensors,
                                        const ModelConfig& config);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_GGUF_DELTA_NETS_H_
