#include "kvasir/base/bytes.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(BytesTest, RoundTripAndTruncation) {
  BytesWriter writer;
  writer.Write<uint64_t>(0x0102030405060708ull);
  writer.Write<float>(1.5f);
  writer.WriteText("xy");
  const std::string bytes = writer.Take();
  EXPECT_EQ(bytes[0], 8);
  BytesReader reader(std::as_bytes(std::span(bytes)));
  EXPECT_EQ(*reader.Read<uint64_t>("id"), 0x0102030405060708ull);
  EXPECT_EQ(*reader.Read<float>("scale"), 1.5f);
  const auto short_read = reader.Read<uint32_t>("count");
  ASSERT_FALSE(short_read.ok());
  EXPECT_EQ(short_read.error().message, "truncated: count needs 4 bytes, 2 are left");
  EXPECT_EQ(reader.ReadSpan(2, "tail")->size(), 2u);
  EXPECT_FALSE(reader.ReadSpan(~0ull, "tail").ok());
}

}  // namespace
}  // namespace kvasir
