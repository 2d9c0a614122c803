#include "kvasir/tokenizer/unicode.h"

#include <algorithm>
#include <vector>

#include "kvasir/tokenizer/utf8.h"
#include "kvasir/unicode/unicode_data.h"

namespace kvasir {
namespace {

// Circled and squared Latin letters: the part of Alphabetic that is neither letter, mark nor Nl.
bool IsAlphabeticSymbol(char32_t code) {
  return (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
         (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
}

// Halfwidth and compatibility jamo and sound marks decompose into characters that combine.
bool IsCompatibilityCombining(char32_t code) {
  return (code >= 0x3131 && code <= 0x318E) || (code >= 0xFF9E && code <= 0xFFDC);
}

bool IsCompatibility(NormalizationForm form) {
  return form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
}

// Canonical ordering. utf8proc's own is quadratic in a run of marks, which a request may hold.
void SortMarks(std::vector<char32_t>* codes) {
  const auto is_mark = [](char32_t code) { return CombiningClassOf(code) != 0; };
  for (auto begin = codes->begin(); begin != codes->end();) {
    begin = std::find_if(begin, codes->end(), is_mark);
    const auto end = std::find_if_not(begin, codes->end(), is_mark);
    std::stable_sort(begin, end, [](char32_t a, char32_t b) {
      return CombiningClassOf(a) < CombiningClassOf(b);
    });
    begin = end;
  }
}

}  // namespace

bool IsWhitespace(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || IsInCategories(code, UnicodeCategory::kZs, UnicodeCategory::kZp);
}

bool IsNumeric(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  return IsInCategories(code, UnicodeCategory::kNd, UnicodeCategory::kNo);
}

bool IsPunctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') ||
           (code >= '[' && code <= '`') || (code >= '{' && code <= '~');
  }
  return IsInCategories(code, UnicodeCategory::kPc, UnicodeCategory::kPo);
}

bool IsWordCharacter(char32_t code) {
  return IsInCategories(code, UnicodeCategory::kLu, UnicodeCategory::kNl) ||
         CategoryOf(code) == UnicodeCategory::kPc || code == 0x200C || code == 0x200D ||
         IsAlphabeticSymbol(code);
}

bool IsMark(char32_t code) {
  return IsInCategories(code, UnicodeCategory::kMn, UnicodeCategory::kMe);
}

bool IsNonspacingMark(char32_t code) { return CategoryOf(code) == UnicodeCategory::kMn; }

bool IsControl(char32_t code) {
  return IsInCategories(code, UnicodeCategory::kCc, UnicodeCategory::kCo);
}

void AppendLowercase(char32_t code, std::string* text) {
  // U+0130 is the only character whose unconditional lower case has two characters.
  if (code == 0x130) {
    *text += "i\xCC\x87";
    return;
  }
  AppendUtf8(SimpleLower(code), text);
}

bool IsNormalizationBoundary(char32_t code, NormalizationForm form) {
  if (code < 0x300) return true;
  // Every character that composes with an earlier one is a mark, or a vowel or final jamo.
  if (IsMark(code) || (code >= 0x1160 && code <= 0x11FF)) return false;
  return !IsCompatibility(form) || !IsCompatibilityCombining(code);
}

std::string Normalize(std::string_view text, NormalizationForm form) {
  const Decomposition kind =
      IsCompatibility(form) ? Decomposition::kCompatibility : Decomposition::kCanonical;
  std::vector<char32_t> codes;
  codes.reserve(text.size());
  for (size_t position = 0; position < text.size();) {
    const Utf8Char character = DecodeUtf8(text, position);
    AppendDecomposition(character.code, kind, &codes);
    position += character.size_bytes;
  }
  SortMarks(&codes);
  if (form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc) Compose(&codes);
  std::string normalized;
  normalized.reserve(text.size());
  for (const char32_t code : codes) AppendUtf8(code, &normalized);
  return normalized;
}

}  // namespace kvasir
