// Tensors of LFM2 and of Granite 4's hybrids as GGUF files have them.
// Deliberately only where tensors differ from the checkpoint's: names are GgufTensorName's.
#ifndef KVASIR_CONVERT_GGUF_HYBRIDS_H_
#define KVASIR_CONVERT_GGUF_HYBRIDS_H_

#include <vector>

#include "kvasir/convert/model_source.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

// Convolutions without their one input; of Mamba-2 rates of decay in place of their logarithms,
// numbers of heads as columns, norms with a row for each group (the conventions of llama.cpp's
// converter). Others stay.
// REQUIRES: a decoder of this config could be loaded from the tensors.
std::vector<SourceTensor> GgufHybrids(std::vector<SourceTensor> tensors, const ModelConfig& config);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_GGUF_HYBRIDS_H_
