// WeightTensor: a stored weight that is read row by row, whatever its encoding.
// Deliberately lazy: nothing is decoded before somebody asks for a row, so memory stays bounded.
#ifndef KVASIR_TENSOR_WEIGHT_TENSOR_H_
#define KVASIR_TENSOR_WEIGHT_TENSOR_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/tensor/packed_matrix.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {

// Which input each code of a row is multiplied with; null: those of its own place.
using InputOrder = std::shared_ptr<const std::vector<int32_t>>;

struct WeightTensor {
  // Outermost first; rows lie along the last extent, so a vector is one row.
  std::vector<int64_t> shape;
  // What the values become in memory when nobody asks for a format: the smallest one that keeps
  // them exactly, or, where there is none, the one that comes closest in two bytes.
  WeightFormat stored_format = WeightFormat::kF32;
  // Decodes row `row` into shape.back() floats. Borrows the file. THREADS: concurrently.
  // REQUIRES: 0 <= row < product of the other extents.
  std::function<void(int64_t row, float* out)> read_row;
  // The same as the codes of stored_format; set exactly if that is quantized.
  std::function<void(int64_t row, CodedRow* out)> read_codes;
  AffineScales affine;  // where stored_format is an affine one
  // What read_codes' values are to be multiplied with to be read_row's: a number for each matrix of
  // a stack, or none, which is 1. Set by ScaleMatrices.
  std::vector<float> code_scales;
  // Of the codes that read_codes gives; a permutation of the inputs. read_row knows none.
  InputOrder input_order;
  // Where the tensor lies: each span holds rows of one size, one after the other, unless they are
  // scattered over it.
  std::vector<std::span<const std::byte>> source;
  bool is_scattered = false;
  // `source` is in a MappedFile: its pages may be given back (ReleasePages).
  bool is_mapped = false;
  // source[0] holds stored_format's own floats, row by row.
  bool is_raw = false;
};

// Rows of a tensor: the product of all extents but the last, which lies along them.
inline int64_t RowCount(const std::vector<int64_t>& shape) {
  int64_t rows = 1;
  for (size_t i = 0; i + 1 < shape.size(); ++i) rows *= shape[i];
  return rows;
}

// `view` as one matrix: stacked ones lie one below the other. Vectors stay what they are.
inline TensorView AsMatrix(TensorView view) {
  if (view.shape.size() > 1) view.shape = {RowCount(view.shape), view.shape.back()};
  return view;
}

// Whether a matrix of `format` holds the tensor's own codes.
inline bool KeepsCodes(const WeightTensor& tensor, WeightFormat format) {
  return IsQuantized(format) && format == tensor.stored_format;
}

// What the panels of a matrix do not say of it.
struct PackedTraits {
  float scale = 1;  // what is to be multiplied with them
  InputOrder input_order;
};

// Those of a matrix that was packed in `format`.
inline PackedTraits TraitsOfPacked(const WeightTensor& matrix, WeightFormat format) {
  if (!KeepsCodes(matrix, format)) return {};
  return {matrix.code_scales.empty() ? 1 : matrix.code_scales.front(), matrix.input_order};
}

// Multiplies each matrix of a stack, or the only one, with its scale. Rows of codes stay as they
// are; float formats become f32. REQUIRES: scales.size() divides the rows.
void ScaleMatrices(std::vector<float> scales, WeightTensor* stack);

// The rows [first, first + rows) of a tensor, as a matrix. REQUIRES: they lie within it and, if it
// has code_scales, within a matrix of it.
inline WeightTensor RowsOf(WeightTensor tensor, int64_t first, int64_t rows) {
  const auto all = static_cast<size_t>(RowCount(tensor.shape));
  for (std::span<const std::byte>& part : tensor.source) {
    if (tensor.is_scattered) break;
    const size_t row_bytes = part.size() / all;
    part =
        part.subspan(static_cast<size_t>(first) * row_bytes, static_cast<size_t>(rows) * row_bytes);
  }
  if (!tensor.code_scales.empty()) {
    const size_t matrix_rows = all / tensor.code_scales.size();
    tensor.code_scales = {tensor.code_scales[static_cast<size_t>(first) / matrix_rows]};
  }
  tensor.shape = {rows, tensor.shape.back()};
  tensor.read_row = [whole = std::move(tensor.read_row), first](int64_t row, float* out) {
    whole(first + row, out);
  };
  if (tensor.read_codes) {
    tensor.read_codes = [whole = std::move(tensor.read_codes), first](int64_t row, CodedRow* out) {
      whole(first + row, out);
    };
  }
  return tensor;
}

// The smallest float format that holds every value, of an affine tensor those of Unrounded.
WeightFormat DecodedFormat(const WeightTensor& tensor);

// `tensor`, but for affine values that read_row rounds: code * scale + bias in float32, as matmuls
// take them.
WeightTensor Unrounded(WeightTensor tensor);

// A dense float tensor. REQUIRES: IsFloatType, at least one extent.
inline WeightTensor DenseWeights(const TensorView& view) {
  WeightTensor tensor;
  tensor.shape = view.shape;
  tensor.stored_format = view.dtype == DType::kF32   ? WeightFormat::kF32
                         : view.dtype == DType::kF16 ? WeightFormat::kF16
                                                     : WeightFormat::kBf16;
  tensor.read_row = [view](int64_t row, float* out) {
    const int64_t columns = view.shape.back();
    ReadFloats(view, row * columns, columns, out);
  };
  tensor.source = {{view.data, static_cast<size_t>(view.elements()) * DTypeBytes(view.dtype)}};
  tensor.is_raw = true;
  return tensor;
}

}  // namespace kvasir

#endif  // KVASIR_TENSOR_WEIGHT_TENSOR_H_
