// Base64 (RFC 4648, section 4) of bytes, with padding.
// Deliberately without decoding: nothing here receives it.
#ifndef KVASIR_BASE_BASE64_H_
#define KVASIR_BASE_BASE64_H_

#include <cstddef>
#include <span>
#include <string>

namespace kvasir {

std::string Base64(std::span<const std::byte> bytes);

}  // namespace kvasir

#endif  // KVASIR_BASE_BASE64_H_
