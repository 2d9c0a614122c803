#include "kvasir/tokenizer/regex.h"

#include <gtest/gtest.h>

#include <string>
#include <string_view>
#include <vector>

#include "kvasir/tokenizer/regex_syntax.h"

namespace kvasir {
namespace {

std::vector<std::string> Matches(std::string_view pattern, std::string_view text) {
  Result<Regex> regex = Regex::Compile(pattern);
  EXPECT_TRUE(regex.ok()) << (regex.ok() ? "" : regex.error().message);
  if (!regex.ok()) return {};
  std::vector<TextSpan> spans;
  Regex::Scanner(*regex).FindAll(text, &spans);
  std::vector<std::string> matches;
  for (const TextSpan& span : spans) {
    matches.emplace_back(text.substr(span.begin, span.end - span.begin));
  }
  return matches;
}

using Strings = std::vector<std::string>;

TEST(RegexTest, SpaceIsWhiteSpaceOfUnicode) {
  // U+0085, U+00A0 and U+3000 are white space, U+180E has not been since Unicode 6.3.
  EXPECT_EQ(Matches("\\s", "\xC2\x85\xC2\xA0\xE3\x80\x80\xE1\xA0\x8E"),
            (Strings{"\xC2\x85", "\xC2\xA0", "\xE3\x80\x80"}));
  EXPECT_EQ(Matches("[^\\sa]+", "a \xE1\xA0\x8E\t"), (Strings{"\xE1\xA0\x8E"}));
  EXPECT_EQ(Matches("\\S+", "ab \xE1\xA0\x8E"), (Strings{"ab", "\xE1\xA0\x8E"}));
  EXPECT_EQ(Matches("[\\Sx]+", "ab cd"), (Strings{"ab", "cd"}));
}

TEST(RegexTest, WordHasMarksAndHexDigitIsH) {
  EXPECT_EQ(Matches("\\w+", "e\xCC\x81_1-x"), (Strings{"e\xCC\x81_1", "x"}));
  EXPECT_EQ(Matches("\\W", "a-b"), (Strings{"-"}));
  EXPECT_EQ(Matches("\\h+", "09afAFgh"), (Strings{"09afAF"}));
  EXPECT_EQ(Matches("[\\hz]+", "xz0"), (Strings{"z0"}));
}

TEST(RegexTest, ClassesNestAndIntersect) {
  EXPECT_EQ(Matches("[a[bc]d]+", "abcde"), (Strings{"abcd"}));
  EXPECT_EQ(Matches("[a-z&&[^aeiou]]+", "hello"), (Strings{"h", "ll"}));
  EXPECT_EQ(Matches("[^a-z&&[^aeiou]]+", "hello"), (Strings{"e", "o"}));
  EXPECT_EQ(Matches("[\\p{L}&&[^\\p{Han}]]+", "ab\xE6\xBC\xA2"), (Strings{"ab"}));
  EXPECT_EQ(Matches("[]a]+", "]a["), (Strings{"]a"}));
  EXPECT_EQ(Matches("[[:digit:]x]+", "12x"), (Strings{"12x"}));
}

TEST(RegexTest, RepetitionsAreRuby) {
  EXPECT_EQ(Matches("a{,2}b", "aaab"), (Strings{"aab"}));
  // In Ruby x{1,2}+ repeats the repetition; as a possessive it would not match here.
  EXPECT_EQ(Matches("^(?:ab){1,2}+abc", "abababc"), (Strings{"abababc"}));
  EXPECT_EQ(Matches("a{", "a{"), (Strings{"a{"}));
  EXPECT_EQ(Matches("\\p{N}{1,3}", "12345"), (Strings{"123", "45"}));
  EXPECT_EQ(Matches("\\p{L}++a|.", "ba"), (Strings{"b", "a"}));
}

TEST(RegexTest, OptionsAreRuby) {
  EXPECT_EQ(Matches("a.b", "a\nb"), Strings());
  EXPECT_EQ(Matches("(?m:a.b)", "a\nb"), (Strings{"a\nb"}));
  EXPECT_EQ(Matches("^b", "a\nb"), (Strings{"b"}));
  // U+017F folds to s, as in Oniguruma.
  EXPECT_EQ(Matches("(?i:'s)", "'S'\xC5\xBF"), (Strings{"'S", "'\xC5\xBF"}));
  EXPECT_EQ(Matches("a(?#comment)b", "ab"), (Strings{"ab"}));
}

TEST(RegexTest, PosixPropertiesAreKnown) {
  EXPECT_EQ(Matches("\\p{Alnum}+", "a1-b"), (Strings{"a1", "b"}));
  EXPECT_EQ(Matches("\\P{Alpha}+", "a12b"), (Strings{"12"}));
  EXPECT_EQ(Matches("\\p{^Digit}+", "a12b"), (Strings{"a", "b"}));
  EXPECT_EQ(Matches("[\\p{Upper}x]+", "aABx"), (Strings{"ABx"}));
}

// Where Oniguruma has its own idea of a class; each case was seen in the reference.
TEST(RegexTest, PeculiaritiesOfOniguruma) {
  EXPECT_EQ(Matches("\\w+", "a\xC2\xBD"), (Strings{"a\xC2\xBD"}));  // one half is a word to \w
  EXPECT_EQ(Matches("[\\w]+", "a\xC2\xBD"), (Strings{"a"}));        // but not inside a class
  EXPECT_EQ(Matches("[[:punct:]]+", "\xE2\x82\xAC!"), (Strings{"\xE2\x82\xAC!"}));
  EXPECT_EQ(Matches("\\p{Punct}+", "\xE2\x82\xAC!"), (Strings{"!"}));
  // Scripts do not include what several scripts share: U+3001 is no Han.
  EXPECT_EQ(Matches("\\p{Han}+", "\xE6\xBC\xA2\xE3\x80\x81"), (Strings{"\xE6\xBC\xA2"}));
  // A mark belongs to a word, so there is no boundary in front of it.
  EXPECT_EQ(Matches("e\\b.", "e\xCC\x81"), Strings());
  EXPECT_EQ(Matches("\\p{Letter}\\v?", "a\n"), (Strings{"a"}));
  EXPECT_EQ(Matches("[\\u0061-c]+", "abcd"), (Strings{"abc"}));
}

TEST(RegexTest, EmptyMatchesDoNotFollowAMatch) {
  Result<Regex> regex = Regex::Compile("a*");
  ASSERT_TRUE(regex.ok());
  std::vector<TextSpan> spans;
  Regex::Scanner(*regex).FindAll("aab\xC3\xA9", &spans);
  // As Oniguruma's iterator: [0,2), then the empty matches before é and at the end.
  EXPECT_EQ(spans, (std::vector<TextSpan>{{0, 2}, {3, 3}, {5, 5}}));
}

TEST(RegexTest, ErrorsQuoteThePattern) {
  for (const char* bad : {"a(", "[a", "*a", "(?<n>a", "\\p{Nonsense}", "(?R)", "(*ACCEPT)", "\\K",
                          "[\\W]", "(?<=a*)b", "[a[^b]]"}) {
    const Result<Regex> regex = Regex::Compile(bad);
    ASSERT_FALSE(regex.ok()) << bad;
    EXPECT_NE(regex.error().message.find(bad), std::string::npos) << regex.error().message;
  }
  EXPECT_FALSE(Regex::Compile(std::string(100'000, 'a')).ok());
  EXPECT_FALSE(Regex::Compile("((((a{1000}){1000}){1000}){1000})").ok());
}

TEST(RegexTest, HostilePatternsEnd) {
  // Exponential without a limit on steps; the test ends because the limit does.
  Matches("(a|aa)+$", std::string(2000, 'a') + "b");
  Matches("(\\w+\\s?)*!", std::string(2000, 'a'));
  Matches("(a*)*b", std::string(2000, 'a'));
}

TEST(RegexTest, LongRunsAreFoundWhole) {
  // The limit on steps must leave room for an honest walk back through a long run.
  const std::string blanks(1'000'000, ' ');
  EXPECT_EQ(Matches("\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+", blanks).size(), 1u);
  EXPECT_EQ(Matches("\\p{Lu}*\\p{Ll}+|\\p{Lu}+", std::string(1'000'000, 'A')).size(), 1u);
}

}  // namespace
}  // namespace kvasir
