// exp and log in double from additions, multiplications and divisions only: IEEE 754 fixes every
// bit of those, so a sampled token does not depend on whose C library is linked.
// Deliberately not correctly rounded: errors stay below 2e-15 (relative for exp, absolute for log
// near 1, else relative), which the tests hold.
#ifndef KVASIR_SAMPLING_EXACT_MATH_H_
#define KVASIR_SAMPLING_EXACT_MATH_H_

#include <cstddef>

namespace kvasir {

// e^x for x in [-700, 0]; below that 0. REQUIRES: x <= 0, not NaN.
double ExactExp(double x);
// The same for count numbers, in place; the compiler may vectorise it, the bits do not change.
void ExactExp(double* values, size_t count);

// Natural logarithm. REQUIRES: x is positive, normal and finite.
double ExactLog(double x);

}  // namespace kvasir

#endif  // KVASIR_SAMPLING_EXACT_MATH_H_
