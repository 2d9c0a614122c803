#include "kvasir/base/base64.h"

#include <gtest/gtest.h>

#include <string_view>

namespace kvasir {
namespace {

std::string Of(std::string_view text) { return Base64(std::as_bytes(std::span(text))); }

// RFC 4648, section 10.
TEST(Base64, TestVectorsOfTheRfc) {
  EXPECT_EQ(Of(""), "");
  EXPECT_EQ(Of("f"), "Zg==");
  EXPECT_EQ(Of("fo"), "Zm8=");
  EXPECT_EQ(Of("foo"), "Zm9v");
  EXPECT_EQ(Of("foob"), "Zm9vYg==");
  EXPECT_EQ(Of("fooba"), "Zm9vYmE=");
  EXPECT_EQ(Of("foobar"), "Zm9vYmFy");
  EXPECT_EQ(Of("\xfb\xff\xfe"), "+//+");
}

}  // namespace
}  // namespace kvasir
