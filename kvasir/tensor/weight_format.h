// WeightFormat: how a weight matrix is stored in memory.
// Deliberately only names: packed_matrix.h and coded_row.h have the layouts.
#ifndef KVASIR_TENSOR_WEIGHT_FORMAT_H_
#define KVASIR_TENSOR_WEIGHT_FORMAT_H_

#include <array>
#include <cstddef>
#include <string_view>

#include "kvasir/base/result.h"

namespace kvasir {

inline constexpr int kPanelOutputs = 16;  // one AVX-512 vector of floats, four NEON vectors
inline constexpr int kQuantGroup = 32;    // inputs whose activations share a scale

// The first six can be made of any weights. The others only keep what a file has quantized.
enum class WeightFormat {
  kF32,
  kF16,
  kBf16,     // its matmul reads activations in float32
  kBf16Dot,  // its matmul rounds activations to bf16 too (bf16_pairs.h)
  kQ8,
  kQ4,
  kQ5,
  kIq4Nl,
  kQ1Affine,
  kQ2Affine,
  kQ3Affine,
  kQ4Affine,
  kQ5Affine,
  kQ6Affine,
  kQ8Affine,
  kQ2K,
  kQ3K,
  kQ4K,
  kQ5K,
  kQ6K,
  kIq4Xs,
  kMxfp4,
  kNvfp4,
  kMxfp8,  // its matmul is that of bf16_dot: codes become bf16
  kFp8     // likewise, with a float32 scale for 128 inputs
};
inline constexpr size_t kWeightFormats = 25;

// In the order of their numbers.
std::array<WeightFormat, kWeightFormats> AllWeightFormats();
std::string_view WeightFormatName(WeightFormat format);
// One of the first six. ERRORS: kInvalidArgument, listing the names that exist.
Result<WeightFormat> WeightFormatFromName(std::string_view name);
// Codes and scales: all but the float formats.
bool IsQuantized(WeightFormat format);
// Those whose matmul wants activations quantized to 8 bits: they, but for mxfp8 and fp8.
bool QuantizesInputs(WeightFormat format);
// Those whose matmul wants activations rounded to bf16: bf16_dot, mxfp8 and fp8.
bool RoundsInputs(WeightFormat format);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_WEIGHT_FORMAT_H_
