#include "kvasir/base/checksum.h"

#include <cstdio>
#include <random>

#include "kvasir/base/text_hash.h"

// Compiled in, so that whoever links Kvasir needs no further library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvasir {

uint64_t Checksum64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

size_t TextHash::operator()(std::string_view text) const {
  static const uint64_t seed = [] {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
  }();
  return XXH3_64bits_withSeed(text.data(), text.size(), seed);
}

std::string ChecksumDigits(uint64_t checksum) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(checksum));
  return digits;
}

}  // namespace kvasir
