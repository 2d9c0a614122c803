// Tests of character sets and their UTF-8 ranges against every character there is.
#include "kvasir/grammar/char_set.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvasir/grammar/plain_text.h"
#include "kvasir/grammar/utf8_ranges.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

int SequencesThatMatch(const std::vector<std::vector<ByteRange>>& sequences,
                       const std::string& bytes) {
  int count = 0;
  for (const auto& sequence : sequences) {
    bool matches = sequence.size() == bytes.size();
    for (size_t i = 0; matches && i < bytes.size(); ++i) {
      const auto byte = static_cast<uint8_t>(bytes[i]);
      matches = sequence[i].low <= byte && byte <= sequence[i].high;
    }
    count += matches ? 1 : 0;
  }
  return count;
}

TEST(CharSet, MergesRangesAndLeavesOutSurrogates) {
  const CharSet set({{'c', 'f'}, {'a', 'b'}, {'x', 'z'}, {0xD7FF, 0xE000}, {0x10FFFE, 0x200000}});
  ASSERT_EQ(set.ranges().size(), 5u);
  EXPECT_EQ(set.ranges()[0].low, U'a');
  EXPECT_EQ(set.ranges()[0].high, U'f');
  EXPECT_EQ(set.ranges()[2].high, 0xD7FFu);
  EXPECT_EQ(set.ranges()[3].low, 0xE000u);
  EXPECT_EQ(set.ranges()[4].high, 0x10FFFFu);
}

TEST(CharSet, OperationsAgreeWithMembership) {
  const CharSet a({{'0', '9'}, {'a', 'm'}, {0x300, 0x20000}});
  const CharSet b({{'5', 'c'}, {0x400, 0x500}, {0x10000, 0x10FFFF}});
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    const bool in_a = a.Contains(code);
    const bool in_b = b.Contains(code);
    ASSERT_EQ(a.Complement().Contains(code), !in_a) << static_cast<uint32_t>(code);
    if (code % 7 != 0) continue;
    ASSERT_EQ(a.Union(b).Contains(code), in_a || in_b) << static_cast<uint32_t>(code);
    ASSERT_EQ(a.Minus(b).Contains(code), in_a && !in_b) << static_cast<uint32_t>(code);
    ASSERT_EQ(a.Intersect(b).Contains(code), in_a && in_b) << static_cast<uint32_t>(code);
  }
}

TEST(Utf8Ranges, MatchEachCharacterOfTheSetOnceAndNoOther) {
  for (const CharSet& set :
       {CharSet::All(), CharSet({{0x7E, 0x81}, {0x7FE, 0x803}, {0xFFF0, 0x10010}}),
        CharSet({{0x12345, 0x23456}}), CharSet({{0x85, 0xABCD}}), CharSet()}) {
    const auto sequences = Utf8Ranges(set);
    for (char32_t code = 0; code <= 0x10FFFF; ++code) {
      if (code >= 0xD800 && code <= 0xDFFF) continue;
      std::string bytes;
      AppendUtf8(code, &bytes);
      ASSERT_EQ(SequencesThatMatch(sequences, bytes), set.Contains(code) ? 1 : 0)
          << static_cast<uint32_t>(code);
    }
  }
}

TEST(PlainText, IsEveryCharacterButQuotesBackslashesAndControls) {
  for (char32_t code = 0; code <= 0x10FFFF; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string bytes;
    AppendUtf8(code, &bytes);
    const bool plain = code >= 0x20 && code != '"' && code != '\\';
    ASSERT_EQ(PlainCharacters(bytes).value_or(0), plain ? 1 : 0) << static_cast<uint32_t>(code);
    if (bytes.size() == 1) continue;
    ASSERT_FALSE(PlainCharacters(bytes.substr(1)).has_value()) << static_cast<uint32_t>(code);
  }
  EXPECT_EQ(PlainCharacters("a\xC3\xA4z"), 3);
  EXPECT_FALSE(PlainCharacters("\xED\xA0\x80").has_value());  // a surrogate
  EXPECT_FALSE(PlainCharacters("a\xC3").has_value());
}

}  // namespace
}  // namespace kvasir
