// How floats become integers for integer attention: one scale for a group of them.
// Deliberately only the steps; the groups are those of a cache codec.
#ifndef KVASIR_KERNELS_INTEGER_STEPS_H_
#define KVASIR_KERNELS_INTEGER_STEPS_H_

#include <bit>
#include <cstdint>
#include <limits>

namespace kvasir {

// The largest magnitude: two signed bytes, 256 h + l, where h is within +-127. 128 products with
// codes of a byte stay below 2^31.
inline constexpr int32_t kIntegerLevels = 127 * 256;

// x ~ scale * code with code = round-to-even(x * inverse), at most kIntegerLevels in magnitude.
struct IntegerSteps {
  float scale;
  float inverse;  // 0: all codes are 0
};

// Steps of a group whose largest |x| has these bits (bits of floats that are not negative order as
// the floats do, infinity and NaN last). Not finite: the scale is NaN. Below 2^-100, which keeps
// the inverse finite: both are 0.
inline IntegerSteps IntegerStepsOf(uint32_t largest_bits) {
  if (largest_bits >= 0x7F800000u) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  const float largest = std::bit_cast<float>(largest_bits);
  if (largest < 0x1p-100f) return {0.0f, 0.0f};
  constexpr auto kTop = static_cast<float>(kIntegerLevels);
  return {largest / kTop, kTop / largest};
}

}  // namespace kvasir

#endif  // KVASIR_KERNELS_INTEGER_STEPS_H_
