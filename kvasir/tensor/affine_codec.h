// The affine codec: code * scale + bias per group of elements, bit for bit mx.quantize.
// Deliberately one group at a time and scalar: the reference that SIMD encoders repeat.
#ifndef KVASIR_TENSOR_AFFINE_CODEC_H_
#define KVASIR_TENSOR_AFFINE_CODEC_H_

#include <cstdint>
#include <span>

#include "kvasir/tensor/kv_codec.h"

namespace kvasir {

// As stored. Both NaN if the group held something that is not finite.
struct AffineGroup {
  float scale = 0;
  float bias = 0;
};

// Quantizes the elements of one group to `codes` (as many). MLX's rule, every step one float32
// operation with one rounding, never contracted; n = 2^bits - 1:
//
//   lo, hi = min, max of x;  low = |lo| > |hi|
//   s = max((hi - lo) / n, 1e-7), negated unless low;  edge = low ? lo : hi
//   q0 = rint(edge / s);  if q0 != 0: s = edge / q0, b = edge;  else b = 0
//   code = rint((x - b) / s), at most n, and 0 unless > 0  (rint: ties to even)
//
// Codes come from s and b as computed; f16 stores them rounded to nearest even and saturating at
// +-65504. If any x or hi - lo is not finite, scale and bias are the quiet NaN and codes are 0.
//
// AffineStepsOf is the part of it that sees the whole group: s and b, not rounded, of a group that
// spans [low, high]; both NaN unless low, high and high - low are finite.
AffineGroup AffineStepsOf(float low, float high, int bits);
AffineGroup QuantizeAffineGroup(std::span<const float> x, int bits, KvCodec::Scales scales,
                                uint8_t* codes);

// Two roundings. REQUIRES: not compiled with contraction (the project's flags see to it).
inline float DequantizeAffine(uint32_t code, AffineGroup group) {
  return static_cast<float>(code) * group.scale + group.bias;
}

// `value` as f16 that never becomes infinite: saturates at +-65504; NaN is 0x7E00.
uint16_t SaturatingF16(float value);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_AFFINE_CODEC_H_
