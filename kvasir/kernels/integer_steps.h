// How floats become bytes for integer attention, what a code counts as there, and the exponentials
// that are rounded so.
// Deliberately only the rules; the groups are those of a cache codec.
#ifndef KVASIR_KERNELS_INTEGER_STEPS_H_
#define KVASIR_KERNELS_INTEGER_STEPS_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

namespace kvasir {

// What queries and weights are rounded to, by bytes of a multiplier: the largest magnitudes of a
// query, which is signed, and of a weight, which is not. Two bytes are 256 h + l with h within
// +-127; 128 products with codes of a byte stay below 2^31.
struct IntegerLevels {
  float query;
  float weight;
};
inline constexpr IntegerLevels IntegerLevelsOf(size_t bytes) {
  return bytes == 1 ? IntegerLevels{127, 255} : IntegerLevels{127 * 256, 32767};
}

// Queries and weights of rows of f16, which are integers of 14 bits themselves: kHalfSum products
// stay below 2^31. Head sizes are multiples of kHalfDims.
inline constexpr float kHalfLevels = 8191;
inline constexpr int64_t kHalfSum = 32;
inline constexpr int64_t kHalfDims = 16;

// x ~ scale * round(x * inverse), where the rounded number is at most `levels` in magnitude.
struct IntegerSteps {
  float scale;
  float inverse;  // 0: all numbers are 0
};

// Steps of a group whose largest |x| has these bits (bits of floats that are not negative order as
// the floats do, infinity and NaN last). Not finite: the scale is NaN. Below 2^-100, which keeps
// the inverse finite: both are 0.
inline IntegerSteps IntegerStepsOf(uint32_t largest_bits, float levels) {
  if (largest_bits >= 0x7F800000u) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
  const float largest = std::bit_cast<float>(largest_bits);
  if (largest < 0x1p-100f) return {0.0f, 0.0f};
  return {largest / levels, levels / largest};
}

// Adding it leaves the bits of a float in [0, 2^23), rounded to nearest even, in the lowest bits.
inline constexpr float kRoundToBits = 0x1p23f;

// A token of a row of f16 whose largest magnitude is in [2^e, 2^(e + 1)) counts in steps of
// 2^(e - 12): what is above an eighth of 2^e does so exactly, and no code is above 8188. Adding the
// rounder, 1.5 * 2^23 steps, leaves a number's code as a signed integer in the lowest 16 bits.
struct HalfSteps {
  float scale;  // NaN: some number is not finite
  float rounder;
};
// By the exponent's bits, of which those of denormals are 1: the scale is 2^(bits - 27).
inline constexpr uint32_t kHalfInfinity = 31;
inline constexpr uint32_t kHalfScaleOffset = 127 - 27;
inline constexpr uint32_t kHalfRounderOffset = kHalfScaleOffset + 23;
inline constexpr uint32_t kHalfRounderBits = 0x400000;
inline HalfSteps HalfStepsOf(uint16_t largest_bits) {
  const uint32_t exponent = largest_bits < 0x400 ? 1 : largest_bits >> 10;
  return {exponent == kHalfInfinity ? std::numeric_limits<float>::quiet_NaN()
                                    : std::bit_cast<float>((exponent + kHalfScaleOffset) << 23),
          std::bit_cast<float>(((exponent + kHalfRounderOffset) << 23) | kHalfRounderBits)};
}

// Codes count from their middle, so that what rounding does to their multipliers does not grow with
// an offset that all of them share: scale * code + bias = scale * (code - middle) + centre.
inline constexpr int32_t KeyMiddle(size_t bits) { return 1 << (bits - 1); }

// The weights of values have the signs of no scale: |scale| * level + centre, where the codes of a
// group with a negative scale count from the other end,
//   level = code - middle          centre = fma(middle, scale, bias)         sign bit clear
//   level = middle - 1 - code      centre = fma(middle - 1, scale, bias)     sign bit set
// With this middle a level is a signed byte. Codes of 4 bits are one as they are, and so coarse
// that an offset does not matter.
inline constexpr int32_t ValueMiddle(size_t bits) { return bits == 8 ? 128 : 0; }

// Weights are powers of two of scores in base 2, from as many terms as their integers can show:
//   x = max(x, kExp2Min);  n = round-to-even(x);  r = x - n;  p = 1 by Horner and fma
//   2^x ~ p with n added to its exponent                                            NaN stays NaN
// Minimax fits of the relative error on |r| <= 0.5 with 2^0 = 1, by iteratively reweighted least
// squares; errors 1.02e-4, 2.9e-6 and 1.6e-7.
inline constexpr float kExp2Min = -125.0f;
template <int kDegree>
struct Exp2Poly;
template <>
struct Exp2Poly<3> {
  static constexpr float kTerms[] = {0x1.62f5fcp-1f, 0x1.f00c56p-3f, 0x1.c2a21cp-5f};
};
template <>
struct Exp2Poly<4> {
  static constexpr float kTerms[] = {0x1.62e12cp-1f, 0x1.ec0378p-3f, 0x1.c9fc4ap-5f,
                                     0x1.3a02d0p-7f};
};
template <>
struct Exp2Poly<5> {
  static constexpr float kTerms[] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f, 0x1.3cea8ap-7f,
                                     0x1.5bba16p-10f};
};
// Of weights of one byte and of two; what scales whole blocks takes 5.
inline constexpr int WeightDegree(size_t bytes) { return bytes == 1 ? 3 : 4; }
inline constexpr int kBlockDegree = 5;

// A row's reference, which its weights of all blocks count from, moves up only when a block's
// largest score is this much above it: accumulators are seldom scaled anew.
inline constexpr float kReferenceSlack = 8.0f;

// A block is decisive for a row that saw nothing before it, or whose largest weight in it is more
// than this share of all weights before, or above the reference by more than the slack: by
//   max = -infinity  or  largest > max + kReferenceSlack  or
//   2^(largest - max) > kDecisiveShare * sum
// The tokens of every other block have at most a like share each of the weights up to it.
inline constexpr float kDecisiveShare = 0.25f;

}  // namespace kvasir

#endif  // KVASIR_KERNELS_INTEGER_STEPS_H_
