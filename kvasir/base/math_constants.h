// Constants of Kvasir's exp, tanh and softplus, shared by the scalar definition and the SIMD code.
// Deliberately no code: a function here could be compiled for one instruction set and run on
// another.
#ifndef KVASIR_BASE_MATH_CONSTANTS_H_
#define KVASIR_BASE_MATH_CONSTANTS_H_

namespace kvasir::math {

inline constexpr float kLog2E = 0x1.715476p+0f;
inline constexpr float kLn2 = 0x1.62e430p-1f;
// Adding 1.5 * 2^23 rounds to the nearest integer, ties to even, and leaves it in the low bits.
inline constexpr float kRoundMagic = 0x1.8p+23f;
// ln 2 = high + low. `high` has 21 significant bits, so x - n * high is exact for |n| < 256.
inline constexpr float kLn2High = 0x1.62e43p-1f;
inline constexpr float kLn2Low = -0x1.05c611p-29f;
// Arguments are clamped here: exp(-104) rounds to 0, exp(89) to infinity.
inline constexpr float kExpMin = -104.0f;
inline constexpr float kExpMax = 89.0f;
// (e^r - 1 - r) / r^2 on |r| <= 0.347, minimax fits by iteratively reweighted least squares.
// The first minimises the absolute error of e^r (3.2e-9), the second the relative error of
// e^r - 1 (2.4e-10).
inline constexpr float kExpPoly[5] = {0x1.000000p-1f, 0x1.55548ep-3f, 0x1.55545cp-5f,
                                      0x1.123c02p-7f, 0x1.6db51ap-10f};
inline constexpr float kExpm1Poly[6] = {0x1.000000p-1f, 0x1.555556p-3f,  0x1.5554aep-5f,
                                        0x1.111090p-7f, 0x1.6d7550p-10f, 0x1.a1a246p-13f};
// (2 atanh(w / 2) - w) / w^3 as a polynomial in w^2 <= 4/9, the relative error of the arctangent
// minimised in the same way (5.4e-9).
inline constexpr float kLog1pPoly[4] = {0x1.555502p-4f, 0x1.99d208p-7f, 0x1.1ebd0ep-9f,
                                        0x1.1ed7bep-11f};
// 2|x| is clamped here: tanh(10) is 1 in float.
inline constexpr float kTanhMax = 20.0f;

// gelu_tanh(x) = 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3)))
inline constexpr float kSqrtTwoOverPi = 0x1.988454p-1f;
inline constexpr float kGeluCubic = 0.044715f;
// Of the gate of gpt-oss.
inline constexpr float kGateLimit = 7.0f;
inline constexpr float kGateSlope = 1.702f;

}  // namespace kvasir::math

#endif  // KVASIR_BASE_MATH_CONSTANTS_H_
