// UTF-8: walking valid text character by character, and making any bytes valid.
// Deliberately not here: what a character means. That is unicode.h.
#ifndef KVASIR_TOKENIZER_UTF8_H_
#define KVASIR_TOKENIZER_UTF8_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace kvasir {

// The replacement character U+FFFD in UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

struct Utf8Char {
  char32_t code = 0;
  size_t size_bytes = 0;
};

enum class Utf8Status {
  kComplete,    // one well-formed character
  kIncomplete,  // the bytes end inside a sequence that could still become well-formed
  kInvalid,     // a sequence that no further byte can save
};

struct Utf8Scan {
  Utf8Status status = Utf8Status::kInvalid;
  // The character's bytes, or the maximal subpart to replace by one U+FFFD (Unicode 3.9, D93b).
  size_t size_bytes = 1;
};

// Looks at the sequence that begins at `position`. REQUIRES: position < bytes.size().
Utf8Scan ScanUtf8(std::string_view bytes, size_t position);

bool IsValidUtf8(std::string_view bytes);

// `bytes` with every maximal invalid subpart replaced by one U+FFFD.
std::string ToValidUtf8(std::string_view bytes);

// REQUIRES: valid UTF-8 in `text` and `position` at the beginning of a character.
Utf8Char DecodeUtf8(std::string_view text, size_t position);

// The beginning of the character that ends at `end`. REQUIRES: valid UTF-8, end > 0.
size_t PreviousUtf8(std::string_view text, size_t end);

// REQUIRES: a scalar value (below 0x110000, no surrogate).
void AppendUtf8(char32_t code, std::string* text);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_UTF8_H_
