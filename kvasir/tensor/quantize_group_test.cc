// Groups as integers: the rule for 8 bits, and that no other scale of 4 bits is much nearer.
#include "kvasir/tensor/quantize_group.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using Group = std::vector<float>;

Group RandomGroup(uint32_t seed, float deviation = 0.02f) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, deviation);
  Group values(kQuantGroup);
  for (float& value : values) value = normal(random);
  return values;
}

Group Decoded(const QuantizedGroup& group) {
  Group values;
  for (const int8_t code : group.codes) values.push_back(F16ToFloat(group.scale) * code);
  return values;
}

// Weighted with magnitudes.
double ErrorOf(const Group& values, const QuantizedGroup& group) {
  const Group decoded = Decoded(group);
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double value = values[i];
    sum += std::fabs(value) * std::pow(value - double{decoded[i]}, 2);
  }
  return sum;
}

QuantizedGroup WithScale(const Group& values, uint16_t scale) {
  QuantizedGroup group = {scale, {}};
  for (size_t i = 0; i < values.size(); ++i) {
    const float code = std::nearbyint(values[i] / F16ToFloat(scale));
    group.codes[i] = static_cast<int8_t>(std::fmin(std::fmax(code, -8.0f), 7.0f));
  }
  return group;
}

TEST(QuantizeGroup, EightBitsHaveTheScaleOfTheLargest) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const Group values = RandomGroup(seed);
    float largest = 0;
    for (const float value : values) largest = std::fmax(largest, std::fabs(value));
    const QuantizedGroup group = QuantizeGroup(values.data(), 8);
    ASSERT_EQ(group.scale, FloatToF16(largest / 127));
    for (size_t i = 0; i < values.size(); ++i) {
      const float code = std::nearbyint(values[i] / F16ToFloat(group.scale));
      ASSERT_EQ(group.codes[i], std::fmin(std::fmax(code, -127.0f), 127.0f));
    }
  }
}

TEST(QuantizeGroup, FourBitsAreNearTheBestOfAllScales) {
  double own = 0;
  double best = 0;
  double of_largest = 0;
  for (uint32_t seed = 0; seed < 40; ++seed) {
    const Group values = RandomGroup(seed);
    const QuantizedGroup group = QuantizeGroup(values.data(), 4);
    float largest = 0;
    for (const float value : values) largest = std::fmax(largest, std::fabs(value));
    ASSERT_EQ(group.codes, WithScale(values, group.scale).codes) << "for the scale as stored";
    double least = INFINITY;
    for (uint16_t scale = FloatToF16(largest / 14); scale <= FloatToF16(largest / 5); ++scale) {
      for (const int sign : {0, 0x8000}) {
        const auto signed_scale = static_cast<uint16_t>(scale | sign);
        least = std::fmin(least, ErrorOf(values, WithScale(values, signed_scale)));
      }
    }
    own += ErrorOf(values, group);
    best += least;
    of_largest += ErrorOf(values, WithScale(values, FloatToF16(largest / 7)));
    EXPECT_LE(ErrorOf(values, group),
              1.001 * ErrorOf(values, WithScale(values, FloatToF16(largest / 7))));
  }
  EXPECT_LE(own, 1.04 * best);
  EXPECT_LE(own, 0.8 * of_largest);
}

TEST(QuantizeGroup, WhatIsOnAGridOfItsRangeStays) {
  for (const float end : {-8.0f, -7.0f, 7.0f}) {
    Group values(kQuantGroup);
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = 0.25f * static_cast<float>(static_cast<int>(i * 5 % 13) - 6);
    }
    values[11] = 0.25f * end;
    EXPECT_EQ(Decoded(QuantizeGroup(values.data(), 4)), values) << end;
  }
}

TEST(QuantizeGroup, OddNumbers) {
  for (const int bits : {4, 8}) {
    Group values(kQuantGroup, 0.0f);
    QuantizedGroup group = QuantizeGroup(values.data(), bits);
    EXPECT_EQ(group.scale, 0);
    EXPECT_EQ(Decoded(group), values);

    values[3] = 1e-30f;  // no f16 is small enough
    EXPECT_EQ(QuantizeGroup(values.data(), bits).codes[3], 0);

    values[3] = std::nanf("");
    values[4] = -2.0f;
    group = QuantizeGroup(values.data(), bits);
    EXPECT_EQ(group.codes[3], 0);
    EXPECT_NEAR(Decoded(group)[4], -2.0f, 0.01f);

    values[4] = -INFINITY;
    group = QuantizeGroup(values.data(), bits);
    EXPECT_EQ(group.scale, 0x7C00);
    EXPECT_EQ(group.codes[4], 0);

    // 65,504 is the largest of f16: with code 7 it still is, with one step more it is not.
    values = RandomGroup(7, 1.0f);
    values[9] = 65504.0f * (bits == 4 ? 7.0f : 127.0f);
    group = QuantizeGroup(values.data(), bits);
    EXPECT_NEAR(Decoded(group)[9] / values[9], 1.0f, 1e-3f);
    values[9] *= 1.01f;
    EXPECT_EQ(QuantizeGroup(values.data(), bits).scale, 0x7C00);
  }
}

}  // namespace
}  // namespace kvasir
