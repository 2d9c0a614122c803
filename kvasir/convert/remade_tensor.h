// A tensor with rows made of another's.
// Deliberately nothing but what such tensors have in common: they are not as they are stored.
#ifndef KVASIR_CONVERT_REMADE_TENSOR_H_
#define KVASIR_CONVERT_REMADE_TENSOR_H_

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

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

// The taps of a depthwise convolution, a row for each channel, wherever its one input lies.
inline SourceTensor ConvolutionTaps(const SourceTensor& tensor) {
  const int64_t channels = tensor.shape.front();
  const int64_t last = tensor.shape.back();
  const int64_t taps = tensor.shape[tensor.shape.size() - 2] * last;
  return Remade(tensor, {channels, taps},
                [stored = tensor.rows.read_row, taps, last](int64_t row, float* out) {
                  for (int64_t at = 0; at < taps; at += last) {
                    stored((row * taps + at) / last, out + at);
                  }
                });
}

}  // namespace kvasir

#endif  // KVASIR_CONVERT_REMADE_TENSOR_H_
