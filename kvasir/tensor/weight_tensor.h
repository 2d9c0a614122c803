// WeightTensor: a stored weight that is read row by row as floats, whatever its encoding.
// Deliberately lazy: nothing is decoded before somebody asks for a row, so memory stays bounded.
#ifndef KVASIR_TENSOR_WEIGHT_TENSOR_H_
#define KVASIR_TENSOR_WEIGHT_TENSOR_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "kvasir/tensor/packed_matrix.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {

struct WeightTensor {
  // Outermost first; rows lie along the last extent, so a vector is one row.
  std::vector<int64_t> shape;
  // What the values become in memory when nobody asks for a format: the smallest one that keeps
  // them exactly, or, where there is none, the one that comes closest in two bytes.
  WeightFormat stored_format = WeightFormat::kF32;
  // Decodes row `row` into shape.back() floats. Borrows the file. THREADS: concurrently.
  // REQUIRES: 0 <= row < product of the other extents.
  std::function<void(int64_t row, float* out)> read_row;
};

// A dense float tensor. REQUIRES: IsFloatType, at least one extent.
inline WeightTensor DenseWeights(const TensorView& view) {
  const WeightFormat format = view.dtype == DType::kF32   ? WeightFormat::kF32
                              : view.dtype == DType::kF16 ? WeightFormat::kF16
                                                          : WeightFormat::kBf16;
  return {view.shape, format, [view](int64_t row, float* out) {
            const int64_t columns = view.shape.back();
            ReadFloats(view, row * columns, columns, out);
          }};
}

}  // namespace kvasir

#endif  // KVASIR_TENSOR_WEIGHT_TENSOR_H_
