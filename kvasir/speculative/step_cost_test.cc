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
  cost.Record(520, 404);  // not of its own
  EXPECT_NEAR(cost.Ms(512), 401.2, 1e-9);
  EXPECT_EQ(cost.Ms(520), cost.Ms(512));
}

}  // namespace
}  // namespace kvasir
