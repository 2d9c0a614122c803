#include "kvasir/base/checksum.h"

// Compiled in, so that whoever links Kvasir needs no further library.
#define XXH_INLINE_ALL
#include <xxhash.h>

namespace kvasir {

uint64_t Checksum64(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace kvasir
