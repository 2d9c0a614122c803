// What files, requests and models say, for a terminal that it must not control.
#ifndef KVASIR_CLI_PRINTABLE_H_
#define KVASIR_CLI_PRINTABLE_H_

#include <string>

namespace kvasir {

// Control characters but line ends and tabs become blanks: those of ASCII, and U+0080 to U+009F,
// which some terminals act on as well.
inline std::string Printable(std::string text) {
  unsigned char before = 0;
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool is_ascii = (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7F;
    const bool is_c1 = before == 0xC2 && byte >= 0x80 && byte < 0xA0;
    if (is_c1) *(&c - 1) = ' ';
    if (is_ascii || is_c1) c = ' ';
    before = byte;
  }
  return text;
}

}  // namespace kvasir

#endif  // KVASIR_CLI_PRINTABLE_H_
