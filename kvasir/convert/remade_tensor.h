// A tensor with rows made of another's.
// Deliberately nothing but what such tensors have in common: they are not as they are stored.
#ifndef KVASIR_CONVERT_REMADE_TENSOR_H_
#define KVASIR_CONVERT_REMADE_TENSOR_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "kvasir/base/scalar_math.h"
#include "kvasir/convert/model_source.h"

namespace kvasir {

using ReadRow = std::function<void(int64_t row, float* out)>;

// Of another shape, with rows that `read_row` makes; name and type stay.
inline SourceTensor Remade(const SourceTensor& from, std::vector<int64_t> shape, ReadRow read_row) {
  SourceTensor made = from;
  made.shape = std::move(shape);
  made.raw = nullptr;
  made.rows.shape = made.shape;
  made.rows.is_raw = false;
  made.rows.read_codes = nullptr;
  made.rows.read_row = std::move(read_row);
  return made;
}

// The same numbers in rows of another length. REQUIRES: that many rows of `columns` numbers.
inline SourceTensor Reshaped(const SourceTensor& tensor, int64_t rows, int64_t columns) {
  const int64_t stored_columns = tensor.shape.back();
  return Remade(tensor, {rows, columns},
                [stored = tensor.rows.read_row, columns, stored_columns](int64_t row, float* out) {
                  std::vector<float> whole(static_cast<size_t>(stored_columns));
                  int64_t number = row * columns;
                  for (int64_t i = 0; i < columns; ++i, ++number) {
                    const int64_t at = number % stored_columns;
                    if (i == 0 || at == 0) stored(number / stored_columns, whole.data());
                    out[i] = whole[static_cast<size_t>(at)];
                  }
                });
}

// The taps of a depthwise convolution, a row for each channel, wherever its one input lies.
inline SourceTensor ConvolutionTaps(const SourceTensor& tensor) {
  const int64_t channels = tensor.shape.front();
  return Reshaped(tensor, channels, RowCount(tensor.shape) * tensor.shape.back() / channels);
}

// How fast heads' states fade, negative, of the logarithms that checkpoints have.
inline SourceTensor DecayRates(const SourceTensor& logarithms) {
  return Remade(logarithms, logarithms.shape,
                [stored = logarithms.rows.read_row, count = logarithms.shape.back()](int64_t row,
                                                                                     float* out) {
                  stored(row, out);
                  std::transform(out, out + count, out, [](float x) { return -scalar::Exp(x); });
                });
}

}  // namespace kvasir

#endif  // KVASIR_CONVERT_REMADE_TENSOR_H_
