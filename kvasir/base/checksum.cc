#include "kvasir/base/checksum.h"

#include <cstdio>

// Compiled in, so that whoever links Kvasir needs no further library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvasir {

uint64_t Checksum64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::string ChecksumDigits(uint64_t checksum) {
  char digits[17];
  std::snprintf(digits, sizeof(digits), "%016llx", static_cast<unsigned long long>(checksum));
  return digits;
}

}  // namespace kvasir
