#include "kvasir/unicode/unicode_data.h"

#include <utf8proc.h>

#include <array>

namespace kvasir {
namespace {

// A cast is enough: utf8proc has Unicode's order, too.
static_assert(static_cast<int>(UnicodeCategory::kCn) == UTF8PROC_CATEGORY_CN);
static_assert(static_cast<int>(UnicodeCategory::kLu) == UTF8PROC_CATEGORY_LU);
static_assert(static_cast<int>(UnicodeCategory::kLo) == UTF8PROC_CATEGORY_LO);
static_assert(static_cast<int>(UnicodeCategory::kMn) == UTF8PROC_CATEGORY_MN);
static_assert(static_cast<int>(UnicodeCategory::kMe) == UTF8PROC_CATEGORY_ME);
static_assert(static_cast<int>(UnicodeCategory::kNd) == UTF8PROC_CATEGORY_ND);
static_assert(static_cast<int>(UnicodeCategory::kNo) == UTF8PROC_CATEGORY_NO);
static_assert(static_cast<int>(UnicodeCategory::kPc) == UTF8PROC_CATEGORY_PC);
static_assert(static_cast<int>(UnicodeCategory::kPo) == UTF8PROC_CATEGORY_PO);
static_assert(static_cast<int>(UnicodeCategory::kSk) == UTF8PROC_CATEGORY_SK);
static_assert(static_cast<int>(UnicodeCategory::kZs) == UTF8PROC_CATEGORY_ZS);
static_assert(static_cast<int>(UnicodeCategory::kZp) == UTF8PROC_CATEGORY_ZP);
static_assert(static_cast<int>(UnicodeCategory::kCc) == UTF8PROC_CATEGORY_CC);
static_assert(static_cast<int>(UnicodeCategory::kCf) == UTF8PROC_CATEGORY_CF);
static_assert(static_cast<int>(UnicodeCategory::kCo) == UTF8PROC_CATEGORY_CO);

utf8proc_int32_t Signed(char32_t code) { return static_cast<utf8proc_int32_t>(code); }

int OptionsOf(Decomposition kind) {
  switch (kind) {
    case Decomposition::kCanonical:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    case Decomposition::kCompatibility:
      return UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT;
    case Decomposition::kCaseFold:
      return UTF8PROC_CASEFOLD;
  }
  return 0;
}

}  // namespace

UnicodeCategory CategoryOf(char32_t code) {
  return static_cast<UnicodeCategory>(utf8proc_category(Signed(code)));
}

char32_t SimpleUpper(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(Signed(code)));
}
char32_t SimpleTitle(char32_t code) {
  return static_cast<char32_t>(utf8proc_totitle(Signed(code)));
}
char32_t SimpleLower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(Signed(code)));
}

int CombiningClassOf(char32_t code) { return utf8proc_get_property(Signed(code))->combining_class; }

void AppendDecomposition(char32_t code, Decomposition kind, std::vector<char32_t>* out) {
  if (code < 0x80 && kind != Decomposition::kCaseFold) return out->push_back(code);  // it has none
  // Longer than any decomposition in Unicode (U+FDFA has 18 characters).
  std::array<utf8proc_int32_t, 32> parts;
  int boundary_class = UTF8PROC_BOUNDCLASS_START;
  const auto size = utf8proc_decompose_char(
      Signed(code), parts.data(), static_cast<utf8proc_ssize_t>(parts.size()),
      static_cast<utf8proc_option_t>(OptionsOf(kind)), &boundary_class);
  if (size < 0 || size > static_cast<utf8proc_ssize_t>(parts.size())) {
    out->push_back(code);
    return;
  }
  out->insert(out->end(), parts.begin(), parts.begin() + size);
}

void Compose(std::vector<char32_t>* codes) {
  std::vector<utf8proc_int32_t> composed(codes->begin(), codes->end());
  const auto size =
      utf8proc_normalize_utf32(composed.data(), static_cast<utf8proc_ssize_t>(composed.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  codes->assign(composed.begin(), composed.begin() + size);
}

}  // namespace kvasir
