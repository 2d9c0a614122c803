// What a step evaluates: a table of situations, and what must hold in any of them.
#include "kvasir/engine/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace kvasir {
namespace {

constexpr int64_t kNoLimit = 1 << 30;
constexpr SchedulerOptions kOptions = {.step_tokens = 64, .mixed_step_tokens = 16};

SchedulerInput Decode() { return {1, kNoLimit, 0, true}; }
SchedulerInput Prompt(int64_t tokens, int priority = 0, int64_t run_limit = kNoLimit) {
  return {tokens, run_limit, priority, false};
}

struct Case {
  const char* name;
  std::vector<SchedulerInput> inputs;
  std::vector<int64_t> tokens;
};

TEST(SchedulerTest, Table) {
  const std::vector<Case> cases = {
      {"nothing", {}, {}},
      {"one decode", {Decode()}, {1}},
      {"one short prompt", {Prompt(10)}, {10}},
      {"a long prompt alone has the large budget", {Prompt(1000)}, {64}},
      {"a run is cut where rows are evicted", {Prompt(1000, 0, 20)}, {20}},
      {"decodes first, prompts within the mixed budget",
       {Decode(), Prompt(1000), Decode()},
       {1, 14, 1}},
      {"the first prompt has half, the others share",
       {Prompt(1000), Prompt(1000), Prompt(1000)},
       {32, 16, 16}},
      {"a short prompt is done at once behind a long one", {Prompt(30000), Prompt(20)}, {44, 20}},
      {"what a short one leaves goes to those that need more",
       {Prompt(1000), Prompt(4), Prompt(1000)},
       {32, 4, 28}},
      {"a short first prompt leaves the rest to the others", {Prompt(2), Prompt(1000)}, {2, 62}},
      {"priority decides over the second half",
       {Prompt(1000), Prompt(1000), Prompt(1000, 5)},
       {32, 0, 32}},
      {"a lower priority has what a higher one leaves",
       {Prompt(1000), Prompt(1000, -1), Prompt(10, 5)},
       {32, 22, 10}},
      {"the first prompt starves for no priority", {Prompt(1000, -9), Prompt(1000, 9)}, {32, 32}},
      {"more prompts than tokens",
       {Decode(), Prompt(9), Prompt(9), Prompt(9), Prompt(9), Prompt(9), Prompt(9), Prompt(9),
        Prompt(9), Prompt(9), Prompt(9)},
       {1, 8, 1, 1, 1, 1, 1, 1, 1, 0, 0}},
  };
  for (const Case& c : cases) EXPECT_EQ(PlanStep(c.inputs, kOptions), c.tokens) << c.name;
}

TEST(SchedulerTest, PromptsGoOnHoweverManyAnswersRun) {
  std::vector<SchedulerInput> inputs(100, Decode());
  inputs.push_back(Prompt(1000));
  const auto tokens = PlanStep(inputs, kOptions);
  EXPECT_EQ(std::count(tokens.begin(), tokens.end() - 1, 1), 100);
  EXPECT_EQ(tokens.back(), 4);
}

// Over random loads: every answer advances, the budget holds, nothing is wasted, no run is longer
// than it may be.
TEST(SchedulerTest, HoldsInAnySituation) {
  std::mt19937 random(1);
  for (int round = 0; round < 2000; ++round) {
    std::vector<SchedulerInput> inputs;
    int64_t decodes = 0, wanted = 0;
    for (size_t i = random() % 12; i > 0; --i) {
      if (random() % 2 == 0) {
        inputs.push_back(Decode());
        ++decodes;
      } else {
        inputs.push_back(Prompt(1 + random() % 200, static_cast<int>(random() % 3),
                                1 + static_cast<int64_t>(random() % 100)));
        wanted += std::min(inputs.back().pending_tokens, inputs.back().run_limit);
      }
    }
    const auto tokens = PlanStep(inputs, kOptions);
    ASSERT_EQ(tokens.size(), inputs.size());
    for (size_t i = 0; i < inputs.size(); ++i) {
      ASSERT_GE(tokens[i], inputs[i].is_decode ? 1 : 0);
      ASSERT_LE(tokens[i], std::min(inputs[i].pending_tokens, inputs[i].run_limit));
    }
    const int64_t prompt_tokens =
        std::accumulate(tokens.begin(), tokens.end(), int64_t{0}) - decodes;
    const int64_t room = decodes == 0 ? kOptions.step_tokens
                                      : std::max(kOptions.mixed_step_tokens - decodes,
                                                 kOptions.mixed_step_tokens / 4);
    ASSERT_EQ(prompt_tokens, std::min(wanted, room)) << "round " << round;
  }
}

TEST(SchedulerTest, ALongPromptEndsUnderAnEndlessFloodOfOthers) {
  int64_t long_pending = 3000;
  int steps = 0;
  for (; long_pending > 0; ++steps) {
    // Each step brings new prompts of a higher priority and there are always answers running.
    const std::vector<SchedulerInput> inputs = {Prompt(long_pending), Decode(), Prompt(50, 3),
                                                Prompt(50, 3)};
    long_pending -= PlanStep(inputs, kOptions)[0];
    ASSERT_LT(steps, 3000);
  }
  EXPECT_EQ(steps, 375);  // half of the 15 tokens that the decode leaves, rounded up
}

TEST(SchedulerTest, OptionsAreChecked) {
  EXPECT_TRUE(kOptions.Validate().ok());
  EXPECT_FALSE((SchedulerOptions{.step_tokens = 8, .mixed_step_tokens = 16}).Validate().ok());
  EXPECT_FALSE((SchedulerOptions{.step_tokens = 8, .mixed_step_tokens = 0}).Validate().ok());
}

}  // namespace
}  // namespace kvasir
