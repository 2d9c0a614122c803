// Unicode properties and normalisation forms, as tokenizers need them.
// Deliberately not a Unicode library: the tables are those of kvasir/unicode.
#ifndef KVASIR_TOKENIZER_UNICODE_H_
#define KVASIR_TOKENIZER_UNICODE_H_

#include <string>
#include <string_view>

namespace kvasir {

// The property White_Space.
bool IsWhitespace(char32_t code);
// General categories Nd, Nl, No.
bool IsNumeric(char32_t code);
// General categories P*, and the ASCII symbols ($ + < = > ^ ` | ~).
bool IsPunctuation(char32_t code);
// \w of Unicode regular expressions (UTS 18, annex C): letters, marks, digits, connectors, joiners.
bool IsWordCharacter(char32_t code);
// General categories M*.
bool IsMark(char32_t code);
// General category Mn.
bool IsNonspacingMark(char32_t code);
// General categories Cc, Cf, Co: control, format, private use.
bool IsControl(char32_t code);

// The full lower-case mapping without context (no final sigma). Valid UTF-8 in and out.
void AppendLowercase(char32_t code, std::string* text);

enum class NormalizationForm { kNfc, kNfd, kNfkc, kNfkd };

// True if no character before `code` can combine or reorder with it under `form`, so that text may
// be normalised in parts cut in front of it.
bool IsNormalizationBoundary(char32_t code, NormalizationForm form);

// UAX 15. Linear up to the sorting of combining marks, which is n log n even for hostile text.
// REQUIRES: valid UTF-8.
std::string Normalize(std::string_view text, NormalizationForm form);

}  // namespace kvasir

#endif  // KVASIR_TOKENIZER_UNICODE_H_
