#include "kvasir/base/checksum.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvasir {
namespace {

uint64_t Of(const std::string& text) { return Checksum64(std::as_bytes(std::span(text))); }

// Values of the reference implementation (xxHash 0.8, seed 0): files depend on them.
TEST(ChecksumTest, IsXxh3) {
  EXPECT_EQ(Of(""), 0x2d06800538d394c2u);
  EXPECT_EQ(Of("abc"), 0x78af5f94892f3950u);
  EXPECT_EQ(Of(std::string(1000, 'k')), 0x308ce2f421066779u);
}

TEST(ChecksumTest, DigitsAreSixteen) {
  EXPECT_EQ(ChecksumDigits(0x2d06800538d394c2u), "2d06800538d394c2");
  EXPECT_EQ(ChecksumDigits(0xABCu), "0000000000000abc");
}

TEST(ChecksumTest, EveryBitCounts) {
  std::vector<std::byte> bytes(300, std::byte{0x5A});
  const uint64_t before = Checksum64(bytes);
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] ^= std::byte{0x10};
    EXPECT_NE(Checksum64(bytes), before) << "byte " << i;
    bytes[i] ^= std::byte{0x10};
  }
  EXPECT_EQ(Checksum64(bytes), before);
}

}  // namespace
}  // namespace kvasir
