#include "kvasir/speculative/draft_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace kvasir {
namespace {

// A step of r rows takes base + per_row * r.
StepCost Linear(double base, double per_row) {
  StepCost cost;
  for (int64_t rows = 1; rows <= 512; ++rows) {
    cost.Record(rows, base + per_row * static_cast<double>(rows));
  }
  return cost;
}

int64_t Sum(const std::vector<int64_t>& plan) {
  return std::accumulate(plan.begin(), plan.end(), int64_t{0});
}

TEST(PlanDraftsTest, FreeRowsAreFilled) {
  const std::vector<DraftCandidate> one = {{0.9, 8}};
  EXPECT_EQ(PlanDrafts(one, 0, Linear(10, 0), {}), std::vector<int64_t>{8});
}

TEST(PlanDraftsTest, DearRowsAreNot) {
  const std::vector<DraftCandidate> one = {{0.9, 8}};
  // Each row costs what a token brings: nothing to win.
  EXPECT_EQ(PlanDrafts(one, 0, Linear(0, 10), {}), std::vector<int64_t>{0});
}

TEST(PlanDraftsTest, SteeperCostsLessDepth) {
  const std::vector<DraftCandidate> one = {{0.8, 16}};
  int64_t last = 17;
  for (const double per_row : {0.0, 0.5, 2.0, 5.0, 100.0}) {
    const int64_t depth = PlanDrafts(one, 0, Linear(10, per_row), {})[0];
    EXPECT_LE(depth, last) << per_row;
    last = depth;
  }
  EXPECT_EQ(last, 0);
}

TEST(PlanDraftsTest, NothingIsDraftedThatIsNeverRight) {
  const std::vector<DraftCandidate> two = {{0.0, 8}, {0.95, 8}};
  const std::vector<int64_t> plan = PlanDrafts(two, 0, Linear(10, 0.3), {});
  EXPECT_EQ(plan[0], 0);
  EXPECT_GT(plan[1], 2);
}

TEST(PlanDraftsTest, ADrafterThatCostsAsMuchAsTheTargetIsNotAsked) {
  const std::vector<DraftCandidate> one = {{0.9, 8}};
  EXPECT_EQ(Sum(PlanDrafts(one, 0, Linear(10, 0), {.ms_per_pass = 11})), 0);
  EXPECT_GT(Sum(PlanDrafts(one, 0, Linear(10, 0), {.ms_per_pass = 1})), 2);
}

TEST(PlanDraftsTest, RoomIsKept) {
  const std::vector<DraftCandidate> three = {{0.9, 0}, {0.9, 1}, {0.9, 5}};
  EXPECT_EQ(PlanDrafts(three, 0, Linear(10, 0), {}), (std::vector<int64_t>{0, 1, 5}));
}

// Against all plans there are, with costs that rise now slowly, now fast.
TEST(PlanDraftsTest, IsTheBestPlan) {
  StepCost cost;
  for (int64_t rows = 1; rows <= 16; ++rows) {
    const double r = static_cast<double>(rows);
    cost.Record(rows, 10 + (rows > 4 ? 3 * (r - 4) : 0.2 * r) + (rows > 8 ? 5 : 0));
  }
  const auto speed = [&](const std::vector<DraftCandidate>& c, const std::vector<int64_t>& plan) {
    double tokens = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      for (int64_t n = 0; n <= plan[i]; ++n) {
        tokens += std::pow(c[i].acceptance, static_cast<double>(n));
      }
    }
    const double drafting = 0.5 * static_cast<double>(*std::max_element(plan.begin(), plan.end()));
    return tokens / (cost.Ms(static_cast<int64_t>(c.size()) + Sum(plan)) + drafting);
  };
  for (const double a : {0.1, 0.5, 0.9}) {
    for (const double b : {0.3, 0.6, 0.99}) {
      const std::vector<DraftCandidate> two = {{a, 5}, {b, 5}};
      double best = 0;
      for (int64_t i = 0; i <= 5; ++i) {
        for (int64_t j = 0; j <= 5; ++j) best = std::max(best, speed(two, {i, j}));
      }
      const std::vector<int64_t> plan = PlanDrafts(two, 0, cost, {.ms_per_pass = 0.5});
      // Depth costs as well as rows, and gains of two percent are not taken: hence the slack.
      EXPECT_GE(speed(two, plan), best / 1.05) << a << " " << b;
    }
  }
}

TEST(DraftPlannerTest, TheFirstStepIsPlain) {
  const std::vector<DraftCandidate> one = {{0.9, 4}};
  DraftPlanner planner;
  EXPECT_EQ(planner.Plan(one, 0), std::vector<int64_t>{0});
  planner.RecordStep(1, 10);
  EXPECT_EQ(planner.Plan(one, 0), std::vector<int64_t>{4});
}

TEST(DraftPlannerTest, ParksWhereDraftsAreWrongAndProbesEverMoreRarely) {
  DraftPlanner planner;
  AcceptanceRate rate = planner.NewRate();
  for (int64_t rows = 1; rows <= 8; ++rows) {
    planner.RecordStep(rows, 10 + static_cast<double>(rows));
  }
  int64_t drafted_late = 0;
  for (int step = 0; step < 8192; ++step) {
    const std::vector<DraftCandidate> one = {{rate.value(), 4}};
    const int64_t drafts = planner.Plan(one, 0)[0];
    if (drafts > 0) planner.RecordDrafts(&rate, drafts, 0);
    if (step >= 4096) drafted_late += drafts;
  }
  EXPECT_GE(drafted_late, 1);
  EXPECT_LE(drafted_late, 10);
  // When the text becomes predictable, probes find out.
  int64_t steps = 0;
  for (; steps < 20'000 && rate.value() < 0.8; ++steps) {
    const std::vector<DraftCandidate> one = {{rate.value(), 4}};
    const int64_t drafts = planner.Plan(one, 0)[0];
    if (drafts > 0) planner.RecordDrafts(&rate, drafts, drafts);
  }
  EXPECT_LT(steps, 20'000);
  const std::vector<DraftCandidate> one = {{rate.value(), 4}};
  EXPECT_GT(planner.Plan(one, 0)[0], 1);
}

TEST(DraftPlannerTest, ANewSequenceStartsFromWhatOthersLearnt) {
  DraftPlanner planner;
  AcceptanceRate rate = planner.NewRate();
  for (int i = 0; i < 200; ++i) planner.RecordDrafts(&rate, 3, 0);
  EXPECT_LT(rate.value(), 0.01);
  EXPECT_LT(planner.NewRate().value(), 0.1);
}

TEST(AcceptanceRateTest, CountsWhatWasJudged) {
  AcceptanceRate rate(0.5);
  rate.Record(4, 1);  // right, wrong, not judged twice
  EXPECT_NEAR(rate.value(), (0.5 + 0.1 * 0.5) * 0.9, 1e-12);
  rate.Record(0, 0);
  EXPECT_NEAR(rate.value(), (0.5 + 0.1 * 0.5) * 0.9, 1e-12);
}

}  // namespace
}  // namespace kvasir
