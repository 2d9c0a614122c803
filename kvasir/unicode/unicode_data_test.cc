#include "kvasir/unicode/unicode_data.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvasir {
namespace {

using Codes = std::vector<char32_t>;

Codes Decomposed(char32_t code, Decomposition kind) {
  Codes out = {U'<'};
  AppendDecomposition(code, kind, &out);
  EXPECT_EQ(out[0], U'<');
  out.erase(out.begin());
  return out;
}

TEST(UnicodeData, Categories) {
  EXPECT_EQ(CategoryOf(U'A'), UnicodeCategory::kLu);
  EXPECT_EQ(CategoryOf(U'\u01C5'), UnicodeCategory::kLt);
  EXPECT_EQ(CategoryOf(U'\u0301'), UnicodeCategory::kMn);
  EXPECT_EQ(CategoryOf(U'5'), UnicodeCategory::kNd);
  EXPECT_EQ(CategoryOf(U'_'), UnicodeCategory::kPc);
  EXPECT_EQ(CategoryOf(U'+'), UnicodeCategory::kSm);
  EXPECT_EQ(CategoryOf(U'\u2028'), UnicodeCategory::kZl);
  EXPECT_EQ(CategoryOf(0x7), UnicodeCategory::kCc);
  EXPECT_EQ(CategoryOf(0xD800), UnicodeCategory::kCs);
  EXPECT_EQ(CategoryOf(0x110000), UnicodeCategory::kCn);
  EXPECT_TRUE(IsInCategories(U'\u00BD', UnicodeCategory::kNd, UnicodeCategory::kNo));
  EXPECT_FALSE(IsInCategories(U'x', UnicodeCategory::kNd, UnicodeCategory::kNo));
}

TEST(UnicodeData, Mappings) {
  EXPECT_EQ(SimpleUpper(U'\u00E4'), U'\u00C4');
  EXPECT_EQ(SimpleLower(U'\u00C4'), U'\u00E4');
  EXPECT_EQ(SimpleTitle(U'\u01C4'), U'\u01C5');
  EXPECT_EQ(SimpleUpper(U'5'), U'5');
  EXPECT_EQ(CombiningClassOf(U'\u0301'), 230);
  EXPECT_EQ(CombiningClassOf(U'a'), 0);
}

TEST(UnicodeData, DecompositionsAndBack) {
  EXPECT_EQ(Decomposed(U'\u1EA5', Decomposition::kCanonical), (Codes{U'a', 0x302, 0x301}));
  EXPECT_EQ(Decomposed(U'A', Decomposition::kCompatibility), (Codes{U'A'}));
  EXPECT_EQ(Decomposed(U'A', Decomposition::kCaseFold), (Codes{U'a'}));
  EXPECT_EQ(Decomposed(U'\uFB01', Decomposition::kCanonical), (Codes{U'\uFB01'}));
  EXPECT_EQ(Decomposed(U'\uFB01', Decomposition::kCompatibility), (Codes{U'f', U'i'}));
  EXPECT_EQ(Decomposed(U'\uFDFA', Decomposition::kCompatibility).size(), 18u);
  EXPECT_EQ(Decomposed(U'\u00DF', Decomposition::kCaseFold), (Codes{U's', U's'}));
  Codes codes = {U'a', 0x302, 0x301, U'b', 0x1112, 0x1161, 0x11AB};
  Compose(&codes);
  EXPECT_EQ(codes, (Codes{U'\u1EA5', U'b', U'\uD55C'}));
  Codes excluded = {0x915, 0x93C};  // U+0958 is a composition exclusion
  Compose(&excluded);
  EXPECT_EQ(excluded, (Codes{0x915, 0x93C}));
  Codes none;
  Compose(&none);
  EXPECT_TRUE(none.empty());
}

}  // namespace
}  // namespace kvasir
