// A group of weights as 8-bit or 4-bit integers under one scale: what q8 and q4 panels hold, and
// GGUF's Q8_0 and Q4_0 blocks.
#ifndef KVASIR_TENSOR_QUANTIZE_GROUP_H_
#define KVASIR_TENSOR_QUANTIZE_GROUP_H_

#include <array>
#include <cstdint>

#include "kvasir/tensor/weight_format.h"

namespace kvasir {

struct QuantizedGroup {
  uint16_t scale = 0;                          // f16
  std::array<int8_t, kQuantGroup> codes = {};  // in [-127, 127], or [-8, 7]
};

// code = round(v / scale) for the scale as stored, ties to even, clamped; 0 for what is no number,
// and for all where the scale is 0 or infinite.
//   8 bits  scale = f16(max|v| / 127)
//   4 bits  the better of those that two first scales lead to, with which the number of largest
//           magnitude is -7 or -8: each is replaced twice by the scale with the least error
//           sum |v| (v - code * scale)^2 of the codes it gives.
// REQUIRES: 8 or 4 bits, kQuantGroup values.
QuantizedGroup QuantizeGroup(const float* values, int bits);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_QUANTIZE_GROUP_H_
