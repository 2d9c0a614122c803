#include "kvasir/base/trigonometry.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvasir {
namespace {

TEST(TrigonometryTest, AgreesWithTheLibraryToTheLastBits) {
  std::mt19937_64 random(1);
  for (const double range : {1.0, 100.0, 131072.0, 1.0e8}) {
    std::uniform_real_distribution<double> draw(-range, range);
    for (int i = 0; i < 20000; ++i) {
      const double x = draw(random);
      const SinCosResult result = SinCos(x);
      // One and a half units in the last place of 1: two roundings of ours, one of the library.
      ASSERT_NEAR(result.sin, std::sin(x), 3.4e-16) << x;
      ASSERT_NEAR(result.cos, std::cos(x), 3.4e-16) << x;
    }
  }
  EXPECT_EQ(SinCos(0).sin, 0);
  EXPECT_EQ(SinCos(0).cos, 1);
}

}  // namespace
}  // namespace kvasir
