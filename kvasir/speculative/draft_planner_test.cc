#include "kvasir/speculative/draft_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>
#include <utility>
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

DraftCosts Costs(double base, double per_row, double per_pass = 0) {
  DraftCosts costs = {.steps = Linear(base, per_row), .passes = {}, .follow_ms = 0};
  costs.passes.Record(1, per_pass);
  return costs;
}

// With room for `most` drafts that are as likely each.
DraftCandidate Candidate(double chance, size_t most, int64_t missing = 0, int64_t expected = 100) {
  return {std::vector<double>(most, chance), missing, expected};
}

int64_t Sum(const std::vector<int64_t>& plan) {
  return std::accumulate(plan.begin(), plan.end(), int64_t{0});
}

TEST(PlanDraftsTest, FreeRowsAreFilled) {
  EXPECT_EQ(PlanDrafts({Candidate(0.9, 8)}, 0, Costs(10, 0)), std::vector<int64_t>{8});
}

TEST(PlanDraftsTest, DearRowsAreNot) {
  // Each row costs what a token brings: nothing to win.
  EXPECT_EQ(PlanDrafts({Candidate(0.9, 8)}, 0, Costs(0, 10)), std::vector<int64_t>{0});
}

TEST(PlanDraftsTest, SteeperCostsLessDepth) {
  int64_t last = 17;
  for (const double per_row : {0.0, 0.5, 2.0, 5.0, 100.0}) {
    const int64_t depth = PlanDrafts({Candidate(0.8, 16)}, 0, Costs(10, per_row))[0];
    EXPECT_LE(depth, last) << per_row;
    last = depth;
  }
  EXPECT_EQ(last, 0);
}

TEST(PlanDraftsTest, NothingIsDraftedThatIsNeverRight) {
  const auto plan = PlanDrafts({Candidate(0, 8), Candidate(0.95, 8)}, 0, Costs(10, 0.3));
  EXPECT_EQ(plan[0], 0);
  EXPECT_GT(plan[1], 2);
}

TEST(PlanDraftsTest, SureDraftsBehindAnUnlikelyOneAreNotLikely) {
  const DraftCandidate doubtful = {{0.3, 1, 1, 1}};
  const DraftCandidate likely = {{0.9, 0.9, 0.2, 0.2}};
  const auto plan = PlanDrafts({doubtful, likely}, 0, Costs(4, 1));
  EXPECT_EQ(plan, (std::vector<int64_t>{0, 2}));
}

TEST(PlanDraftsTest, ADrafterThatCostsAsMuchAsTheTargetIsNotAsked) {
  EXPECT_EQ(Sum(PlanDrafts({Candidate(0.9, 8)}, 0, Costs(10, 0, 11))), 0);
  EXPECT_GT(Sum(PlanDrafts({Candidate(0.9, 8)}, 0, Costs(10, 0, 1))), 2);
}

// A pass that guesses for one sequence guesses for the other as well.
TEST(PlanDraftsTest, SequencesShareThePassesOfADrafter) {
  DraftCosts costs = Costs(10, 0.5, 8);
  costs.passes.Record(2, 8.1);
  EXPECT_EQ(Sum(PlanDrafts({Candidate(0.8, 1)}, 0, costs)), 0);
  EXPECT_EQ(Sum(PlanDrafts({Candidate(0.99, 1), Candidate(0.99, 1)}, 0, costs)), 2);
}

TEST(PlanDraftsTest, RoomIsKept) {
  EXPECT_EQ(PlanDrafts({Candidate(0.9, 0), Candidate(0.9, 1), Candidate(0.9, 5)}, 0, Costs(10, 0)),
            (std::vector<int64_t>{0, 1, 5}));
}

TEST(PlanDraftsTest, APromptThatIsReadBesideIsNotTheDraftsTime) {
  // As many drafts as without those rows, however long they take.
  EXPECT_EQ(PlanDrafts({Candidate(0.8, 8)}, 4, Costs(10, 1)),
            PlanDrafts({Candidate(0.8, 8)}, 0, Costs(10, 1)));
}

TEST(PlanDraftsTest, ReadingIsEarnedBackByTheEndOfTheAnswer) {
  DraftCosts costs = Costs(10, 0, 1);
  costs.follow_ms = 1;
  // 100 tokens take 1000 ms, and with drafts less than half of it.
  EXPECT_GT(Sum(PlanDrafts({Candidate(0.9, 8, 100, 100)}, 0, costs)), 0);
  EXPECT_EQ(Sum(PlanDrafts({Candidate(0.9, 8, 1000, 100)}, 0, costs)), 0);
  EXPECT_EQ(Sum(PlanDrafts({Candidate(0.9, 8, 100, 10)}, 0, costs)), 0);
  // Whose drafter knows everything is drafted for all the same.
  const auto plan = PlanDrafts({Candidate(0.9, 8, 1000, 100), Candidate(0.9, 8)}, 0, costs);
  EXPECT_EQ(plan[0], 0);
  EXPECT_GT(plan[1], 0);
}

// Against all plans there are, with costs that rise now slowly, now fast.
TEST(PlanDraftsTest, IsTheBestPlan) {
  StepCost cost;
  for (int64_t rows = 1; rows <= 16; ++rows) {
    const double r = static_cast<double>(rows);
    cost.Record(rows, 10 + (rows > 4 ? 3 * (r - 4) : 0.2 * r) + (rows > 8 ? 5 : 0));
  }
  DraftCosts costs = {.steps = cost, .passes = {}, .follow_ms = 0};
  costs.passes.Record(1, 0.5);
  const auto speed = [&](const std::vector<DraftCandidate>& c, const std::vector<int64_t>& plan) {
    double tokens = 0;
    for (size_t i = 0; i < c.size(); ++i) {
      for (int64_t n = 0; n <= plan[i]; ++n) {
        tokens += std::pow(c[i].chances[0], static_cast<double>(n));
      }
    }
    const double drafting = 0.5 * static_cast<double>(*std::max_element(plan.begin(), plan.end()));
    return tokens / (cost.Ms(static_cast<int64_t>(c.size()) + Sum(plan)) + drafting);
  };
  for (const double a : {0.1, 0.5, 0.9}) {
    for (const double b : {0.3, 0.6, 0.99}) {
      const std::vector<DraftCandidate> two = {Candidate(a, 5), Candidate(b, 5)};
      double best = 0;
      for (int64_t i = 0; i <= 5; ++i) {
        for (int64_t j = 0; j <= 5; ++j) best = std::max(best, speed(two, {i, j}));
      }
      const std::vector<int64_t> plan = PlanDrafts(two, 0, costs);
      // Depth costs as well as rows, and gains of five percent are not taken: hence the slack.
      EXPECT_GE(speed(two, plan), best / 1.08) << a << " " << b;
    }
  }
}

// An engine with one answer and a drafter whose drafts are right with a fixed chance.
class OneAnswer {
 public:
  explicit OneAnswer(double chance, double pass_share = 0)
      : planner_(pass_share), chance_(chance) {}

  struct Times {
    double ms = 0;
    double tokens = 0;
    int64_t drafts = 0;
  };
  // A step of r rows takes base + per_row * r; planning takes asking_ms.
  double base = 10;
  double per_row = 0;
  double per_pass = 0;
  double asking_ms = 0;
  double stall_ms = 0;   // of the next step
  double behind_ms = 0;  // that the first step without drafts takes longer
  size_t most = 4;
  bool is_every_other = false;  // step one in which there is a guess
  int64_t missing = 0;
  double follow_ms = 0;  // per token

  DraftPlanner& planner() { return planner_; }
  void set_chance(double chance) { chance_ = chance; }

  int64_t asked() const { return asked_; }

  Times Steps(int count) {
    Times times;
    for (int i = 0; i < count; ++i) Step(&times);
    return times;
  }

 private:
  void Step(Times* times) {
    DraftedStep step = {.candidates = 1, .plain_rows = 1};
    int64_t drafts = 0;
    has_guess_ = !is_every_other || !has_guess_;
    if (planner_.BeginStep(1)) {
      ++asked_;
      const size_t room = has_guess_ ? most : 0;
      drafts = planner_.Plan({Candidate(rates_.Of(0), room, missing, 1000)}, 0)[0];
      step.drafting_ms = asking_ms;
    }
    if (drafts > 0 && missing > 0) {
      const double ms = follow_ms * static_cast<double>(missing);
      planner_.RecordFollow(missing, ms);
      times->ms += ms;
      missing = 0;
    }
    if (drafts > 0 && per_pass > 0) {
      const double ms = per_pass * static_cast<double>(drafts);
      planner_.RecordPasses({&drafts, 1}, ms);
      step.drafting_ms += ms;
    }
    while (step.kept_drafts < drafts) {
      const bool is_right = std::bernoulli_distribution(chance_)(random_);
      planner_.RecordDraft(&rates_, 0, is_right);
      if (!is_right) break;
      ++step.kept_drafts;
    }
    step.drafts = drafts;
    step.ms = base + per_row * static_cast<double>(1 + drafts) + std::exchange(stall_ms, 0);
    if (drafts == 0 && was_drafted_) step.ms += behind_ms;
    was_drafted_ = drafts > 0;
    planner_.RecordStep(step);
    times->ms += step.ms + step.drafting_ms;
    times->tokens += 1 + static_cast<double>(step.kept_drafts);
    times->drafts += drafts;
  }

  DraftPlanner planner_;
  AcceptanceRates rates_ = planner_.NewRates();
  double chance_;
  bool has_guess_ = false;
  bool was_drafted_ = false;
  int64_t asked_ = 0;
  std::mt19937 random_{7};
};

TEST(DraftPlannerTest, TheFirstStepIsPlain) {
  OneAnswer run(1);
  EXPECT_EQ(run.Steps(1).drafts, 0);
  EXPECT_EQ(run.Steps(1).drafts, 4);
}

TEST(DraftPlannerTest, DraftsPayWhereRowsAreNearlyFree) {
  OneAnswer run(0.8);
  run.per_row = 0.1;
  const OneAnswer::Times times = run.Steps(2000);
  EXPECT_GT(times.tokens / times.ms, 2.5 * 1 / (run.base + run.per_row));
}

// Now and then a step is plain, so that what drafts are compared with does not age.
TEST(DraftPlannerTest, PlainStepsAreLookedAtAgain) {
  OneAnswer run(1);
  run.Steps(1000);
  const OneAnswer::Times times = run.Steps(1290);
  EXPECT_GE(times.drafts, 1270 * 4);
  EXPECT_LE(times.drafts, 1282 * 4);
}

// Whatever is wrong with a drafter, it costs little.
TEST(DraftPlannerTest, NothingThatBringsNothingCostsMuch) {
  for (const double chance : {0.0, 0.3, 0.6}) {
    for (const double per_row : {0.5, 5.0, 20.0}) {
      for (const double per_pass : {0.0, 8.0}) {
        OneAnswer run(chance, per_pass > 0 ? 0.25 : 0);
        run.per_row = per_row;
        run.per_pass = per_pass;
        run.asking_ms = 0.3;  // 3 % if it were asked all the time
        run.missing = 40;
        run.follow_ms = 1;
        const double plain_ms = run.base + run.per_row;
        const OneAnswer::Times times = run.Steps(4000);
        EXPECT_LT(times.ms, times.tokens * plain_ms * 1.02)
            << chance << " " << per_row << " " << per_pass;
      }
    }
  }
}

TEST(DraftPlannerTest, WhatDraftsLeaveBehindIsTheirCost) {
  OneAnswer run(1);
  run.most = 1;
  run.is_every_other = true;
  run.per_row = 7;     // one draft: two tokens in 24 ms instead of 34
  run.behind_ms = 13;  // and the next step takes that longer
  const OneAnswer::Times times = run.Steps(4000);
  EXPECT_LT(times.ms, times.tokens * (run.base + run.per_row) * 1.015);
}

TEST(DraftPlannerTest, InVainADrafterIsAskedAsOftenAsCostsNothing) {
  for (const double asking_ms : {0.001, 0.1, 0.5}) {
    OneAnswer run(0);
    run.per_row = 10;  // nothing to win
    run.asking_ms = asking_ms;
    run.Steps(500);
    const int64_t before = run.asked();
    run.Steps(2000);
    const double asked = static_cast<double>(run.asked() - before);
    EXPECT_LE(asked * asking_ms, 0.0025 * 2000 * 20) << asking_ms;
    EXPECT_GE(asked, std::min(2000 * 0.9, 0.0015 * 2000 * 20 / asking_ms)) << asking_ms;
  }
}

TEST(DraftPlannerTest, ADrafterThatReadsIsTriedOnceAndThenPaidFromWhatItBrought) {
  OneAnswer bad(0, 0.25);
  bad.per_pass = 1;
  bad.follow_ms = 0.5;
  double spent = 0;
  for (int answer = 0; answer < 50; ++answer) {
    bad.missing = 100;
    bad.Steps(30);
    spent += bad.missing == 0 ? 50 : 0;
  }
  // The first time, and what a two-hundredth of 1500 steps of 10 ms pays for.
  EXPECT_GE(spent, 50);
  EXPECT_LE(spent, 50 + 0.005 * 15'000 + 20);

  OneAnswer good(0.9, 0.25);
  good.per_pass = 1;
  good.follow_ms = 0.5;
  int64_t read = 0;
  for (int answer = 0; answer < 50; ++answer) {
    good.missing = 100;
    good.Steps(30);
    read += good.missing == 0;
  }
  EXPECT_GT(read, 45);
}

TEST(DraftPlannerTest, AStallIsNotTheDraftsFault) {
  OneAnswer run(0.9);
  run.per_row = 0.2;
  run.Steps(50);
  run.stall_ms = 10'000;  // in the next step
  run.Steps(1);
  EXPECT_GT(run.Steps(250).drafts, 300);
}

TEST(DraftPlannerTest, AnswersThatBeginOrEndSayNothingOfRows) {
  DraftPlanner planner;
  for (int i = 0; i < 20; ++i) planner.RecordStep({.candidates = 1, .plain_rows = 1, .ms = 10});
  for (int i = 0; i < 20; ++i) {
    planner.RecordStep({.candidates = 1, .plain_rows = 1, .ms = 30, .is_usual = false});
  }
  EXPECT_EQ(planner.costs().steps.Ms(1), 10);
}

// A state behind each draft, in memory that was never used before, takes long and only once.
TEST(DraftPlannerTest, MemoryThatIsFirstUsedIsNotTheDraftsFault) {
  for (const uint64_t committed : {uint64_t{20} << 20, uint64_t{0}}) {
    DraftPlanner planner;
    const auto plan = [&] {
      if (!planner.BeginStep(1)) return int64_t{0};
      return planner.Plan({DraftCandidate{.chances = {0.9, 0.9}}}, 0)[0];
    };
    for (int i = 0; i < 8; ++i) planner.RecordStep({.candidates = 1, .plain_rows = 1, .ms = 30});
    EXPECT_GT(plan(), 0);
    planner.RecordStep(
        {.candidates = 1, .plain_rows = 1, .drafts = 1, .ms = 140, .committed_bytes = committed});
    EXPECT_EQ(planner.costs().steps.Ms(2), committed > 0 ? 30 : 60);
    EXPECT_EQ(plan() > 0, committed > 0);
  }
}

// What drafts leave behind slows the first step without any down.
TEST(DraftPlannerTest, OnlyTheSecondStepWithoutDraftsIsComparedWith) {
  DraftPlanner planner;
  const auto record = [&](int64_t drafts, double ms) {
    planner.RecordStep({.candidates = 1, .plain_rows = 1, .drafts = drafts, .ms = ms});
  };
  for (int i = 0; i < 20; ++i) record(0, 10);
  for (int i = 0; i < 20; ++i) {
    record(4, 12);
    record(0, 14);
    record(0, 10);
  }
  EXPECT_NEAR(planner.costs().steps.Ms(1), 10, 0.2);
}

TEST(DraftPlannerTest, ParksWhereDraftsAreWrongAndProbesEverMoreRarely) {
  OneAnswer run(0);
  run.per_row = 1;
  run.Steps(8192);
  const int64_t drafted_late = run.Steps(8192).drafts;
  EXPECT_GE(drafted_late, 1);
  EXPECT_LE(drafted_late, 20);
  // When the text becomes predictable, probes find out.
  run.set_chance(1);
  run.Steps(8192);
  EXPECT_GT(run.Steps(100).drafts, 300);
}

TEST(DraftPlannerTest, ANewSequenceStartsFromWhatOthersLearnt) {
  DraftPlanner planner;
  AcceptanceRates rates = planner.NewRates();
  for (int i = 0; i < 200; ++i) planner.RecordDraft(&rates, 2, false);
  EXPECT_LT(rates.Of(2), 0.01);
  EXPECT_LT(planner.NewRates().Of(2), 0.1);
  EXPECT_GT(planner.NewRates().Of(3), 0.5) << "other kinds are other rates";
}

TEST(DraftPlannerTest, AnswersAreExpectedToGoOnAsLongAsUsual) {
  DraftPlanner planner;
  for (int i = 0; i < 100; ++i) planner.RecordAnswer(40);
  EXPECT_NEAR(planner.ExpectedTokens(0, 1000), 40, 1);
  EXPECT_NEAR(planner.ExpectedTokens(10, 1000), 30, 1);
  EXPECT_EQ(planner.ExpectedTokens(300, 1000), 300) << "it is a long one";
  EXPECT_EQ(planner.ExpectedTokens(300, 7), 7);
}

TEST(AcceptanceRatesTest, FollowsTheLatestDrafts) {
  AcceptanceRates rates;
  for (int i = 0; i < 100; ++i) rates.Record(0, true);
  EXPECT_GT(rates.Of(0), 0.97);
  for (int i = 0; i < 100; ++i) rates.Record(0, false);
  EXPECT_LT(rates.Of(0), 0.06);
  // A prior gives way sooner.
  AcceptanceRates fresh = rates.AsPrior();
  rates.Record(0, true);
  fresh.Record(0, true);
  EXPECT_GT(fresh.Of(0), 2 * rates.Of(0));
}

}  // namespace
}  // namespace kvasir
