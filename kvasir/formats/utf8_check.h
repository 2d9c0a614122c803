// Whether bytes are UTF-8, for formats that promise it.
// Deliberately repairs nothing: what is broken in a file is an error there.
#ifndef KVASIR_FORMATS_UTF8_CHECK_H_
#define KVASIR_FORMATS_UTF8_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace kvasir {

// Unicode 15, table 3-7: no overlong forms, no surrogates, nothing above U+10FFFF.
inline bool IsValidUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<uint8_t>(text[i++]);
    if (lead < 0x80) continue;
    if (lead < 0xC2 || lead > 0xF4) return false;
    const int more = lead < 0xE0 ? 1 : lead < 0xF0 ? 2 : 3;
    uint8_t low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
    uint8_t high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
    for (int k = 0; k < more; ++k, ++i) {
      if (i == text.size()) return false;
      const auto byte = static_cast<uint8_t>(text[i]);
      if (byte < low || byte > high) return false;
      low = 0x80;
      high = 0xBF;
    }
  }
  return true;
}

}  // namespace kvasir

#endif  // KVASIR_FORMATS_UTF8_CHECK_H_
