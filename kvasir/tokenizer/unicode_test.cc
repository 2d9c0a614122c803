#include "kvasir/tokenizer/unicode.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/tokenizer/byte_alphabet.h"
#include "kvasir/tokenizer/utf8.h"

namespace kvasir {
namespace {

TEST(Utf8Test, EveryScalarValueRoundTrips) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    if (code >= 0xD800 && code <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(code, &text);
    ASSERT_TRUE(IsValidUtf8(text)) << static_cast<uint32_t>(code);
    const Utf8Char decoded = DecodeUtf8(text, 0);
    ASSERT_TRUE(decoded.code == code);
    ASSERT_EQ(decoded.size_bytes, text.size());
    ASSERT_EQ(PreviousUtf8("x" + text, text.size() + 1), 1u);
  }
}

TEST(Utf8Test, InvalidBytesBecomeOneReplacementPerMaximalSubpart) {
  const std::string r(kReplacementCharacter);
  EXPECT_EQ(ToValidUtf8("a\xFFz"), "a" + r + "z");
  EXPECT_EQ(ToValidUtf8("\xE2\x82z"), r + "z");               // cut off before its end
  EXPECT_EQ(ToValidUtf8("\xE2\x82"), r);                      // at the end of the text
  EXPECT_EQ(ToValidUtf8("\xC0\x80"), r + r);                  // overlong
  EXPECT_EQ(ToValidUtf8("\xED\xA0\x80"), r + r + r);          // surrogate
  EXPECT_EQ(ToValidUtf8("\xF4\x90\x80\x80"), r + r + r + r);  // above U+10FFFF
  EXPECT_EQ(ToValidUtf8("\xF0\x9F\x99\xF0\x9F\x99\x82"), r + "\xF0\x9F\x99\x82");
  EXPECT_EQ(ToValidUtf8(""), "");
}

TEST(UnicodeTest, ClassesOfCharacters) {
  EXPECT_TRUE(IsWhitespace(0x3000));
  EXPECT_TRUE(IsWhitespace(0x85));
  EXPECT_FALSE(IsWhitespace(0x180E));
  EXPECT_FALSE(IsWhitespace(0x200B));
  EXPECT_FALSE(IsWhitespace(0x1F));
  EXPECT_TRUE(IsNumeric(0xBD));    // one half
  EXPECT_TRUE(IsNumeric(0x2167));  // Roman eight
  EXPECT_FALSE(IsNumeric('x'));
  EXPECT_TRUE(IsPunctuation('$'));
  EXPECT_TRUE(IsPunctuation(0x3002));
  EXPECT_FALSE(IsPunctuation(0x20AC));  // the euro sign is a symbol
  EXPECT_TRUE(IsWordCharacter('_'));
  EXPECT_TRUE(IsWordCharacter(0x301));
  EXPECT_TRUE(IsWordCharacter(0x24B6));
  EXPECT_FALSE(IsWordCharacter('-'));
}

TEST(UnicodeTest, Lowercases) {
  std::string text;
  AppendLowercase(0x130, &text);  // the only one that becomes two characters
  AppendLowercase(0x3A3, &text);  // never the final form
  AppendLowercase('Q', &text);
  EXPECT_EQ(text, "i\xCC\x87\xCF\x83q");
}

TEST(UnicodeTest, Normalizes) {
  EXPECT_EQ(Normalize("e\xCC\x81", NormalizationForm::kNfc), "\xC3\xA9");
  EXPECT_EQ(Normalize("\xC3\xA9", NormalizationForm::kNfd), "e\xCC\x81");
  EXPECT_EQ(Normalize("\xEF\xAC\x81", NormalizationForm::kNfkc), "fi");
  EXPECT_EQ(Normalize("\xEF\xAC\x81", NormalizationForm::kNfc), "\xEF\xAC\x81");
  // Marks come into canonical order: below (220) before above (230).
  EXPECT_EQ(Normalize("a\xCC\x81\xCC\x96", NormalizationForm::kNfd), "a\xCC\x96\xCC\x81");
  // Hangul syllables compose from jamo.
  EXPECT_EQ(Normalize("\xE1\x84\x92\xE1\x85\xA1\xE1\x86\xAB", NormalizationForm::kNfc),
            "\xED\x95\x9C");
}

// Normalising part by part, cut at boundaries, must give what the whole gives, for every character
// in front of and behind a few that combine.
TEST(UnicodeTest, BoundariesAreSafe) {
  const std::vector<char32_t> neighbours = {'a',    0xE9,  0x301,  0x316,  0x1100, 0x1161,
                                            0xAC00, 0x9C7, 0x3099, 0x304B, 0xFF9E};
  for (const NormalizationForm form : {NormalizationForm::kNfc, NormalizationForm::kNfd,
                                       NormalizationForm::kNfkc, NormalizationForm::kNfkd}) {
    for (char32_t code = 0; code < 0x30000; ++code) {
      if ((code >= 0xD800 && code <= 0xDFFF) || !IsNormalizationBoundary(code, form)) continue;
      std::string right;
      AppendUtf8(code, &right);
      for (const char32_t neighbour : neighbours) {
        std::string left;
        AppendUtf8(neighbour, &left);
        ASSERT_EQ(Normalize(left + right, form), Normalize(left, form) + Normalize(right, form))
            << std::hex << static_cast<uint32_t>(neighbour) << " " << static_cast<uint32_t>(code);
      }
    }
  }
}

TEST(ByteAlphabetTest, IsTheTableOfGpt2) {
  EXPECT_TRUE(CharacterOfByte(' ') == 0x120u);
  EXPECT_TRUE(CharacterOfByte('\n') == 0x10Au);
  EXPECT_TRUE(CharacterOfByte(0xAD) == 0x143u);
  EXPECT_TRUE(CharacterOfByte('a') == U'a');
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(ByteOfCharacter(CharacterOfByte(static_cast<uint8_t>(byte))), byte);
  }
  EXPECT_FALSE(ByteOfCharacter(' ').has_value());
  EXPECT_FALSE(ByteOfCharacter(0x144).has_value());
}

TEST(ByteAlphabetTest, TextOutsideTheAlphabetSpellsItself) {
  EXPECT_EQ(BytesOfCharacters("\xC4\xA0"
                              "a"),
            " a");
  EXPECT_EQ(BytesOfCharacters("\xC4\xA0 "), "\xC4\xA0 ");
}

}  // namespace
}  // namespace kvasir
