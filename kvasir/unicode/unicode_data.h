// Unicode's tables by way of utf8proc: categories, mappings and decompositions of code points.
// Deliberately no opinions: what a space or a letter is depends on who asks, so templates (Python)
// and tokenizers each say it for themselves.
#ifndef KVASIR_UNICODE_UNICODE_DATA_H_
#define KVASIR_UNICODE_UNICODE_DATA_H_

#include <cstdint>
#include <vector>

namespace kvasir {

// General_Category, in Unicode's order: letters, marks, numbers and so on lie together.
enum class UnicodeCategory : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMc,
  kMe,
  kNd,
  kNl,
  kNo,
  kPc,
  kPd,
  kPs,
  kPe,
  kPi,
  kPf,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCs,
  kCo,
};

// kCn for what is no code point, too.
UnicodeCategory CategoryOf(char32_t code);
// Whether the category lies from `first` to `last`, both included.
inline bool IsInCategories(char32_t code, UnicodeCategory first, UnicodeCategory last) {
  const UnicodeCategory category = CategoryOf(code);
  return category >= first && category <= last;
}

// The mappings to one code point; the code itself where there is none.
char32_t SimpleUpper(char32_t code);
char32_t SimpleTitle(char32_t code);
char32_t SimpleLower(char32_t code);

// Canonical_Combining_Class.
int CombiningClassOf(char32_t code);

enum class Decomposition { kCanonical, kCompatibility, kCaseFold };
// Appends the full decomposition of one code point, or its full case folding.
void AppendDecomposition(char32_t code, Decomposition kind, std::vector<char32_t>* out);

// UAX 15's canonical composition. REQUIRES: decomposed, marks in canonical order.
void Compose(std::vector<char32_t>* codes);

}  // namespace kvasir

#endif  // KVASIR_UNICODE_UNICODE_DATA_H_
