// The byte alphabet of GPT-2: 256 printable characters, one for each byte.
// Deliberately tables only: who maps what is the business of the byte-level components.
#ifndef KVASIR_TOKENIZER_BYTE_ALPHABET_H_
#define KVASIR_TOKENIZER_BYTE_ALPHABET_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kvasir {

// Every character of the alphabet is below this.
inline constexpr char32_t kByteAlphabetEnd = 0x144;

// bytes_to_unicode() of openai/gpt-2, src/encoder.py: printable bytes stand for themselves, the
// others for U+0100 and up.
char32_t CharacterOfByte(uint8_t byte);
std::optional<uint8_t> ByteOfCharacter(char32_t code);

// Appends the alphabet's character for every byte of `bytes`.
void AppendByteCharacters(std::string_view bytes, std::string* text);

// The bytes that `text` spells, or `text` itself if it has a character outside the alphabet.
// REQUIRES: valid UTF-8.
std::string BytesOfCharacters(std::string_view text);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_BYTE_ALPHABET_H_
