// Weights packed for the CPU kernels: panels of 16 outputs whose SIMD lanes run over outputs, so a
// reduction over inputs happens in one fixed order at every vector width (docs/numerics.md).
// Deliberately without arithmetic: kernels read panels, this file only lays them out.
//
//   float formats  panel p: [inputs][16]                         element (16p + lane, k)
//   bf16_dot       panel p: [inputs/2][16][2]                    element (16p + lane, 2j + i)
//   the others     coded_row.h
// Outputs past the last have scale 0. Weights of bf16_dot are as RoundWeight (bf16_pairs.h) leaves
// them.
#ifndef KVASIR_TENSOR_PACKED_MATRIX_H_
#define KVASIR_TENSOR_PACKED_MATRIX_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kvasir/base/result.h"
#include "kvasir/tensor/aligned_arena.h"
#include "kvasir/tensor/aligned_buffer.h"
#include "kvasir/tensor/coded_row.h"
#include "kvasir/tensor/tensor_view.h"
#include "kvasir/tensor/weight_format.h"

namespace kvasir {

// Of panels at rest (formats/packed_weights_file.h): counts up whenever a layout of this file or of
// coded_row.h changes, or what packing makes of the same weights.
inline constexpr uint32_t kPanelLayoutVersion = 7;

// Where panels begin, in memory and in files: a line of a cache, a register of AVX-512.
inline constexpr size_t kPanelAlignment = 64;

struct PackedShape {
  int64_t outputs = 0;
  int64_t inputs = 0;
  WeightFormat format = WeightFormat::kF32;
  AffineScales affine;  // of the affine formats
};

// A weight matrix [outputs, inputs], y = x * W^T. Immutable once built; movable.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  // Packs a dense float tensor of shape [outputs, inputs], converting (rounding to nearest even)
  // or quantizing as needed. Quantization, per output and group of 32 inputs, is QuantizeGroup's.
  // ERRORS: kInvalidArgument when quantizing inputs that are no multiple of 32;
  // kResourceExhausted.
  static Result<PackedMatrix> Pack(const TensorView& weights, WeightFormat format);
  // Zero weights to be filled through SetRow or SetCodedRow; `affine` is for the affine formats.
  // Memory comes from `arena` if there is one. ERRORS: as Pack.
  static Result<PackedMatrix> Allocate(int64_t outputs, int64_t inputs, WeightFormat format,
                                       const AffineScales& affine = {},
                                       AlignedArena* arena = nullptr);
  // Over panels that were packed before and lie where `owner` keeps them alive, such as in a mapped
  // file; there is no setting of rows. ERRORS: kInvalidArgument as Pack; kCorrupt if `panels` does
  // not have the bytes that the shape takes, or does not begin at a multiple of 64 bytes.
  static Result<PackedMatrix> Over(const PackedShape& shape, std::span<const std::byte> panels,
                                   std::shared_ptr<const void> owner);

  // Encodes row `output`. `row` holds inputs() floats. THREADS: different panels may be written
  // at the same time. REQUIRES: !IsCodedOnly(format()).
  void SetRow(int64_t output, const float* row);
  // Keeps row `output` as it is coded. THREADS: as SetRow. REQUIRES: a quantized format.
  void SetCodedRow(int64_t output, const CodedRow& row);
  // Outputs [16 panel, 16 panel + count) from rows of 16-bit or 32-bit floats of the format's own
  // type (bf16 for bf16_dot), `row_bytes` apart, which may be unaligned. THREADS: as SetRow.
  // REQUIRES: a float format.
  void SetPanel(int64_t panel, const std::byte* rows, size_t row_bytes);
  // Decodes row `output` into inputs() floats, exactly what the kernels multiply with.
  void GetRow(int64_t output, float* row) const;

  int64_t outputs() const { return outputs_; }
  int64_t inputs() const { return inputs_; }
  WeightFormat format() const { return format_; }
  const AffineScales& affine() const { return affine_; }
  int64_t panels() const { return (outputs_ + kPanelOutputs - 1) / kPanelOutputs; }
  size_t panel_bytes() const { return panel_bytes_; }
  size_t bytes() const { return static_cast<size_t>(panels()) * panel_bytes_; }
  const std::byte* panel(int64_t p) const { return panels_ + p * panel_bytes_; }
  PackedShape shape() const { return {outputs_, inputs_, format_, affine_}; }
  // REQUIRES: as UnitsOf.
  GroupUnits units() const { return UnitsOf(format_, affine_); }

 private:
  // Without memory. ERRORS: kInvalidArgument as Pack.
  static Result<PackedMatrix> Shaped(const PackedShape& shape);
  // Of a matrix that owns its panels.
  std::byte* MutablePanel(int64_t p);

  int64_t outputs_ = 0;
  int64_t inputs_ = 0;
  WeightFormat format_ = WeightFormat::kF32;
  AffineScales affine_;
  size_t panel_bytes_ = 0;
  const std::byte* panels_ = nullptr;
  AlignedBuffer data_;                 // where panels_ are, unless they are
  std::shared_ptr<const void> owner_;  // somebody else's
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_PACKED_MATRIX_H_
