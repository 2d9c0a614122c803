// The exact scalar codebooks of the turbo codec: the Lloyd-Max levels of one coordinate of a random
// unit vector (TurboQuant, arXiv 2504.19874, section 3.1), converged, for every head size.
// Deliberately computed beforehand: tools/make_turbo_codebooks.py writes turbo_codebooks.inc.
#ifndef KVASIR_TENSOR_TURBO_CODEBOOKS_H_
#define KVASIR_TENSOR_TURBO_CODEBOOKS_H_

#include <array>
#include <cstdint>

namespace kvasir {

// A codebook's tables have this many entries, whatever its width.
inline constexpr int kTurboTableSize = 16;

// Both: 16 floats, aligned to 64 bytes, alive as long as the program.
// REQUIRES: dim is a multiple of 16, at most 512; bits is 2, 3 or 4.

// Levels, ascending; level 2^bits - 1 - i is minus level i. Entry i + 2^bits repeats entry i, so a
// look-up may leave the bits above a code unmasked.
const float* TurboLevels(int64_t dim, int bits);
// The 2^bits - 1 thresholds, ascending: float32 means of neighbouring levels (the middle one is 0),
// then infinities. A value's code is the number of thresholds strictly below it; NaN has code 0.
const float* TurboThresholds(int64_t dim, int bits);

// The levels as bytes: level ~ (byte - 128) * unit, bytes of codes as above. The unit is the one of
// the largest level over 64 to 127 with which the sum of squared differences is least; they are
// below 0.6 % of the largest level.
struct TurboBytes {
  alignas(16) std::array<uint8_t, kTurboTableSize> bytes = {};
  float unit = 0;
};
const TurboBytes& TurboBytesOf(int64_t dim, int bits);

}  // namespace kvasir

#endif  // KVASIR_TENSOR_TURBO_CODEBOOKS_H_
