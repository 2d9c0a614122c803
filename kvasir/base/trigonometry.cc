#include "kvasir/base/trigonometry.h"

#include <cmath>
#include <cstdint>

namespace kvasir {
namespace {

// pi/2 as a sum of three doubles (Cody & Waite): the first two products below are exact for
// quotients up to 2^30 under fused multiply-add.
constexpr double kHalfPiHigh = 0x1.921fb54442d18p+0;
constexpr double kHalfPiMiddle = 0x1.1a62633145c07p-54;
constexpr double kHalfPiLow = -0x1.f1976b7ed8fbcp-110;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;

// Taylor series on [-pi/4, pi/4]; the first term left out is below 2^-56 of the result.
double SinPolynomial(double x) {
  const double z = x * x;
  double p = -1.0 / 1307674368000.0;  // -1/15!
  p = std::fma(p, z, 1.0 / 6227020800.0);
  p = std::fma(p, z, -1.0 / 39916800.0);
  p = std::fma(p, z, 1.0 / 362880.0);
  p = std::fma(p, z, -1.0 / 5040.0);
  p = std::fma(p, z, 1.0 / 120.0);
  p = std::fma(p, z, -1.0 / 6.0);
  return std::fma(p * z, x, x);
}

double CosPolynomial(double x) {
  const double z = x * x;
  double p = 1.0 / 20922789888000.0;  // 1/16!
  p = std::fma(p, z, -1.0 / 87178291200.0);
  p = std::fma(p, z, 1.0 / 479001600.0);
  p = std::fma(p, z, -1.0 / 3628800.0);
  p = std::fma(p, z, 1.0 / 40320.0);
  p = std::fma(p, z, -1.0 / 720.0);
  p = std::fma(p, z, 1.0 / 24.0);
  p = std::fma(p, z, -0.5);
  return std::fma(p, z, 1.0);
}

}  // namespace

SinCosResult SinCos(double x) {
  const double quotient = std::nearbyint(x * kTwoOverPi);
  double rest = std::fma(-quotient, kHalfPiHigh, x);
  rest = std::fma(-quotient, kHalfPiMiddle, rest);
  rest = std::fma(-quotient, kHalfPiLow, rest);
  const double sin = SinPolynomial(rest);
  const double cos = CosPolynomial(rest);
  switch (static_cast<int64_t>(quotient) & 3) {
    case 0:
      return {sin, cos};
    case 1:
      return {cos, -sin};
    case 2:
      return {-sin, -cos};
    default:
      return {-cos, sin};
  }
}

}  // namespace kvasir
