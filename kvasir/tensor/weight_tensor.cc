#include "kvasir/tensor/weight_tensor.h"

#include "kvasir/tensor/coded_row.h"

namespace kvasir {

WeightFormat DecodedFormat(const WeightTensor& tensor) {
  if (!IsQuantized(tensor.stored_format)) return tensor.stored_format;
  const bool fits_bf16 = IsMicroscaled(tensor.stored_format) && tensor.code_scales.empty();
  return fits_bf16 ? WeightFormat::kBf16 : WeightFormat::kF32;
}

void ScaleMatrices(std::vector<float> scales, WeightTensor* stack) {
  const int64_t matrix_rows = RowCount(stack->shape) / static_cast<int64_t>(scales.size());
  const int64_t columns = stack->shape.back();
  stack->read_row = [whole = std::move(stack->read_row), scales, matrix_rows, columns](int64_t row,
                                                                                       float* out) {
    whole(row, out);
    const float scale = scales[static_cast<size_t>(row / matrix_rows)];
    for (int64_t i = 0; i < columns; ++i) out[i] *= scale;
  };
  if (IsQuantized(stack->stored_format)) {
    stack->code_scales = std::move(scales);
  } else {
    stack->stored_format = WeightFormat::kF32;
    stack->is_raw = false;
  }
}

WeightTensor Unrounded(WeightTensor tensor) {
  if (!tensor.affine.rounds_values) return tensor;
  tensor.read_row = [read_codes = tensor.read_codes, affine = tensor.affine](int64_t row,
                                                                             float* out) {
    CodedRow coded;
    read_codes(row, &coded);
    DecodeAffineRow(coded, affine, out);
  };
  return tensor;
}

}  // namespace kvasir
