// Decodes the quantized matrices of checkpoints for transformers and vLLM: AWQ, GPTQ,
// compressed-tensors, block-scaled FP8, ModelOpt.
// Deliberately by what tensors a module has, wherever that tells it: files of mixed precision
// differ from module to module. Byte-exact layouts: docs/formats/hf-quantized.md.
#ifndef KVASIR_FORMATS_HF_WEIGHTS_H_
#define KVASIR_FORMATS_HF_WEIGHTS_H_

#include <functional>
#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/formats/checkpoint_quantization.h"
#include "kvasir/tensor/tensor_view.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// The tensor of a module that ends with that part ("qweight"), or null.
using FindPart = std::function<const TensorView*(std::string_view part)>;

// Whether a module is a quantized matrix of one of these libraries.
bool IsHfQuantized(const FindPart& find);

// Every part that such a module may have; those of activations and caches are not read.
inline constexpr std::string_view kHfParts[] = {"qweight",
                                                "qzeros",
                                                "scales",
                                                "g_idx",
                                                "weight",
                                                "weight_packed",
                                                "weight_shape",
                                                "weight_scale",
                                                "weight_g_idx",
                                                "weight_scale_inv",
                                                "weight_zero_point",
                                                "weight_global_scale",
                                                "input_scale",
                                                "weight_scale_2",
                                                "input_zero_point",
                                                "input_global_scale",
                                                "output_scale",
                                                "input_scale_ub",
                                                "activation_scale",
                                                "pre_quant_scale",
                                                "k_scale",
                                                "v_scale"};

// The matrix [outputs, inputs] that the parts make. `quantization` may be null where tensors tell
// all. ERRORS: kCorrupt for types and shapes that do not fit together, kUnsupported; the message
// names the part, not the module. REQUIRES: IsHfQuantized.
Result<WeightTensor> HfWeights(const FindPart& find, const HfQuantization* quantization);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_HF_WEIGHTS_H_
