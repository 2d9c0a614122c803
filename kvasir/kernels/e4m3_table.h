// The magnitudes of E4M3 codes times the scale mxfp8::kNanScale as bf16, byte by byte, for
// instructions that look up bytes.
// Deliberately -0 for 0: e4m3_tile-inl.h says why.
#ifndef KVASIR_KERNELS_E4M3_TABLE_H_
#define KVASIR_KERNELS_E4M3_TABLE_H_

#include <cstdint>

#include "kvasir/tensor/mxfp8.h"

namespace kvasir {

struct E4m3Bf16 {
  alignas(64) uint8_t low[128];
  alignas(64) uint8_t high[128];
};

constexpr E4m3Bf16 MakeE4m3Bf16() {
  E4m3Bf16 table = {};
  for (uint32_t code = 0; code < 128; ++code) {
    uint32_t exponent = code >> 3;
    uint32_t mantissa = code & 7;
    if (exponent == 0 && mantissa != 0) {
      // A multiple of 2^-9: up to the bit that bf16 does not store.
      for (exponent = 1; mantissa < 8; --exponent) mantissa *= 2;
      mantissa -= 8;
    }
    // bf16 counts its exponents from 127, as scales do, E4M3 from 7.
    exponent += 127 - 7 + mxfp8::kNanScale - 127;
    const uint32_t bits = code == 0 ? 0x8000 : exponent << 7 | mantissa << 4;
    table.low[code] = static_cast<uint8_t>(bits);
    table.high[code] = static_cast<uint8_t>(bits >> 8);
  }
  return table;
}

inline constexpr E4m3Bf16 kE4m3Bf16 = MakeE4m3Bf16();

}  // namespace kvasir

#endif  // KVASIR_KERNELS_E4M3_TABLE_H_
