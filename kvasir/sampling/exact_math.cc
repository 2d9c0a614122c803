#include "kvasir/sampling/exact_math.h"

#include <bit>
#include <cstdint>

namespace kvasir {
namespace {

// Below this e^x is not a normal number; nothing that small is ever drawn.
constexpr double kLowest = -700.0;
constexpr double kLog2E = 0x1.71547652b82fep+0;
// ln 2 in two parts: the first has 32 trailing zero bits, so n * kLn2High is exact for |n| < 2^11.
constexpr double kLn2High = 0x1.62e42feep-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;
// Adding it leaves the nearest integer in the low bits of the mantissa.
constexpr double kRound = 0x1.8p52;

// e^r for |r| <= ln(2)/2: the Taylor series, whose first dropped term is below 2^-57.
inline double Series(double r) {
  double sum = 1.0 / 6227020800.0;
  sum = sum * r + 1.0 / 479001600.0;
  sum = sum * r + 1.0 / 39916800.0;
  sum = sum * r + 1.0 / 3628800.0;
  sum = sum * r + 1.0 / 362880.0;
  sum = sum * r + 1.0 / 40320.0;
  sum = sum * r + 1.0 / 5040.0;
  sum = sum * r + 1.0 / 720.0;
  sum = sum * r + 1.0 / 120.0;
  sum = sum * r + 1.0 / 24.0;
  sum = sum * r + 1.0 / 6.0;
  sum = sum * r + 0.5;
  sum = sum * r + 1.0;
  return sum * r + 1.0;
}

// Without branches, so that a loop over it can be vectorised.
inline double Exp(double x) {
  const double clamped = x < kLowest ? kLowest : x;
  const double shifted = clamped * kLog2E + kRound;
  const double n = shifted - kRound;
  const double r = (clamped - n * kLn2High) - n * kLn2Low;
  const int64_t exponent = std::bit_cast<int64_t>(shifted) - std::bit_cast<int64_t>(kRound);
  const double scale = std::bit_cast<double>((exponent + 1023) << 52);
  const double value = Series(r) * scale;
  return x < kLowest ? 0.0 : value;
}

}  // namespace

double ExactExp(double x) { return Exp(x); }

void ExactExp(double* values, size_t count) {
  for (size_t i = 0; i < count; ++i) values[i] = Exp(values[i]);
}

double ExactLog(double x) {
  // x = m * 2^n with m in [sqrt(1/2), sqrt(2)), then ln m = 2 atanh((m - 1) / (m + 1)).
  const uint64_t bits = std::bit_cast<uint64_t>(x);
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  int64_t n = static_cast<int64_t>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & kMantissa) | (uint64_t{1023} << 52));
  if (m >= 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    ++n;
  }
  const double s = (m - 1.0) / (m + 1.0);
  const double squared = s * s;
  // |s| <= 0.1716: the first dropped term, s^24 / 25, is below 2^-65.
  double sum = 0.0;
  for (int power = 23; power >= 3; power -= 2) sum = (sum + 1.0 / power) * squared;
  const double high = static_cast<double>(n) * kLn2High;
  const double low = static_cast<double>(n) * kLn2Low;
  return high + (2.0 * s + (2.0 * s * sum + low));
}

}  // namespace kvasir
