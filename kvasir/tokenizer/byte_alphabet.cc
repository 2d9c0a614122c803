#include "kvasir/tokenizer/byte_alphabet.h"

#include <array>

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

constexpr bool IsPrintable(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

constexpr std::array<char32_t, 256> MakeCharacters() {
  std::array<char32_t, 256> characters{};
  char32_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    characters[static_cast<size_t>(byte)] =
        IsPrintable(byte) ? static_cast<char32_t>(byte) : next++;
  }
  return characters;
}

constexpr std::array<char32_t, 256> kCharacters = MakeCharacters();

constexpr std::array<int16_t, kByteAlphabetEnd> MakeBytes() {
  std::array<int16_t, kByteAlphabetEnd> bytes{};
  for (int16_t& byte : bytes) byte = -1;
  for (size_t byte = 0; byte < 256; ++byte) bytes[kCharacters[byte]] = static_cast<int16_t>(byte);
  return bytes;
}

constexpr std::array<int16_t, kByteAlphabetEnd> kBytes = MakeBytes();

}  // namespace

char32_t CharacterOfByte(uint8_t byte) { return kCharacters[byte]; }

std::optional<uint8_t> ByteOfCharacter(char32_t code) {
  if (code >= kByteAlphabetEnd || kBytes[code] < 0) return std::nullopt;
  return static_cast<uint8_t>(kBytes[code]);
}

void AppendByteCharacters(std::string_view bytes, std::string* text) {
  for (const char byte : bytes) AppendUtf8(kCharacters[static_cast<uint8_t>(byte)], text);
}

std::string BytesOfCharacters(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Char character = DecodeUtf8(text, position);
    const std::optional<uint8_t> byte = ByteOfCharacter(character.code);
    if (!byte.has_value()) return std::string(text);
    bytes.push_back(static_cast<char>(*byte));
    position += character.size_bytes;
  }
  return bytes;
}

}  // namespace kvasir
