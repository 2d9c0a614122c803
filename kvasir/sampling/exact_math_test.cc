// ExactExp and ExactLog against the C library in long double.
// Deliberately also pins bits: those are what must not depend on the machine.
#include "kvasir/sampling/exact_math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

#include "kvasir/base/rng.h"

namespace kvasir {
namespace {

// Rounding errors of about eight additions and multiplications of half an ulp (1.1e-16) each.
constexpr double kTolerance = 2e-15;

TEST(ExactMath, ExpAgreesWithLongDouble) {
  for (uint64_t i = 0; i < 200'000; ++i) {
    const double x = -700.0 * std::pow(UniformDouble(1, i), 4.0);
    const auto expected = static_cast<double>(std::exp(static_cast<long double>(x)));
    ASSERT_NEAR(ExactExp(x) / expected, 1.0, kTolerance) << x;
  }
}

TEST(ExactMath, ExpAtTheEnds) {
  EXPECT_EQ(ExactExp(0.0), 1.0);
  EXPECT_EQ(ExactExp(-0.0), 1.0);
  EXPECT_GT(ExactExp(-700.0), 0.0);
  EXPECT_EQ(ExactExp(-700.001), 0.0);
  EXPECT_EQ(ExactExp(-1e300), 0.0);
  EXPECT_EQ(ExactExp(-INFINITY), 0.0);
}

TEST(ExactMath, ManyAtOnceHaveTheSameBits) {
  std::vector<double> values;
  for (uint64_t i = 0; i < 1003; ++i) values.push_back(-40.0 * UniformDouble(2, i));
  std::vector<double> many = values;
  ExactExp(many.data(), many.size());
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint64_t>(many[i]), std::bit_cast<uint64_t>(ExactExp(values[i])));
  }
}

TEST(ExactMath, LogAgreesWithLongDouble) {
  for (uint64_t i = 0; i < 200'000; ++i) {
    const double x = std::exp2(40.0 * UniformDouble(3, i) - 20.0);
    const auto expected = static_cast<double>(std::log(static_cast<long double>(x)));
    ASSERT_NEAR(ExactLog(x), expected, kTolerance * std::fmax(1.0, std::fabs(expected))) << x;
  }
  EXPECT_EQ(ExactLog(1.0), 0.0);
}

// FNV-1a over the bits of many results: differs as soon as one bit of one result does, as it would
// with contracted multiply-adds or another order.
TEST(ExactMath, BitsAreTheSameEverywhere) {
  uint64_t hash = 0xcbf29ce484222325u;
  const auto add = [&](double value) {
    hash = (hash ^ std::bit_cast<uint64_t>(value)) * 0x100000001b3u;
  };
  for (uint64_t i = 0; i < 10'000; ++i) {
    add(ExactExp(-30.0 * UniformDouble(4, i)));
    add(ExactLog(1.0 + 100.0 * UniformDouble(5, i)));
  }
  EXPECT_EQ(hash, 8025933254643275949u);
}

}  // namespace
}  // namespace kvasir
