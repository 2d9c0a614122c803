#include "kvasir/tensor/tensor_view.h"

#include <cstring>

#include "kvasir/base/check.h"

namespace kvasir {

std::string ShapeString(const std::vector<int64_t>& shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(shape[i]);
  }
  return text + "]";
}

bool IsFloatType(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBf16;
}

void ReadFloats(const TensorView& tensor, int64_t begin, int64_t count, float* out) {
  KVASIR_CHECK(IsFloatType(tensor.dtype));
  KVASIR_CHECK(begin >= 0 && count >= 0 && begin + count <= tensor.elements());
  const size_t width = DTypeBytes(tensor.dtype);
  const std::byte* source = tensor.data + static_cast<size_t>(begin) * width;
  if (tensor.dtype == DType::kF32) {
    std::memcpy(out, source, static_cast<size_t>(count) * width);
    return;
  }
  const bool is_half = tensor.dtype == DType::kF16;
  for (int64_t i = 0; i < count; ++i) {
    uint16_t bits;
    std::memcpy(&bits, source + i * 2, 2);
    out[i] = is_half ? F16ToFloat(bits) : Bf16ToFloat(bits);
  }
}

}  // namespace kvasir
