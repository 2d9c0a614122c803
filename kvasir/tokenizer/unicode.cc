#include "kvasir/tokenizer/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <vector>

#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

utf8proc_category_t Category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

bool IsOneOf(utf8proc_category_t category, utf8proc_category_t first, utf8proc_category_t last) {
  return category >= first && category <= last;
}

// Circled and squared Latin letters: the part of Alphabetic that is neither letter, mark nor Nl.
bool IsAlphabeticSymbol(char32_t code) {
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

// Halfwidth and compatibility jamo and sound marks decompose into characters that combine.
bool IsCompatibilityCombining(char32_t code) {
  return (code >= 0x3131 && code <= 0x318E) || (code >= 0xFF9E && code <= 0xFFDC);
}

utf8proc_option_t Options(NormalizationForm form) {
  const bool compatibility = form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  const bool compose = form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  int options = UTF8PROC_STABLE;
  if (compatibility) options |= UTF8PROC_COMPAT;
  options |= compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  return static_cast<utf8proc_option_t>(options);
}

// Appends the full decomposition of one character.
void Decompose(char32_t code, utf8proc_option_t options, std::vector<utf8proc_int32_t>* out) {
  // Longer than any decomposition in Unicode (U+FDFA has 18 characters).
  std::array<utf8proc_int32_t, 32> parts;
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  const auto size = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                            static_cast<utf8proc_ssize_t>(parts.size()), options,
                                            &boundary_class);
  if (size < 0 || size > static_cast<utf8proc_ssize_t>(parts.size())) {
    out->push_back(static_cast<utf8proc_int32_t>(code));
    return;
  }
  out->insert(out->end(), parts.begin(), parts.begin() + size);
}

int CombiningClass(utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Canonical ordering. utf8proc's own is quadratic in a run of marks, which a request may hold.
void SortMarks(std::vector<utf8proc_int32_t>* codes) {
  const auto is_mark = [](utf8proc_int32_t code) { return CombiningClass(code) != 0; };
  for (auto begin = codes->begin(); begin != codes->end();) {
    begin = std::find_if(begin, codes->end(), is_mark);
    const auto end = std::find_if_not(begin, codes->end(), is_mark);
    std::stable_sort(begin, end, [](utf8proc_int32_t a, utf8proc_int32_t b) {
      return CombiningClass(a) < CombiningClass(b);
    });
    begin = end;
  }
}

}  // namespace

bool IsWhitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || IsOneOf(Category(code), UTF8PROC_CATEGORY_ZS, UTF8PROC_CATEGORY_ZP);
}

bool IsNumeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return IsOneOf(Category(code), UTF8PROC_CATEGORY_ND, UTF8PROC_CATEGORY_NO);
}

bool IsPunctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  return IsOneOf(Category(code), UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO);
}

bool IsWordCharacter(char32_t code) {
  const utf8proc_category_t category = Category(code);
  return IsOneOf(category, UTF8PROC_CATEGORY_LU, UTF8PROC_CATEGORY_NL) ||
         category == UTF8PROC_CATEGORY_PC || code == 0x200C || code == 0x200D ||
         IsAlphabeticSymbol(code);
}

bool IsMark(char32_t code) {
  return IsOneOf(Category(code), UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME);
}

bool IsNonspacingMark(char32_t code) { return Category(code) == UTF8PROC_CATEGORY_MN; }

bool IsControl(char32_t code) {
  return IsOneOf(Category(code), UTF8PROC_CATEGORY_CC, UTF8PROC_CATEGORY_CO);
}

void AppendLowercase(char32_t code, std::string* text) {
  // U+0130 is the only character whose unconditional lower case has two characters.
  if (code == 0x130) {
    *text += "i\xCC\x87";
    return;
  }
  AppendUtf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), text);
}

bool IsNormalizationBoundary(char32_t code, NormalizationForm form) {
  if (code < 0x300) return true;
  // Every character that composes with an earlier one is a mark, or a vowel or final jamo.
  if (IsMark(code) || (code >= 0x1160 && code <= 0x11FF)) return false;
  const bool compatibility = form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  return !compatibility || !IsCompatibilityCombining(code);
}

std::string Normalize(std::string_view text, NormalizationForm form) {
  const utf8proc_option_t options = Options(form);
  const auto decompose_only =
      static_cast<utf8proc_option_t>((options & ~UTF8PROC_COMPOSE) | UTF8PROC_DECOMPOSE);
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Char character = DecodeUtf8(text, position);
    Decompose(character.code, decompose_only, &codes);
    position += character.size_bytes;
  }
  SortMarks(&codes);
  utf8proc_ssize_t size = static_cast<utf8proc_ssize_t>(codes.size());
  if ((options & UTF8PROC_COMPOSE) != 0) {
    size = utf8proc_normalize_utf32(codes.data(), size, options);
  }
  std::string normalized;
  normalized.reserve(text.size());
  for (utf8proc_ssize_t i = 0; i < size; ++i) {
    AppendUtf8(static_cast<char32_t>(codes[static_cast<size_t>(i)]), &normalized);
  }
  return normalized;
}

}  // namespace kvasir
