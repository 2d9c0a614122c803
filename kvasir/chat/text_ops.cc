// Case, padding, stripping and replacing on Text.
// Deliberately byte-exact about origins: what a method only moves keeps who wrote it.
#include <algorithm>

#include "kvasir/chat/methods.h"
#include "kvasir/chat/python_ops.h"
#include "kvasir/chat/unicode.h"

namespace kvasir::chat {
namespace {

bool IsCasedLetter(uint32_t c) { return IsLower(c) || IsUpper(c) || IsTitle(c); }

Text WithMarkupOf(const Text& source, Text result) {
  return source.is_markup() ? result.AsMarkup() : result;
}

}  // namespace

Text ChangeCase(const Text& text, LetterCase letter_case) {
  Text result;
  const std::string& bytes = text.bytes();
  bool after_letter = false;
  std::string changed;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint next = DecodeUtf8(bytes, at);
    const uint32_t c = next.value;
    const bool initial = letter_case == LetterCase::kCapitalize ? at == 0 : !after_letter;
    changed.clear();
    switch (letter_case) {
      case LetterCase::kUpper:
        AppendUpper(c, &changed);
        break;
      case LetterCase::kLower:
        AppendLower(bytes, at, c, &changed);
        break;
      case LetterCase::kFold:
        AppendFolded(c, &changed);
        break;
      case LetterCase::kSwap:
        if (IsUpper(c)) {
          AppendLower(bytes, at, c, &changed);
        } else if (IsLower(c)) {
          AppendUpper(c, &changed);
        } else {
          changed.append(bytes, at, next.size_bytes);
        }
        break;
      case LetterCase::kCapitalize:
      case LetterCase::kTitle:
        if (initial) {
          AppendTitle(c, &changed);
        } else {
          AppendLower(bytes, at, c, &changed);
        }
        break;
    }
    const bool is_invalid_byte = c == 0xFFFD && next.size_bytes == 1;
    if (is_invalid_byte) changed.assign(bytes, at, 1);
    result.Append(changed, text.OriginAt(at));
    after_letter = IsCasedLetter(c);
    at += next.size_bytes;
  }
  return WithMarkupOf(text, std::move(result));
}

Text Strip(const Text& text, Ends ends, const Text* characters) {
  const std::string& bytes = text.bytes();
  std::vector<uint32_t> wanted;
  for (size_t at = 0; characters != nullptr && at < characters->size();) {
    const CodePoint next = DecodeUtf8(characters->bytes(), at);
    wanted.push_back(next.value);
    at += next.size_bytes;
  }
  std::sort(wanted.begin(), wanted.end());
  const auto strips = [&](uint32_t c) {
    return characters == nullptr ? IsSpace(c) : std::binary_search(wanted.begin(), wanted.end(), c);
  };
  size_t begin = 0;
  while (ends != Ends::kRight && begin < bytes.size()) {
    const CodePoint next = DecodeUtf8(bytes, begin);
    if (!strips(next.value)) break;
    begin += next.size_bytes;
  }
  size_t end = bytes.size();
  if (ends != Ends::kLeft) {
    end = begin;
    for (size_t at = begin; at < bytes.size();) {
      const CodePoint next = DecodeUtf8(bytes, at);
      at += next.size_bytes;
      if (!strips(next.value)) end = at;
    }
  }
  return text.Substr(begin, end);
}

Result<Text> Replace(Runtime& runtime, const Text& text, const Text& from, const Text& to,
                     int64_t count) {
  Text result = text.Substr(0, 0);
  const std::string& bytes = text.bytes();
  KVASIR_TRY_OK(runtime.StepSearch(text.size(), from.size()));
  size_t at = 0;
  while (count != 0) {
    size_t found = at;
    if (!from.empty()) found = bytes.find(from.bytes(), at);
    if (found == std::string::npos) break;
    result.AppendRange(text, at, found);
    result.Append(to);
    KVASIR_TRY_OK(runtime.CheckStringSize(result.size()));
    KVASIR_TRY_OK(runtime.Step());
    --count;
    at = found + from.size();
    if (from.empty()) {  // Python puts `to` between all characters and at both ends
      if (at >= bytes.size()) return result;
      const size_t next = at + DecodeUtf8(bytes, at).size_bytes;
      result.AppendRange(text, at, next);
      at = next;
    }
  }
  result.AppendRange(text, at, bytes.size());
  return result;
}

std::vector<Text> SplitLines(const Text& text) {
  std::vector<Text> lines;
  const std::string& bytes = text.bytes();
  size_t begin = 0;
  for (size_t at = 0; at < bytes.size();) {
    const CodePoint next = DecodeUtf8(bytes, at);
    const size_t end = at;
    at += next.size_bytes;
    if (!IsLineBreak(next.value)) continue;
    if (next.value == '\r' && at < bytes.size() && bytes[at] == '\n') ++at;
    lines.push_back(text.Substr(begin, end));
    begin = at;
  }
  if (begin < bytes.size()) lines.push_back(text.Substr(begin, bytes.size()));
  return lines;
}

Result<Text> Pad(Runtime& runtime, const Text& text, int64_t width, Align align, const Text& fill) {
  const int64_t missing = width - CountCodePoints(text.bytes());
  if (missing <= 0) return text;
  KVASIR_TRY_OK(runtime.CheckStringSize(static_cast<size_t>(missing)));
  KVASIR_TRY_OK(runtime.StepBytes(static_cast<size_t>(missing) * 8));
  int64_t left = align == Align::kRight ? missing : 0;
  // Where CPython's str.center puts the odd blank.
  if (align == Align::kMiddle) left = missing / 2;
  if (align == Align::kCenter) left = missing / 2 + (missing & width & 1);
  Text result = text.Substr(0, 0);
  for (int64_t i = 0; i < left; ++i) result.Append(fill);
  result.Append(text);
  for (int64_t i = left; i < missing; ++i) result.Append(fill);
  return result;
}

}  // namespace kvasir::chat
