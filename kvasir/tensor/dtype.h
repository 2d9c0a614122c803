// Element types of stored tensors and the exact conversions between them and float.
// Deliberately only what checkpoints and caches store; arithmetic is always float32.
#ifndef KVASIR_TENSOR_DTYPE_H_
#define KVASIR_TENSOR_DTYPE_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvasir {

enum class DType {
  kF32,
  kF16,
  kBf16,
  kU8,
  kI8,
  kI16,
  kU16,
  kI32,
  kU32,
  kI64,
  kU64,
  kF64,
  kBool,
  kF8E4m3,
  kF8E5m2,
  kF8E8m0
};

// Bytes of one element.
size_t DTypeBytes(DType dtype);
// Lower-case name: "f32", "f16", "bf16", ...
std::string_view DTypeName(DType dtype);

// bfloat16 is the upper half of a float32. Rounds to nearest even; NaN stays NaN.
inline uint16_t FloatToBf16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7FFFFFFFu) > 0x7F800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);
  return static_cast<uint16_t>((bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16);
}
inline float Bf16ToFloat(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

// IEEE half precision. Rounds to nearest even, overflows to infinity, keeps denormals.
uint16_t FloatToF16(float value);
float F16ToFloat(uint16_t bits);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_DTYPE_H_
