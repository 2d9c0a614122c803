// The L2 norm of a row, in the order of additions that every kernel repeats bit for bit.
// Deliberately without scaling: keys are far from where squares overflow.
#ifndef KVASIR_TENSOR_ROW_NORM_H_
#define KVASIR_TENSOR_ROW_NORM_H_

#include <array>
#include <cmath>
#include <cstddef>
#include <span>

#include "kvasir/base/scalar_math.h"

namespace kvasir {

// sqrt(sum of x^2): lane i % 16 takes fma(x_i, x_i, lane) in ascending order, then SumLanes.
inline float RowNorm(std::span<const float> row) {
  std::array<float, 16> lanes = {};
  for (size_t i = 0; i < row.size(); ++i) lanes[i % 16] = std::fma(row[i], row[i], lanes[i % 16]);
  return std::sqrt(scalar::SumLanes(lanes));
}

}  // namespace kvasir

#endif  // KVASIR_TENSOR_ROW_NORM_H_
