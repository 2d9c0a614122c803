// WeightEncoder: rows of floats as the tensors of a safetensors file: dense, or quantized as MLX
// does it (docs/formats/mlx-quantized.md).
// Deliberately knows no names and no files: it turns rows into bytes.
#ifndef KVASIR_CONVERT_WEIGHT_ENCODER_H_
#define KVASIR_CONVERT_WEIGHT_ENCODER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/mlx_quantization.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {

// What a tensor becomes.
struct WeightEncoding {
  // Element type of dense tensors; of scales and biases of affine ones (f16 or bf16).
  DType dtype = DType::kBf16;
  bool is_quantized = false;
  MlxFormat format;
};

// "int4", "int8" (affine), "int2", "int3", "int5", "int6", "mxfp4", "mxfp8", "nvfp4"; "q4" and "q8"
// are other names of int4 and int8. `group_size` is for affine ones, 0: 64.
// ERRORS: kInvalidArgument, listing the names that exist.
Result<MlxFormat> MlxFormatFromName(std::string_view name, int group_size = 0);
// "int4", "mxfp8", ...
std::string MlxFormatLabel(const MlxFormat& format);

// Of an f16 or bf16.
inline bool IsInfinite(uint16_t bits, DType dtype) {
  return (bits & 0x7FFF) == (dtype == DType::kF16 ? 0x7C00 : 0x7F80);
}

bool AllFinite(std::span<const float> values);
// What is said of a tensor with others: codes have no infinities and no NaN.
Error NotFinite(std::string_view tensor, std::string_view type);

class WeightEncoder {
 public:
  // Bytes of one row of `inputs` numbers. REQUIRES for quantized ones: whole groups, a multiple of
  // 32 inputs.
  WeightEncoder(const WeightEncoding& encoding, int64_t inputs);

  size_t weight_bytes() const { return weight_bytes_; }
  size_t scale_bytes() const { return scale_bytes_; }  // 0 when dense
  size_t bias_bytes() const { return bias_bytes_; }    // 0 but for affine ones

  // Affine: mx.quantize's rule (affine_codec.h), scales and biases rounded to dtype. mxfp8: the
  // scale is the least power of two with which max|w| is no larger than the largest element, as
  // mx.quantize's (the rule of OCP Microscaling Formats v1.0, 6.3, cuts large numbers off and has
  // 1.23 times its squared error); mxfp4: that or half of it, whichever has the smaller squared
  // error (0.88 times that of mx.quantize for normal weights). Elements are the nearest, ties to
  // the even code. nvfp4: the scale is one of eight E4M3 around max|w| / 6 to max|w| / 4, the one
  // with the smallest squared error (0.7 to 0.75 times that of mx.quantize, which takes the nearest
  // to max|w| / 6, for the weights of real models), without a global one.
  // Numbers that are not finite make their group NaN (affine) or count as the largest there is.
  // False where a finite number, or a scale or bias, is beyond those of dtype and became infinite.
  // THREADS: concurrently.
  bool Encode(const float* row, std::byte* weight, std::byte* scales, std::byte* biases) const;

 private:
  bool EncodeAffine(const float* row, std::byte* weight, std::byte* scales,
                    std::byte* biases) const;
  bool EncodeMicroscaled(const float* row, std::byte* weight, std::byte* scales) const;

  const WeightEncoding encoding_;
  const int64_t inputs_;
  size_t weight_bytes_ = 0;
  size_t scale_bytes_ = 0;
  size_t bias_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_CONVERT_WEIGHT_ENCODER_H_
