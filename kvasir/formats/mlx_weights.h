// Decodes the quantized matrices of MLX checkpoints, to the bits that MLX gives.
// Deliberately scalar and row by row: weights are repacked once, when a model is loaded.
// Byte-exact layout: docs/formats/mlx-quantized.md.
#ifndef KVASIR_FORMATS_MLX_WEIGHTS_H_
#define KVASIR_FORMATS_MLX_WEIGHTS_H_

#include <cstdint>

#include "kvasir/base/result.h"
#include "kvasir/formats/mlx_quantization.h"
#include "kvasir/tensor/tensor_view.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// The tensors of one module, as stored. Borrowed.
struct MlxTensors {
  const TensorView* weight = nullptr;  // u32 [outputs, inputs * bits / 32]
  const TensorView* scales = nullptr;  // [outputs, inputs / group]; affine: float, else u8
  const TensorView* biases = nullptr;  // as scales; affine only, else null
};

// The decoded matrix [outputs, inputs]. Affine values are computed in the type of the scales,
// rounding the product, then the sum; those of the other modes are exact in bf16.
// ERRORS: kCorrupt for types and shapes that do not fit together; the message names the part
// ("weight", "scales", "biases"), not the module.
Result<WeightTensor> MlxWeights(const MlxTensors& tensors, const MlxFormat& format, int64_t outputs,
                                int64_t inputs);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_MLX_WEIGHTS_H_
