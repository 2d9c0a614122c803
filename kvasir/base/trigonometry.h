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

// Error below 1e-15 for |x| < 2^30.
SinCosResult SinCos(double x);

}  // namespace kvasir

#endif  // KVASIR_BASE_TRIGONOMETRY_H_
