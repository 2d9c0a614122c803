// Matrices with scales beside them that say by their types what they are: those of
// compressed-tensors, FP8 and ModelOpt. Deliberately by the tensors alone, but for the size of
// blocks.
#ifndef KVASIR_FORMATS_SCALED_WEIGHTS_H_
#define KVASIR_FORMATS_SCALED_WEIGHTS_H_

#include "kvasir/base/result.h"
#include "kvasir/formats/checkpoint_quantization.h"
#include "kvasir/formats/hf_weights.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// `quantization` may be null. ERRORS: as HfWeights.
Result<WeightTensor> ScaledWeights(const FindPart& find, const HfQuantization* quantization);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_SCALED_WEIGHTS_H_
