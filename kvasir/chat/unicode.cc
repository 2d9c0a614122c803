// Unicode properties with Python's definitions on top.
// Deliberately not locale aware: the same text gives the same result everywhere.
#include "kvasir/chat/unicode.h"

#include <algorithm>
#include <iterator>

#include "kvasir/chat/special_casing.h"
#include "kvasir/unicode/unicode_data.h"

namespace kvasir::chat {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;

const SpecialUpperCase* FindSpecial(uint32_t code_point) {
  const auto* end = std::end(kSpecialUpperCase);
  const auto* found = std::lower_bound(
      std::begin(kSpecialUpperCase), end, code_point,
      [](const SpecialUpperCase& entry, uint32_t wanted) { return entry.code_point < wanted; });
  return found != end && found->code_point == code_point ? found : nullptr;
}

void AppendMapping(const uint32_t (&mapping)[3], std::string* out) {
  for (uint32_t code_point : mapping) {
    if (code_point != 0) AppendUtf8(code_point, out);
  }
}

bool IsCased(uint32_t code_point) {
  return IsLower(code_point) || IsUpper(code_point) || IsTitle(code_point);
}

// Unicode's Case_Ignorable, by category and the word-break characters it adds.
bool IsCaseIgnorable(uint32_t code_point) {
  switch (CategoryOf(code_point)) {
    case UnicodeCategory::kMn:
    case UnicodeCategory::kMe:
    case UnicodeCategory::kCf:
    case UnicodeCategory::kLm:
    case UnicodeCategory::kSk:
      return true;
    default:
      break;
  }
  static constexpr uint32_t kMiddle[] = {0x27, 0x2E, 0x3A, 0xB7, 0x387, 0x2018, 0x2019, 0x2024};
  return std::find(std::begin(kMiddle), std::end(kMiddle), code_point) != std::end(kMiddle);
}

// Unicode's Final_Sigma: a cased letter before it and none after it.
bool IsFinalSigma(std::string_view text, size_t position) {
  bool cased_before = false;
  for (size_t at = 0; at < position;) {
    const CodePoint next = DecodeUtf8(text, at);
    if (!IsCaseIgnorable(next.value)) cased_before = IsCased(next.value);
    at += next.size_bytes;
  }
  if (!cased_before) return false;
  for (size_t at = position + DecodeUtf8(text, position).size_bytes; at < text.size();) {
    const CodePoint next = DecodeUtf8(text, at);
    if (!IsCaseIgnorable(next.value)) return !IsCased(next.value);
    at += next.size_bytes;
  }
  return true;
}

}  // namespace

CodePoint DecodeUtf8(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[position + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t size = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || text.size() - position < size) return {kReplacement, 1};
  uint32_t value = lead & (0xFFU >> (size + 1));
  for (size_t i = 1; i < size; ++i) {
    if ((byte(i) & 0xC0U) != 0x80U) return {kReplacement, 1};
    value = (value << 6) | (byte(i) & 0x3FU);
  }
  static constexpr uint32_t kSmallest[] = {0, 0, 0x80, 0x800, 0x10000};
  const bool surrogate = value >= 0xD800 && value <= 0xDFFF;
  if (value < kSmallest[size] || value > 0x10FFFF || surrogate) return {kReplacement, 1};
  return {value, size};
}

void AppendUtf8(uint32_t code_point, std::string* out) {
  if (code_point > 0x10FFFF || (code_point >= 0xD800 && code_point <= 0xDFFF)) {
    code_point = kReplacement;
  }
  if (code_point < 0x80) {
    out->push_back(static_cast<char>(code_point));
    return;
  }
  const int more = code_point < 0x800 ? 1 : code_point < 0x10000 ? 2 : 3;
  static constexpr uint32_t kLead[] = {0, 0xC0, 0xE0, 0xF0};
  out->push_back(static_cast<char>(kLead[more] | (code_point >> (6 * more))));
  for (int i = more - 1; i >= 0; --i) {
    out->push_back(static_cast<char>(0x80U | ((code_point >> (6 * i)) & 0x3FU)));
  }
}

int64_t CountCodePoints(std::string_view text) {
  int64_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) at += DecodeUtf8(text, at).size_bytes;
  return count;
}

std::vector<size_t> CodePointStarts(std::string_view text) {
  std::vector<size_t> starts;
  for (size_t at = 0; at < text.size();) {
    starts.push_back(at);
    at += DecodeUtf8(text, at).size_bytes;
  }
  starts.push_back(text.size());
  return starts;
}

size_t ByteOffsetOfCodePoint(std::string_view text, int64_t index) {
  size_t at = 0;
  for (; at < text.size() && index > 0; --index) at += DecodeUtf8(text, at).size_bytes;
  return at;
}

bool IsSpace(uint32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20);
  return c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) || c == 0x2028 ||
         c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool IsLineBreak(uint32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

bool IsAlpha(uint32_t c) { return IsInCategories(c, UnicodeCategory::kLu, UnicodeCategory::kLo); }

bool IsDecimal(uint32_t c) { return CategoryOf(c) == UnicodeCategory::kNd; }

bool IsDigit(uint32_t c) {
  if (IsDecimal(c)) return true;
  static constexpr uint32_t kRanges[][2] = {
      {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
      {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
      {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
      {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
      {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const uint32_t(&range)[2]) { return c >= range[0] && c <= range[1]; });
}

bool IsNumeric(uint32_t c) { return IsInCategories(c, UnicodeCategory::kNd, UnicodeCategory::kNo); }

bool IsLower(uint32_t c) {
  // Other_Lowercase: the modifier letters and enclosed letters in common use.
  return CategoryOf(c) == UnicodeCategory::kLl || c == 0xAA || c == 0xBA ||
         (c >= 0x2B0 && c <= 0x2B8) || (c >= 0x2E0 && c <= 0x2E4) || c == 0x345 || c == 0x37A ||
         (c >= 0x1D2C && c <= 0x1D6A) || (c >= 0x2170 && c <= 0x217F) ||
         (c >= 0x24D0 && c <= 0x24E9);
}

bool IsUpper(uint32_t c) {
  return CategoryOf(c) == UnicodeCategory::kLu || (c >= 0x2160 && c <= 0x216F) ||
         (c >= 0x24B6 && c <= 0x24CF) || (c >= 0x1F130 && c <= 0x1F149) ||
         (c >= 0x1F150 && c <= 0x1F169) || (c >= 0x1F170 && c <= 0x1F189);
}

bool IsTitle(uint32_t c) { return CategoryOf(c) == UnicodeCategory::kLt; }

bool IsPrintable(uint32_t c) {
  if (c == ' ') return true;
  switch (CategoryOf(c)) {
    case UnicodeCategory::kCn:
    case UnicodeCategory::kCc:
    case UnicodeCategory::kCf:
    case UnicodeCategory::kCs:
    case UnicodeCategory::kCo:
    case UnicodeCategory::kZs:
    case UnicodeCategory::kZl:
    case UnicodeCategory::kZp:
      return false;
    default:
      return true;
  }
}

bool IsIdentifierStart(uint32_t c) {
  return c == '_' || IsAlpha(c) || CategoryOf(c) == UnicodeCategory::kNl;
}

bool IsIdentifierPart(uint32_t c) {
  if (IsIdentifierStart(c) || IsDecimal(c)) return true;
  const UnicodeCategory category = CategoryOf(c);
  return category == UnicodeCategory::kMn || category == UnicodeCategory::kMc ||
         category == UnicodeCategory::kPc;
}

void AppendUpper(uint32_t c, std::string* out) {
  if (const SpecialUpperCase* special = FindSpecial(c)) return AppendMapping(special->upper, out);
  AppendUtf8(SimpleUpper(c), out);
}

void AppendTitle(uint32_t c, std::string* out) {
  if (const SpecialUpperCase* special = FindSpecial(c)) return AppendMapping(special->title, out);
  AppendUtf8(SimpleTitle(c), out);
}

void AppendLower(std::string_view text, size_t position, uint32_t c, std::string* out) {
  if (c == 0x130) {  // the only code point whose lower case is two
    AppendUtf8('i', out);
    AppendUtf8(0x307, out);
  } else if (c == 0x3A3 && IsFinalSigma(text, position)) {
    AppendUtf8(0x3C2, out);
  } else {
    AppendUtf8(SimpleLower(c), out);
  }
}

void AppendFolded(uint32_t c, std::string* out) {
  std::vector<char32_t> folded;
  AppendDecomposition(c, Decomposition::kCaseFold, &folded);
  for (const char32_t code : folded) AppendUtf8(code, out);
}

std::string_view TrimRight(std::string_view text) {
  size_t end = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint next = DecodeUtf8(text, at);
    at += next.size_bytes;
    if (!IsSpace(next.value)) end = at;
  }
  return text.substr(0, end);
}

}  // namespace kvasir::chat
