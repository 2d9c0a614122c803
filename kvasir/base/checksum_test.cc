#include "kvasir/base/checksum.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/text_hash.h"

namespace kvasir {
namespace {

uint64_t Of(const std::string& text) { return Checksum64(std::as_bytes(std::span(text))); }

// Values of the reference implementation (xxHash 0.8, seed 0): files depend on them.
TEST(ChecksumTest, IsXxh3) {
  EXPECT_EQ(Of(""), 0x2d06800538d394c2u);
  EXPECT_EQ(Of("abc"), 0x78af5f94892f3950u);
  EXPECT_EQ(Of(std::string(1000, 'k')), 0x308ce2f421066779u);
}

// Keys that libstdc++'s own hash, which everybody knows, puts into one place (16 bytes whose second
// half undoes what the first does).
TEST(TextHashTest, NobodyKnowsItInAdvance) {
  constexpr uint64_t kFactor = 0xc6a4a7935bd1e995u;
  const auto fold = [](uint64_t value) { return value ^ (value >> 47); };
  uint64_t inverse = kFactor;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kFactor * inverse;
  std::set<size_t> known, own;
  constexpr uint64_t kKeys = 200;
  for (uint64_t i = 0; i < kKeys; ++i) {
    const uint64_t first = i * 0x0101010101010101u;
    const uint64_t begin = 0xc70f6907u ^ (16 * kFactor);
    const uint64_t mixed = (begin ^ (fold(first * kFactor) * kFactor)) * kFactor;
    const uint64_t second = fold((mixed ^ 0x1234567) * inverse) * inverse;
    std::string key(16, '\0');
    std::memcpy(key.data(), &first, sizeof(first));
    std::memcpy(key.data() + sizeof(first), &second, sizeof(second));
    known.insert(std::hash<std::string>()(key));
    own.insert(TextHash()(key));
    EXPECT_EQ(TextHash()(key), TextHash()(std::string_view(key)));
  }
#ifdef __GLIBCXX__
  EXPECT_EQ(known.size(), 1u);
#endif
  EXPECT_EQ(own.size(), kKeys);
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
