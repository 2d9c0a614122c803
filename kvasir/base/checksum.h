// Checksums of bytes at rest: whether a file or message holds what was written to it.
// Deliberately no defence against somebody who wants a collision: content keys are another matter.
// The algorithm is XXH3 (64 bits, seed 0), whose values are fixed since xxHash 0.8.0; the library
// is seen by checksum.cc only, which has text_hash.h's as well.
#ifndef KVASIR_BASE_CHECKSUM_H_
#define KVASIR_BASE_CHECKSUM_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace kvasir {

// XXH3-64 of `bytes`, seed 0. The same on every machine.
uint64_t Checksum64(std::span<const std::byte> bytes);
// Its 16 hexadecimal digits, as names and metadata have them.
std::string ChecksumDigits(uint64_t checksum);

}  // namespace kvasir

#endif  // KVASIR_BASE_CHECKSUM_H_
