// Borrowed float matrices: activations of a step, one row per token.
// Deliberately two-dimensional: heads are columns, batches are rows.
#ifndef KVASIR_TENSOR_FLOAT_ROWS_H_
#define KVASIR_TENSOR_FLOAT_ROWS_H_

#include <cstdint>

namespace kvasir {

// [rows, cols], row i starts at data + i * stride (in floats).
struct FloatRows {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  float* row(int64_t i) const { return data + i * stride; }
  // Rows [begin, begin + count).
  FloatRows Part(int64_t begin, int64_t count) const { return {row(begin), count, cols, stride}; }
};

struct ConstFloatRows {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  ConstFloatRows() = default;
  ConstFloatRows(const float* data, int64_t rows, int64_t cols, int64_t stride)
      : data(data), rows(rows), cols(cols), stride(stride) {}
  ConstFloatRows(const FloatRows& other)  // NOLINT: a view of a view, implicit like span's
      : data(other.data), rows(other.rows), cols(other.cols), stride(other.stride) {}

  const float* row(int64_t i) const { return data + i * stride; }
  // Rows [begin, begin + count).
  ConstFloatRows Part(int64_t begin, int64_t count) const {
    return {row(begin), count, cols, stride};
  }
};

}  // namespace kvasir

#endif  // KVASIR_TENSOR_FLOAT_ROWS_H_
