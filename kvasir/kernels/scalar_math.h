// The scalar definitions that the SIMD tables repeat; they live in base, where kv finds them too.
// Deliberately nothing of its own.
#ifndef KVASIR_KERNELS_SCALAR_MATH_H_
#define KVASIR_KERNELS_SCALAR_MATH_H_

#include "kvasir/base/scalar_math.h"  // IWYU pragma: export

#endif  // KVASIR_KERNELS_SCALAR_MATH_H_
