// What a sum of products of bf16 pairs is, so that one instruction and plain float32 multiply-adds
// give the same bits on every machine.
// Deliberately no kernel: the tables compute, this file says what with.
//
// Inputs and weights come in pairs. A pair takes two fused multiply-adds, the odd one first:
//   acc = fma(x[2j + 1], w[2j + 1], acc);  acc = fma(x[2j], w[2j], acc)
// which is what VDPBF16PS of x86 computes (Zen 4 and 5; matmul tables test the machine they are on)
// as long as nothing is denormal: it takes denormal inputs, products and sums for 0. So nothing
// ever is. A bf16 of magnitude 2^e or more is a multiple of 2^(e - 7). With the least magnitudes
// below, every product is 0 or a multiple of 2^-126, the least normal float32, and so is every sum,
// rounded or not: an exact multiple of 2^-126 that is not 0 is not denormal.
#ifndef KVASIR_TENSOR_BF16_PAIRS_H_
#define KVASIR_TENSOR_BF16_PAIRS_H_

#include <cmath>
#include <cstdint>

#include "kvasir/tensor/dtype.h"

namespace kvasir::bf16_pairs {

// The least magnitudes that are not taken for 0, of an activation and of a weight.
// (-52 - 7) + (-60 - 7) = -126.
inline constexpr float kLeastInput = 0x1p-52f;
inline constexpr float kLeastWeight = 0x1p-60f;

// An activation as matmuls see it: to the nearest bf16, ties to even, or 0.
inline float RoundInput(float x) {
  const float rounded = Bf16ToFloat(FloatToBf16(x));
  return std::fabs(rounded) < kLeastInput ? 0.0f : rounded;
}

// A weight that is a bf16.
inline uint16_t RoundWeight(uint16_t bits) {
  return (bits & 0x7FFF) < FloatToBf16(kLeastWeight) ? 0 : bits;
}
// Two of them in one word.
inline uint32_t RoundWeights(uint32_t pair) {
  const uint32_t low = RoundWeight(static_cast<uint16_t>(pair));
  return low | static_cast<uint32_t>(RoundWeight(static_cast<uint16_t>(pair >> 16))) << 16;
}

}  // namespace kvasir::bf16_pairs

#endif  // KVASIR_TENSOR_BF16_PAIRS_H_
