#include "kvasir/tensor/weight_tensor.h"

#include "kvasir/tensor/coded_row.h"

namespace kvasir {

WeightFormat DecodedFormat(const WeightTensor& tensor) {
  if (!IsQuantized(tensor.stored_format)) return tensor.stored_format;
  return IsMicroscaled(tensor.stored_format) ? WeightFormat::kBf16 : WeightFormat::kF32;
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
