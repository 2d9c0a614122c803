// Log-probabilities against a long double log-softmax.
// Deliberately includes logits that are infinite or NaN.
#include "kvasir/sampling/logprobs.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "kvasir/base/rng.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t count, uint64_t seed) {
  std::vector<float> logits(count);
  for (size_t i = 0; i < count; ++i) {
    logits[i] = static_cast<float>(20.0 * UniformDouble(seed, i) - 10.0);
  }
  return logits;
}

TEST(Logprobs, AgreeWithLongDouble) {
  for (const size_t count : {1u, 2u, 7u, 256u, 1000u, 50'000u}) {
    const std::vector<float> logits = RandomLogits(count, count);
    long double sum = 0.0L;
    for (const float logit : logits) sum += std::exp(static_cast<long double>(logit));
    const Logprobs logprobs(logits);
    for (size_t i = 0; i < count; i += 1 + count / 50) {
      const auto expected = static_cast<double>(logits[i] - std::log(sum));
      // 50,000 additions in 8 lanes, each within half an ulp of a sum: below 7000 * 1.1e-16.
      ASSERT_NEAR(logprobs.Of(static_cast<Token>(i)), expected, 1e-12);
    }
  }
}

TEST(Logprobs, TopIsSortedWithTiesByLowestId) {
  const std::vector<float> logits = {1.0f, 3.0f, 2.0f, 3.0f, -kInfinity, NAN};
  const auto top = Logprobs(logits).Top(4);
  ASSERT_EQ(top.size(), 4u);
  EXPECT_EQ(top[0].token, 1);
  EXPECT_EQ(top[1].token, 3);
  EXPECT_EQ(top[2].token, 2);
  EXPECT_EQ(top[3].token, 0);
  EXPECT_EQ(top[0].logprob, Logprobs(logits).Of(1));
}

TEST(Logprobs, TopIsBoundedByTheVocabulary) {
  const std::vector<float> logits = RandomLogits(10, 1);
  EXPECT_EQ(Logprobs(logits).Top(100).size(), 10u);
  EXPECT_TRUE(Logprobs(logits).Top(0).empty());
  EXPECT_TRUE(Logprobs(logits).Top(-1).empty());
}

// They are kept for every token of an answer.
TEST(Logprobs, TopTakesNoMoreMemoryThanItHas) {
  const std::vector<float> logits = RandomLogits(5000, 2);
  const Logprobs logprobs(logits);
  std::vector<TokenLogprob> all = logprobs.Top(5000);
  for (const int64_t count : {0, 1, 7}) {
    const std::vector<TokenLogprob> top = logprobs.Top(count);
    EXPECT_EQ(top.capacity(), static_cast<size_t>(count));
    for (size_t i = 0; i < top.size(); ++i) {
      EXPECT_EQ(top[i].token, all[i].token);
      EXPECT_EQ(top[i].logprob, all[i].logprob);
    }
  }
  EXPECT_TRUE(std::is_sorted(all.begin(), all.end(),
                             [](const auto& a, const auto& b) { return a.logprob > b.logprob; }));
}

TEST(Logprobs, WhatCannotBeIsMinusInfinity) {
  const std::vector<float> logits = {0.0f, -kInfinity, NAN, 0.0f};
  const Logprobs logprobs(logits);
  EXPECT_NEAR(logprobs.Of(0), std::log(0.5), 1e-15);
  EXPECT_EQ(logprobs.Of(1), -kInfinity);
  EXPECT_EQ(logprobs.Of(2), -kInfinity);
}

TEST(Logprobs, InfiniteLogitsShareEverything) {
  const std::vector<float> logits = {kInfinity, 0.0f, kInfinity};
  const Logprobs logprobs(logits);
  EXPECT_NEAR(logprobs.Of(0), std::log(0.5), 1e-15);
  EXPECT_EQ(logprobs.Of(1), -kInfinity);
}

TEST(Logprobs, NothingPossibleGivesMinusInfinity) {
  const std::vector<float> logits = {-kInfinity, NAN};
  EXPECT_EQ(Logprobs(logits).Of(0), -kInfinity);
  EXPECT_EQ(Logprobs(logits).Of(1), -kInfinity);
}

}  // namespace
}  // namespace kvasir
