// Matrices as AWQ and GPTQ store them: words of codes in columns, outputs side by side.
// Deliberately without choosing between them: hf_weights.h does.
#ifndef KVASIR_FORMATS_GPTQ_WEIGHTS_H_
#define KVASIR_FORMATS_GPTQ_WEIGHTS_H_

#include "kvasir/base/result.h"
#include "kvasir/formats/checkpoint_quantization.h"
#include "kvasir/formats/hf_weights.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// ERRORS: both as HfWeights.
Result<WeightTensor> AwqWeights(const FindPart& find);
Result<WeightTensor> GptqWeights(const FindPart& find, const HfQuantization& quantization);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GPTQ_WEIGHTS_H_
