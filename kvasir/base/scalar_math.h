// exp, tanh, softplus and the 16-lane sum as scalar code: the definition that every SIMD table
// repeats bit for bit (kvasir/kernels/math-inl.h). Deliberately not std::exp: libm's bits differ
// between machines.
#ifndef KVASIR_BASE_SCALAR_MATH_H_
#define KVASIR_BASE_SCALAR_MATH_H_

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>

#include "kvasir/base/math_constants.h"

namespace kvasir::scalar {

// 2^n for n in [-126, 127].
inline float PowerOfTwo(int32_t n) {
  return std::bit_cast<float>(static_cast<uint32_t>(n + 127) << 23);
}

// x = n ln 2 + r with |r| <= 0.347: Cody & Waite's reduction. REQUIRES: |x| < 2^20, not NaN.
struct ReducedExponent {
  int32_t n;
  float r;
};
inline ReducedExponent ReduceExponent(float x) {
  const float shifted = std::fma(x, math::kLog2E, math::kRoundMagic);
  const float n = shifted - math::kRoundMagic;
  const float r = std::fma(n, -math::kLn2Low, std::fma(n, -math::kLn2High, x));
  return {static_cast<int32_t>(n), r};
}

// e^x. Exact: exp(0) = 1, exp(-inf) = 0, exp(inf) = inf; NaN stays NaN; denormal results are right.
inline float Exp(float x) {
  if (std::isnan(x)) return x;
  x = x < math::kExpMin ? math::kExpMin : x;
  x = x > math::kExpMax ? math::kExpMax : x;
  const auto [n, r] = ReduceExponent(x);
  float p = math::kExpPoly[4];
  for (int i = 3; i >= 0; --i) p = std::fma(p, r, math::kExpPoly[i]);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const int32_t half = n >> 1;
  return p * PowerOfTwo(half) * PowerOfTwo(n - half);
}

// tanh(|x|) = E / (E + 2) with E = e^(2|x|) - 1, so small arguments keep their relative accuracy.
inline float Tanh(float x) {
  if (std::isnan(x)) return x;
  float y = std::fabs(x) + std::fabs(x);
  y = y > math::kTanhMax ? math::kTanhMax : y;
  const auto [n, r] = ReduceExponent(y);
  float q = math::kExpm1Poly[5];
  for (int i = 4; i >= 0; --i) q = std::fma(q, r, math::kExpm1Poly[i]);
  const float small = std::fma(q, r * r, r);
  const float power = PowerOfTwo(n);
  const float e = std::fma(small, power, power - 1.0f);
  return std::copysign(e / (e + 2.0f), x);
}

// ln(1 + e^x) = max(x, 0) + ln(1 + y) with y = e^-|x|, and ln(1 + y) = 2 atanh(w / 2) with w = 2y /
// (2 + y): very negative arguments keep the relative accuracy of their exponential.
inline float Softplus(float x) {
  const float y = Exp(-std::fabs(x));
  const float w = (y + y) / (2.0f + y);
  const float z = w * w;
  float p = math::kLog1pPoly[3];
  for (int i = 2; i >= 0; --i) p = std::fma(p, z, math::kLog1pPoly[i]);
  const float logarithm = std::fma(p * z, w, w);
  return logarithm + (x < 0.0f ? 0.0f : x);
}

// softcap * tanh(x / softcap)
inline float Softcap(float x, float cap) { return cap * Tanh(x / cap); }

// A sum over 16 virtual lanes: element i is added to lane i % 16 in ascending order, then lanes l
// and l + 8, l + 4, l + 2, l + 1 are added.
inline float SumLanes(std::array<float, 16> lanes) {
  for (int width = 8; width > 0; width /= 2) {
    for (int i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

}  // namespace kvasir::scalar

#endif  // KVASIR_BASE_SCALAR_MATH_H_
