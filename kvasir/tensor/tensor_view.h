// A borrowed, read-only tensor as a checkpoint stores it: dense, row-major.
// Deliberately without strides, slicing or arithmetic: weights are repacked once, then forgotten.
#ifndef KVASIR_TENSOR_TENSOR_VIEW_H_
#define KVASIR_TENSOR_TENSOR_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/tensor/dtype.h"

namespace kvasir {

struct TensorView {
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  // elements() * DTypeBytes(dtype) bytes; possibly unaligned (a file decides). Owned elsewhere.
  const std::byte* data = nullptr;

  int64_t elements() const {
    int64_t count = 1;
    for (int64_t extent : shape) count *= extent;
    return count;
  }
};

// "[4096, 1024]"
std::string ShapeString(const std::vector<int64_t>& shape);

// True for f32, f16 and bf16: what ReadFloats understands.
bool IsFloatType(DType dtype);

// Widens elements [begin, begin + count) into `out`. REQUIRES: IsFloatType, range inside the
// tensor.
void ReadFloats(const TensorView& tensor, int64_t begin, int64_t count, float* out);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_TENSOR_VIEW_H_
