#include "kvasir/tensor/packed_codes.h"

#include <algorithm>

namespace kvasir {

void PackRow(std::span<const uint8_t> codes, int bits, uint32_t* words) {
  std::fill_n(words, RowWords(static_cast<int64_t>(codes.size()), bits), 0u);
  size_t bit = 0;
  for (const uint8_t code : codes) {
    const uint64_t put = static_cast<uint64_t>(code) << (bit % 32);
    words[bit / 32] |= static_cast<uint32_t>(put);
    if (put >> 32 != 0) words[bit / 32 + 1] |= static_cast<uint32_t>(put >> 32);
    bit += static_cast<size_t>(bits);
  }
}

void UnpackRow(const uint32_t* words, int bits, std::span<uint8_t> codes) {
  const auto width = static_cast<size_t>(bits);
  size_t bit = 0;
  for (uint8_t& code : codes) {
    uint64_t both = words[bit / 32];
    if (bit % 32 + width > 32) both |= static_cast<uint64_t>(words[bit / 32 + 1]) << 32;
    code = static_cast<uint8_t>((both >> (bit % 32)) & ((1u << width) - 1));
    bit += width;
  }
}

}  // namespace kvasir
