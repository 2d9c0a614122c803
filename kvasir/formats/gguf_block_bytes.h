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

// IQ4_NL's and IQ4_XS's codes.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                          1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace kvasir::gguf

#endif  // KVASIR_FORMATS_GGUF_BLOCK_BYTES_H_
