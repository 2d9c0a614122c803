#include "kvasir/base/base64.h"

#include <cstdint>
#include <string_view>

namespace kvasir {

std::string Base64(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t j = i; j < i + 3; ++j) {
      three = three << 8 | (j < bytes.size() ? static_cast<uint32_t>(bytes[j]) : 0);
    }
    for (size_t digit = 0; digit < 4; ++digit) {
      const bool is_padding = i + digit > bytes.size();
      text += is_padding ? '=' : kDigits[three >> (18 - 6 * digit) & 63];
    }
  }
  return text;
}

}  // namespace kvasir
