// Sine and cosine in double precision from our own polynomials: rotary angles must be the same
// bits on every machine, and the C library's are not.
// Deliberately for |x| < 2^30 only: positions times frequencies.
#ifndef KVASIR_BASE_TRIGONOMETRY_H_
#define KVASIR_BASE_TRIGONOMETRY_H_

namespace kvasir {

struct SinCosResult {
  double sin;
  double cos;
};

// What SinCos is made of, for those who compute several at once with the same bits.
// x - q * pi/2 for the nearest whole q, with pi/2 as a sum of three doubles (Cody & Waite): the
// first two products are exact for quotients up to 2^30 under fused multiply-add.
inline constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
inline constexpr double kHalfPiParts[] = {0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54,
                                          -0x1.f1976b7ed8fbcp-110};
// Taylor series on [-pi/4, pi/4], the highest power first; the first term left out is below 2^-56
// of the result. sin x = fma(p(z) * z, x, x), cos x = fma(p(z), z, 1) with z = x * x.
inline constexpr double kSinTerms[] = {
    -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0, 1.0 / 362880.0,
    -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
inline constexpr double kCosTerms[] = {
    1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
    1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0,        -0.5};

// Error below 1e-15 for |x| < 2^30.
SinCosResult SinCos(double x);

}  // namespace kvasir

#endif  // KVASIR_BASE_TRIGONOMETRY_H_
