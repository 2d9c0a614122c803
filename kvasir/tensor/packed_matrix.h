// Weights packed for the CPU kernels: panels of 16 outputs whose SIMD lanes run over outputs, so a
// reduction over inputs happens in one fixed order at every vector width (docs/numerics.md).
// Deliberately without arithmetic: kernels read panels, this file only lays them out.
//
//   float formats  panel p: [inputs][16]                         element (16p + lane, k)
//   q8             panel p: codes u8 [inputs/32][8][16][4], then scales f16 [inputs/32][16]
//                  code at [g][j][lane][i] is input 32g + 4j + i; weight = (code - 128) * scale
//   q4             panel p: codes u8 [inputs/32][4][16][4], then scales f16 [inputs/32][16]
//                  byte at [g][j][lane][i]: low nibble input 32g + 4j + i, high nibble
//                  32g + 16 + 4j + i; weight = (nibble - 8) * scale
// Outputs past the last are zero weights (codes 128 and 8).
#ifndef KVASIR_TENSOR_PACKED_MATRIX_H_
#define KVASIR_TENSOR_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kvasir/base/result.h"
#include "kvasir/tensor/aligned_buffer.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {

inline constexpr int kPanelOutputs = 16;  // one AVX-512 vector of floats, four NEON vectors
inline constexpr int kQuantGroup = 32;    // inputs that share a scale

enum class WeightFormat { kF32, kF16, kBf16, kQ8, kQ4 };

std::string_view WeightFormatName(WeightFormat format);
// ERRORS: kInvalidArgument, listing the names that exist.
Result<WeightFormat> WeightFormatFromName(std::string_view name);
bool IsQuantized(WeightFormat format);

// A weight matrix [outputs, inputs], y = x * W^T. Immutable once built; movable.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Packs a dense float tensor of shape [outputs, inputs], converting (rounding to nearest even)
  // or quantizing as needed. Quantization, per output and group of 32 inputs: scale =
  // f16(max|w| / limit) with limit 127 (q8) or 7 (q4), code = round(w / scale), clamped.
  // ERRORS: kInvalidArgument when quantizing inputs that are no multiple of 32;
  // kResourceExhausted.
  static Result<PackedMatrix> Pack(const TensorView& weights, WeightFormat format);
  // Zero weights to be filled through SetRow.
  static Result<PackedMatrix> Allocate(int64_t outputs, int64_t inputs, WeightFormat format);

  // Encodes row `output`. `row` holds inputs() floats. THREADS: different panels may be written
  // at the same time.
  void SetRow(int64_t output, const float* row);
  // Decodes row `output` into inputs() floats, exactly what the kernels multiply with.
  void GetRow(int64_t output, float* row) const;

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  WeightFormat format() const { return format_; }
  int64_t panels() const { return (outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
  size_t panel_bytes() const { return panel_bytes_; }
  size_t bytes() const { return data_.size_bytes(); }
  const std::byte* panel(int64_t p) const { return data_.data() + p * panel_bytes_; }
  // Where a quantized panel's scales begin, in bytes from its start.
  size_t scales_offset_bytes() const;

 private:
  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  WeightFormat format_ = WeightFormat::kF32;
  size_t panel_bytes_ = 0;
  AlignedBuffer data_;
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_PACKED_MATRIX_H_
