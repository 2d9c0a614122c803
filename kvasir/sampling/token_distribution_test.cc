// Probabilities, draws and log-probabilities of exact weights.
// Deliberately by hand: three entries show everything.
#include "kvasir/sampling/token_distribution.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kvasir/sampling/sampler.h"

namespace kvasir {
namespace {

TEST(TokenDistribution, IsItsWeights) {
  const TokenDistribution distribution({{2, 1}, {5, 6}, {9, 1}});
  EXPECT_EQ(distribution.Of(5), 0.75);
  EXPECT_EQ(distribution.Of(9), 0.125);
  EXPECT_EQ(distribution.Of(3), 0.0);
  EXPECT_EQ(distribution.Of(-1), 0.0);
  EXPECT_EQ(distribution.Draw(0.0), 2);
  EXPECT_EQ(distribution.Draw(0.125), 5);
  EXPECT_EQ(distribution.Draw(0.874), 5);
  EXPECT_EQ(distribution.Draw(0.875), 9);
  EXPECT_EQ(distribution.Draw(std::nextafter(1.0, 0.0)), 9);
}

TEST(TokenDistribution, TopIsLikeliestFirstAndTiesAreByLowestId) {
  const TokenDistribution distribution({{2, 1}, {5, 6}, {9, 1}});
  const auto top = distribution.Top(10);
  ASSERT_EQ(top.size(), 3u);
  EXPECT_EQ(top[0].token, 5);
  EXPECT_NEAR(top[0].logprob, std::log(0.75), 1e-15);
  EXPECT_EQ(top[1].token, 2);
  EXPECT_EQ(top[2].token, 9);
  EXPECT_TRUE(distribution.Top(-1).empty());
}

TEST(TokenDistribution, OfASamplerHasNoEntryThatCannotBeDrawn) {
  Sampler sampler;
  // 1000 is e^-1000 away: weight 0.
  const std::vector<float> logits = {0.0f, 1000.0f, NAN, 1000.0f};
  const auto distribution = sampler.Distribution(logits, {.temperature = 1.0}, 0);
  ASSERT_EQ(distribution.entries().size(), 2u);
  EXPECT_EQ(distribution.Of(1), 0.5);
  EXPECT_EQ(distribution.Of(3), 0.5);
  const auto greedy = sampler.Distribution(logits, {}, 0);
  EXPECT_EQ(greedy.Of(1), 1.0);
}

}  // namespace
}  // namespace kvasir
