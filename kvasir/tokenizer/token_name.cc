#include "kvasir/tokenizer/token_name.h"

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {

std::string TokenPiece(const Tokenizer& tokenizer, Token token) {
  std::string piece = tokenizer.TokenBytes(token);
  return piece.empty() ? tokenizer.TokenText(token) : piece;
}

std::string TokenName(const Tokenizer& tokenizer, Token token) {
  const std::string piece = TokenPiece(tokenizer, token);
  if (IsValidUtf8(piece)) return piece;
  constexpr char kDigits[] = "0123456789abcdef";
  std::string name = "bytes:";
  for (const char byte : piece) {
    const auto value = static_cast<uint8_t>(byte);
    name += {'\\', 'x', kDigits[value >> 4], kDigits[value & 15]};
  }
  return name;
}

}  // namespace kvasir
