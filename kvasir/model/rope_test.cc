#include "kvasir/model/rope.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

TEST(RopeTest, DefaultAndLinear) {
  RopeConfig config;
  config.theta = 10000;
  const RopeSpec rope = MakeRope(config, 4);
  ASSERT_EQ(rope.inverse_frequencies.size(), 2u);
  EXPECT_EQ(rope.inverse_frequencies[0], 1.0f);
  EXPECT_EQ(rope.inverse_frequencies[1], 0.01f);
  config.type = RopeType::kLinear;
  config.factor = 8;
  EXPECT_EQ(MakeRope(config, 4).inverse_frequencies[0], 0.125f);
}

TEST(RopeTest, Llama3KeepsShortAndDividesLongWavelengths) {
  RopeConfig config;
  config.theta = 500000;
  config.type = RopeType::kLlama3;
  config.factor = 32;
  config.original_max_position_embeddings = 8192;
  config.low_freq_factor = 1;
  config.high_freq_factor = 4;
  const RopeSpec scaled = MakeRope(config, 64);
  config.type = RopeType::kDefault;
  const RopeSpec plain = MakeRope(config, 64);
  EXPECT_EQ(scaled.inverse_frequencies[0], plain.inverse_frequencies[0]);
  EXPECT_EQ(scaled.inverse_frequencies[31], plain.inverse_frequencies[31] / 32);
  bool has_blend = false;
  for (size_t i = 0; i < 32; ++i) {
    const float ratio = scaled.inverse_frequencies[i] / plain.inverse_frequencies[i];
    has_blend |= ratio < 0.99f && ratio > 1.01f / 32;
  }
  EXPECT_TRUE(has_blend);
}

// Of gpt-oss: the ramp from 8.09 to 17.40 instead of from 8 to 18.
TEST(RopeTest, YarnsRampMayEndBetweenDimensions) {
  RopeConfig config;
  config.theta = 150000;
  const RopeSpec plain = MakeRope(config, 64);
  config.type = RopeType::kYarn;
  config.factor = 32;
  config.original_max_position_embeddings = 4096;
  for (const bool truncates : {true, false}) {
    config.truncates = truncates;
    const RopeSpec scaled = MakeRope(config, 64);
    const double low = truncates ? 8 : 8.09278;
    const double high = truncates ? 18 : 17.39802;
    for (int i = 0; i < 32; ++i) {
      const double ramp = std::clamp((i - low) / (high - low), 0.0, 1.0);
      const double wanted =
          plain.inverse_frequencies[static_cast<size_t>(i)] * (1 - ramp + ramp / 32);
      EXPECT_NEAR(scaled.inverse_frequencies[static_cast<size_t>(i)], wanted, wanted * 1e-4)
          << i << truncates;
    }
  }
}

// As if what turns were a head of its own.
TEST(RopeTest, APartOfTheHead) {
  RopeConfig config;
  config.theta = 1e7;
  EXPECT_EQ(MakeRope(config, 256).rotated, 256);
  for (const RopeType type : {RopeType::kDefault, RopeType::kYarn}) {
    config.type = type;
    config.factor = type == RopeType::kYarn ? 4 : 1;
    config.original_max_position_embeddings = type == RopeType::kYarn ? 4096 : 0;
    config.rotated_fraction = 1;
    const RopeSpec small = MakeRope(config, 64);
    config.rotated_fraction = 0.25;
    const RopeSpec rope = MakeRope(config, 256);
    EXPECT_EQ(rope.rotated, 64);
    ASSERT_EQ(rope.inverse_frequencies.size(), 128u);
    for (size_t i = 0; i < 128; ++i) {
      EXPECT_EQ(rope.inverse_frequencies[i], i < 32 ? small.inverse_frequencies[i] : 0.0f) << i;
    }
  }
  // Pairs of the whole head, of which only the first turn.
  config.type = RopeType::kProportional;
  EXPECT_EQ(MakeRope(config, 256).rotated, 256);
}

TEST(RopeTest, PairsOfAPartComeTogether) {
  RopeConfig config;
  config.rotated_fraction = 0.4;
  const RopeSpec rope = MakeRope(config, 10);
  ASSERT_EQ(rope.rotated, 4);
  // Stored pairs (0, 2) and (1, 3) become (0, 5) and (1, 6).
  EXPECT_EQ(HeadOrder(rope), (std::vector<int64_t>{0, 1, 4, 5, 6, 2, 3, 7, 8, 9}));
  for (const double whole : {1.0, 0.0}) {
    config.rotated_fraction = whole;
    config.type = whole == 1.0 ? RopeType::kDefault : RopeType::kProportional;
    EXPECT_EQ(HeadOrder(MakeRope(config, 6)), (std::vector<int64_t>{0, 1, 2, 3, 4, 5}));
  }
}

TEST(RopeTest, AnglesAreOnTheCircle) {
  RopeConfig config;
  const RopeSpec rope = MakeRope(config, 8);
  const std::vector<Position> positions = {0, 1, 40959};
  std::vector<float> cos(12), sin(12);
  FillAngles(rope, positions, {cos.data(), 3, 4, 4}, {sin.data(), 3, 4, 4});
  EXPECT_EQ(cos[0], 1.0f);
  EXPECT_EQ(sin[0], 0.0f);
  EXPECT_FLOAT_EQ(cos[4], std::cos(1.0f));
  for (size_t i = 0; i < 12; ++i) EXPECT_NEAR(cos[i] * cos[i] + sin[i] * sin[i], 1, 1e-6);
}

// YaRN's factor is for what turns: the rest of a head goes on as it is.
TEST(RopeTest, WhatDoesNotTurnIsNotScaled) {
  RopeConfig config;
  config.rotated_fraction = 0.5;
  config.attention_factor = 1.25;
  const RopeSpec rope = MakeRope(config, 8);
  const std::vector<Position> positions = {0, 7};
  std::vector<float> cos(8), sin(8);
  FillAngles(rope, positions, {cos.data(), 2, 4, 4}, {sin.data(), 2, 4, 4});
  for (size_t row = 0; row < 2; ++row) {
    for (size_t i = 0; i < 4; ++i) {
      const float length = std::hypot(cos[4 * row + i], sin[4 * row + i]);
      EXPECT_FLOAT_EQ(length, i < 2 ? 1.25f : 1.0f) << row << " " << i;
    }
    EXPECT_EQ(cos[4 * row + 2], 1.0f);
    EXPECT_EQ(sin[4 * row + 3], 0.0f);
  }
}

// Ministral 3: a query's factor grows with each period, and is 1 within the first.
TEST(Rope, QueriesGrowByPeriods) {
  RopeConfig config;
  config.type = RopeType::kYarn;
  config.factor = 16;
  config.original_max_position_embeddings = 16384;
  config.query_scale_beta = 0.1;
  const RopeSpec rope = MakeRope(config, 64);
  EXPECT_EQ(QueryScale(rope, 0), 1.0f);
  EXPECT_EQ(QueryScale(rope, 16383), 1.0f);
  EXPECT_EQ(QueryScale(rope, 16384), static_cast<float>(1 + 0.1 * std::log(2.0)));
  EXPECT_EQ(QueryScale(rope, 262143), static_cast<float>(1 + 0.1 * std::log(16.0)));
  EXPECT_EQ(QueryScale(MakeRope(RopeConfig(), 64), 1 << 20), 1.0f);
}

// SmolLM3: heads of some layers stay as they are, to the bit.
TEST(Rope, StillHeadsDoNotTurn) {
  const RopeSpec rope = StillRope(8);
  std::vector<float> cos(4), sin(4);
  const std::vector<Position> position = {123456};
  FillAngles(rope, position, {cos.data(), 1, 4, 4}, {sin.data(), 1, 4, 4});
  EXPECT_EQ(cos, std::vector<float>(4, 1.0f));
  EXPECT_EQ(sin, std::vector<float>(4, 0.0f));
  EXPECT_EQ(HeadOrder(rope), (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7}));
}

}  // namespace
}  // namespace kvasir
