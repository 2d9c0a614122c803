// The turbo codec: a row is its norm and, per coordinate of the rotated unit vector, the nearest
// level of an exact codebook (TurboQuant's MSE variant, arXiv 2504.19874, algorithm 1).
// Deliberately without the paper's residual sign bits: they raise the error of a row.
#ifndef KVASIR_TENSOR_TURBO_CODEC_H_
#define KVASIR_TENSOR_TURBO_CODEC_H_

#include <cstdint>
#include <span>

namespace kvasir {

// All: rows of a multiple of 16 elements, at most 512; bits 2, 3 or 4.

// Writes x.size() codes and returns the norm. The float32 operations, so that a SIMD encoder
// repeats them bit for bit:
//
//   m = max |x_i|;  y_i = x_i / (m > 0 ? m : 1)
//   s = sum of y_i^2: lane i % 16 takes fma(y_i, y_i, lane) in ascending order from 0, then lanes
//       l and l + 8, l + 4, l + 2, l + 1 are added
//   norm = min(m * sqrt(s), FLT_MAX)
//   z = Rotate(y_i * (s > 0 ? 1 / sqrt(s) : 0));  code_i = thresholds strictly below z_i
//
// so tiny rows keep their norm and a finite row has a finite one. A zero row has norm 0. A row that
// is not finite has the quiet NaN as its norm and codes 0.
float EncodeTurbo(std::span<const float> x, int bits, uint8_t* codes);

// x_i = norm * level of code i: the row as attention reads it, still rotated. One rounding.
void LoadTurbo(const uint8_t* codes, float norm, int bits, std::span<float> x);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_TURBO_CODEC_H_
