#include "kvasir/base/trigonometry.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

namespace kvasir {
namespace {

template <size_t kTerms>
double Polynomial(const double (&terms)[kTerms], double z) {
  double p = terms[0];
  for (size_t i = 1; i < kTerms; ++i) p = std::fma(p, z, terms[i]);
  return p;
}

}  // namespace

SinCosResult SinCos(double x) {
  const double quotient = std::nearbyint(x * kTwoOverPi);
  double rest = x;
  for (const double part : kHalfPiParts) rest = std::fma(-quotient, part, rest);
  const double z = rest * rest;
  const double sin = std::fma(Polynomial(kSinTerms, z) * z, rest, rest);
  const double cos = std::fma(Polynomial(kCosTerms, z), z, 1.0);
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
