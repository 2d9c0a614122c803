#include "kvasir/base/rng.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

// Known answers published with the Random123 library (philox4x32, 10 rounds).
TEST(RngTest, PhiloxMatchesPublishedVectors) {
  EXPECT_EQ(Philox4x32(0, 0, 0),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox4x32(~0ull, ~0ull, ~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RngTest, UniformIsAFunctionOfItsArguments) {
  double sum = 0;
  for (uint64_t counter = 0; counter < 10000; ++counter) {
    const double u = UniformDouble(7, counter);
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ASSERT_EQ(u, UniformDouble(7, counter));
    sum += u;
  }
  // Standard error of the mean is 0.0029; five of them.
  EXPECT_NEAR(sum / 10000, 0.5, 0.0145);
}

}  // namespace
}  // namespace kvasir
