#include "kvasir/tensor/dtype.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace kvasir {
namespace {

TEST(DTypeTest, EveryHalfRoundTrips) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const uint16_t half = static_cast<uint16_t>(bits);
    const float value = F16ToFloat(half);
    if (std::isnan(value)) {
      EXPECT_TRUE(std::isnan(F16ToFloat(FloatToF16(value))));
    } else {
      ASSERT_EQ(FloatToF16(value), half);
    }
  }
}

TEST(DTypeTest, HalvesRoundToNearestEven) {
  // Between every two neighbouring finite halves: just below, at, and just above the middle.
  for (uint16_t low = 0; low < 0x7BFF; ++low) {
    const float a = F16ToFloat(low);
    const float b = F16ToFloat(static_cast<uint16_t>(low + 1));
    const float middle = a + (b - a) / 2;
    const uint16_t even = low % 2 == 0 ? low : static_cast<uint16_t>(low + 1);
    ASSERT_EQ(FloatToF16(middle), even);
    ASSERT_EQ(FloatToF16(std::nextafter(middle, 0.0f)), low);
    ASSERT_EQ(FloatToF16(std::nextafter(middle, b)), low + 1);
    ASSERT_EQ(FloatToF16(-middle), even | 0x8000);
  }
}

TEST(DTypeTest, HalfOverflow) {
  EXPECT_EQ(FloatToF16(65519.0f), 0x7BFF);
  EXPECT_EQ(FloatToF16(65520.0f), 0x7C00);
  EXPECT_EQ(FloatToF16(-std::numeric_limits<float>::infinity()), 0xFC00);
  EXPECT_EQ(FloatToF16(1e-30f), 0);
}

TEST(DTypeTest, Bf16RoundsToNearestEven) {
  EXPECT_EQ(FloatToBf16(1.0f), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808000u)), 0x3F80);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F818000u)), 0x3F82);
  EXPECT_EQ(FloatToBf16(std::bit_cast<float>(0x3F808001u)), 0x3F81);
  EXPECT_TRUE(std::isnan(Bf16ToFloat(FloatToBf16(std::numeric_limits<float>::quiet_NaN()))));
}

}  // namespace
}  // namespace kvasir
