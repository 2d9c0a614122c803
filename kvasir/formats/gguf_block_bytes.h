// Unaligned reads from a GGUF block, for its decoders.
// Deliberately unchecked: a decoder is only given whole blocks.
#ifndef KVASIR_FORMATS_GGUF_BLOCK_BYTES_H_
#define KVASIR_FORMATS_GGUF_BLOCK_BYTES_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kvasir/tensor/dtype.h"

namespace kvasir::gguf {

inline uint8_t Byte(const std::byte* block, int at) { return static_cast<uint8_t>(block[at]); }
inline int Low(uint8_t byte) { return byte & 15; }
inline int High(uint8_t byte) { return byte >> 4; }

template <typename T>
T Load(const std::byte* block, int at) {
  T value;
  std::memcpy(&value, block + at, sizeof(T));
  return value;
}
inline float Half(const std::byte* block, int at) { return F16ToFloat(Load<uint16_t>(block, at)); }

struct ScaleAndMin {
  int scale;
  int min;
};

// Q4_K and Q5_K: eight pairs of six bits in twelve bytes at `s`.
inline ScaleAndMin PairOf(const std::byte* s, int b) {
  if (b < 4) return {Byte(s, b) & 63, Byte(s, b + 4) & 63};
  return {Low(Byte(s, b + 4)) | (Byte(s, b - 4) >> 6) << 4, High(Byte(s, b + 4)) | (Byte(s, b) >> 6)
                                                                                       << 4};
}

// Q3_K: sixteen scales of six bits in twelve bytes at `s`, stored plus 32.
inline int ScaleOfQ3K(const std::byte* s, int k) {
  const int low = k < 8 ? Low(Byte(s, k)) : High(Byte(s, k - 8));
  const int high = (Byte(s, 8 + k % 4) >> (2 * (k / 4))) & 3;
  return (low | high << 4) - 32;
}

// IQ4_XS: of eight sub-blocks, stored plus 32.
inline int ScaleOfIq4Xs(const std::byte* block, int b) {
  const uint8_t pair = Byte(block, 4 + b / 2);
  const int low = b % 2 == 0 ? Low(pair) : High(pair);
  return (low | ((Load<uint16_t>(block, 2) >> (2 * b)) & 3) << 4) - 32;
}

// NVFP4: the E4M3 of 16 codes, whose sign counts for nothing; NaN is 0.
inline uint8_t ScaleOfNvfp4(const std::byte* block, int k) {
  const uint8_t scale = Byte(block, k);
  return scale == 0x7F ? 0 : scale & 0x7F;
}

}  // namespace kvasir::gguf

#endif  // KVASIR_FORMATS_GGUF_BLOCK_BYTES_H_
