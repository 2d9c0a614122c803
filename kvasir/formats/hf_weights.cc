#include "kvasir/formats/hf_weights.h"

#include "kvasir/formats/gptq_weights.h"
#include "kvasir/formats/scaled_weights.h"

namespace kvasir {

bool IsHfQuantized(const FindPart& find) {
  if (find("qweight") != nullptr || find("weight_packed") != nullptr) return true;
  const TensorView* const weight = find("weight");
  const bool has_scales = find("weight_scale") != nullptr || find("weight_scale_inv") != nullptr;
  // Checkpoints that were to be quantized while they are run have scales beside floats.
  return weight != nullptr && has_scales && !IsFloatType(weight->dtype);
}

Result<WeightTensor> HfWeights(const FindPart& find, const HfQuantization* quantization) {
  using enum HfQuantization::Kind;
  if (find("qweight") == nullptr) {
    if (quantization == nullptr || quantization->kind == kScaled) {
      return ScaledWeights(find, quantization);
    }
    return {ErrorCode::kUnsupported,
            "has no qweight, which modules of " + quantization->method + " have"};
  }
  if (quantization != nullptr && quantization->kind == kAwq) return AwqWeights(find);
  if (quantization != nullptr && quantization->kind == kGptq) {
    return GptqWeights(find, *quantization);
  }
  return {ErrorCode::kUnsupported,
          "qweight is there, but config.json does not say that AWQ or GPTQ quantized it"};
}

}  // namespace kvasir
