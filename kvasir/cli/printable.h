// What files and requests say, for a terminal that it must not control.
#ifndef KVASIR_CLI_PRINTABLE_H_
#define KVASIR_CLI_PRINTABLE_H_

#include <string>

namespace kvasir {

// Control characters but line ends become blanks.
inline std::string Printable(std::string text) {
  for (char& c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte < 0x20 && c != '\n') || byte == 0x7F) c = ' ';
  }
  return text;
}

}  // namespace kvasir

#endif  // KVASIR_CLI_PRINTABLE_H_
