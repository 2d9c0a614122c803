// What a code (E4M3) and the scale (E8M0) of its 32 inputs mean in a panel of mxfp8 (OCP
// Microscaling Formats 1.0), so that every weight is one of bf16_pairs.h and any table may make it
// as it likes. Deliberately for stored groups: StoreGroup makes them of what a file has, which may
// hold anything.
#ifndef KVASIR_TENSOR_MXFP8_H_
#define KVASIR_TENSOR_MXFP8_H_

#include <cstdint>

#include "kvasir/tensor/weight_format.h"

namespace kvasir::mxfp8 {

// 2^7. Up to here 2^120 times a scale is a float32, so that the bits of a code at the place of a
// float's, 2^-120 of its value, become the weight by one exact multiplication.
inline constexpr uint8_t kMostScale = 134;
// A stored group that is NaN, all of whose codes are kNanCode: 480 · 2^120 would be a bf16 of
// exponent 255.
inline constexpr uint8_t kNanScale = 247;
inline constexpr uint8_t kNanCode = 0x7F;

// The weight of a stored code.
float Value(uint8_t code, uint8_t scale);

// Makes the codes and the scale of one group storable: weights that bf16_pairs.h takes for 0 become
// 0, and a NaN makes its group NaN, as it makes every sum with one of its weights.
// REQUIRES: *scale <= kMostScale.
void StoreGroup(uint8_t (&codes)[kQuantGroup], uint8_t* scale);

}  // namespace kvasir::mxfp8

#endif  // KVASIR_TENSOR_MXFP8_H_
