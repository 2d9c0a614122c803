#include "kvasir/speculative/step_cost.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

TEST(StepCostTest, KnowsNothingAtFirst) {
  EXPECT_TRUE(StepCost().empty());
  EXPECT_EQ(StepCost().Ms(3), 0);
}

TEST(StepCostTest, InterpolatesAndIsFlatOutside) {
  StepCost cost;
  cost.Record(2, 10);
  cost.Record(6, 18);
  EXPECT_EQ(cost.Ms(1), 10);
  EXPECT_EQ(cost.Ms(2), 10);
  EXPECT_EQ(cost.Ms(3), 12);
  EXPECT_EQ(cost.Ms(6), 18);
  EXPECT_EQ(cost.Ms(512), 18);
}

TEST(StepCostTest, OneStallIsNotACost) {
  StepCost cost;
  cost.Record(4, 10);
  cost.Record(4, 1000);
  EXPECT_LE(cost.Ms(4), 10 * 1.075 + 1e-9);
}

TEST(StepCostTest, FollowsAChangeThatStays) {
  StepCost cost;
  cost.Record(4, 10);
  for (int i = 0; i < 60; ++i) cost.Record(4, 25);
  EXPECT_NEAR(cost.Ms(4), 25, 0.5);
  for (int i = 0; i < 60; ++i) cost.Record(4, 5);
  EXPECT_NEAR(cost.Ms(4), 5, 0.5);
}

TEST(StepCostTest, ManyRowsShareAFigure) {
  StepCost cost;
  cost.Record(512, 400);
  cost.Record(520, 440);  // not of its own
  EXPECT_GT(cost.Ms(512), 400);
  EXPECT_EQ(cost.Ms(520), cost.Ms(512));
}

// Contexts grow, or a neighbour comes: what is not seen any more is slower as well.
TEST(StepCostTest, WhatSlowsOneNumberOfRowsSlowsAll) {
  StepCost cost;
  cost.Record(1, 10);
  cost.Record(4, 14);
  for (int i = 0; i < 100; ++i) cost.Record(4, 28);
  EXPECT_NEAR(cost.Ms(4), 28, 0.5);
  EXPECT_GT(cost.Ms(1), 15);
  EXPECT_LE(cost.Ms(1), cost.Ms(4));
}

TEST(StepCostTest, APromptThatIsReadSaysNothingOfAnswers) {
  StepCost cost;
  cost.Record(1, 10);
  cost.Record(512, 100);
  for (int i = 0; i < 100; ++i) cost.Record(512, 300);
  EXPECT_NEAR(cost.Ms(512), 300, 5);
  EXPECT_EQ(cost.Ms(1), 10);
}

TEST(StepCostTest, AFirstStepThatStalledIsForgotten) {
  StepCost cost;
  cost.Record(1, 10);
  cost.Record(2, 1000);
  EXPECT_LE(cost.Ms(2), 20);
  StepCost other;
  other.Record(1, 1000);
  other.Record(2, 11);
  EXPECT_LE(other.Ms(1), 11);
}

TEST(StepCostTest, WhatTookNoTimeIsNoStep) {
  StepCost cost;
  cost.Record(1, 0);
  EXPECT_TRUE(cost.empty());
}

}  // namespace
}  // namespace kvasir
