// UTF-8 and the few Unicode properties that Python's str methods look at.
// Deliberately not normalisation: templates never normalise, the tokenizer does.
#ifndef KVASIR_CHAT_UNICODE_H_
#define KVASIR_CHAT_UNICODE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::chat {

struct CodePoint {
  uint32_t value;     // U+FFFD for a byte that begins no valid sequence
  size_t size_bytes;  // 1 for such a byte
};

// The code point that begins at byte `position`. REQUIRES: position < text.size().
CodePoint DecodeUtf8(std::string_view text, size_t position);
void AppendUtf8(uint32_t code_point, std::string* out);
int64_t CountCodePoints(std::string_view text);
// The byte position of each code point, and text.size() at the end.
std::vector<size_t> CodePointStarts(std::string_view text);
// The byte position of code point `index`, or text.size() when there are fewer.
size_t ByteOffsetOfCodePoint(std::string_view text, int64_t index);

// str.isspace() of one character: also what `\s` means in Python's regular expressions.
bool IsSpace(uint32_t code_point);
bool IsLineBreak(uint32_t code_point);  // a boundary for str.splitlines()
bool IsAlpha(uint32_t code_point);
bool IsDecimal(uint32_t code_point);
bool IsDigit(uint32_t code_point);
bool IsNumeric(uint32_t code_point);
bool IsLower(uint32_t code_point);
bool IsUpper(uint32_t code_point);
bool IsTitle(uint32_t code_point);
bool IsPrintable(uint32_t code_point);
bool IsIdentifierStart(uint32_t code_point);
bool IsIdentifierPart(uint32_t code_point);

void AppendUpper(uint32_t code_point, std::string* out);
void AppendTitle(uint32_t code_point, std::string* out);
// The final form of a capital sigma needs its neighbours: `text` is the whole string and
// `position` where code_point stands in it.
void AppendLower(std::string_view text, size_t position, uint32_t code_point, std::string* out);
void AppendFolded(uint32_t code_point, std::string* out);

// Without white space at the right end.
std::string_view TrimRight(std::string_view text);

}  // namespace kvasir::chat

#endif  // KVASIR_CHAT_UNICODE_H_
