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

// What queries are rounded to, by bytes of a multiplier: their largest magnitude. Two bytes are
// 256 h + l with h within +-127; 128 products with codes of a byte stay below 2^31.
inline constexpr float QueryLevels(size_t bytes) { return bytes == 1 ? 127 : 127 * 256; }

// Queries of one byte are balanced, in runs of so many dims of a group: with
//   error[d] = q[d] * inverse - code[d]
//   missing = round-to-even(error over 16 virtual lanes, summed)
// the |missing| codes with the largest errors in its direction, rounded to kBalanceUnits a step,
// the first of equals, move by one in it, which leaves them within their levels. What a group's
// keys have in common adds nothing to the error of a score then, however far it is from their
// middle. Errors in units and dims, counted from behind, are one number: its order has no equals.
inline constexpr int kBalanceShift = 7;
inline constexpr int64_t kBalancedDims = 1 << kBalanceShift;
inline constexpr float kBalanceUnits = 1 << 23;

// Queries of rows of f16, which are integers of 14 bits themselves: kHalfSum products of what they
// and the weights below are rounded to stay below 2^31. Head sizes are multiples of kHalfDims.
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

// Powers of two of what whole blocks are scaled by:
//   x = max(x, kExp2Min);  n = round-to-even(x);  r = x - n;  p = 1 by Horner and fma
//   2^x ~ p with n added to its exponent                                            NaN stays NaN
// A minimax fit of the relative error on |r| <= 0.5 with 2^0 = 1, by iteratively reweighted least
// squares; error 1.6e-7.
inline constexpr float kExp2Min = -125.0f;
inline constexpr float kExp2Terms[] = {0x1.62e42ap-1f, 0x1.ebf9bcp-3f, 0x1.c6b752p-5f,
                                       0x1.3cea8ap-7f, 0x1.5bba16p-10f};

// The weight of a token is a power of two as well, of how far its score, in base 2, is below the
// largest of its block, in integers of 16 bits that count kWeightUnit:
//   n = round-to-even(fma(-score, kWeightSteps, kWeightSteps * largest)), from 0 to 65535
//   f = n << 4 without what leaves 16 bits
//   p = kLargestWeight - (f * (t0 - (f * (t1 - (f * t2 >> 16)) >> 16)) >> 16)
//   p / 2^(n >> 12) to the nearest integer, halves up
// with kWeightTerms t, found by trying out those near a least-squares fit. The relative error of p
// is at most 1.5e-4 and its mean 2e-6; rounding n adds 0.9e-4. A score that is NaN makes the sum
// NaN.
inline constexpr int kWeightFractionBits = 12;
inline constexpr float kWeightSteps = 1 << kWeightFractionBits;
inline constexpr float kFarthestWeight = 65535;
// So small that p of the farthest, 16380, is rounded to 0, and a multiple of 4: codes of f16 are a
// quarter.
inline constexpr int16_t kLargestWeight = 32756;
inline constexpr int16_t kWeightTerms[] = {22653, 7562, 1288};
inline constexpr float kWeightUnit = 1.0f / kLargestWeight;

// Weights times scales of tokens, rounded: with S the largest of the scales
//   share = round-to-even(|scale| * (shares / S));  code = ((weight >> shift) * share + 2^14) >> 15
// which counts steps of S / shares * unit. So one byte is at most 255, and that where weight and
// scale are the largest, two are at most 32755, and those of f16, whose scales are powers of two,
// 8189.
struct WeightRounding {
  int shift;
  float shares;
  float unit;
};
inline constexpr float kWeightRoundingUnit = 0x1p15f * kWeightUnit;
inline constexpr WeightRounding WeightRoundingOf(size_t bytes) {
  return bytes == 1 ? WeightRounding{3, 8 * 255 * kWeightRoundingUnit, 8 * kWeightRoundingUnit}
                    : WeightRounding{0, 32767, kWeightRoundingUnit};
}
inline constexpr WeightRounding kHalfWeightRounding = {0, 8192, kWeightRoundingUnit};

// Centres of values are rounded too where they are multiplied with weights, to so many steps of the
// largest: four products stay below 2^31.
inline constexpr float kCentreLevels = 8191;

// Products of weights and numbers of tokens are added in pairs of neighbours, exactly, and those of
// both halves of a block; then in 16 virtual lanes, as floats. The lane of a token.
inline constexpr size_t PairLaneOf(size_t token) {
  return token % 16 / 4 * 4 + token / 16 % 2 * 2 + token % 4 / 2;
}

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
