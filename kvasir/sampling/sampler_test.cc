// The sampler against a naive one that sorts everything, against chi-square, and at its edges.
// Deliberately no timing: benchmarks do that.
#include "kvasir/sampling/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <set>
#include <vector>

#include "kvasir/base/rng.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> RandomLogits(size_t count, uint64_t seed, double spread) {
  std::vector<float> logits(count);
  for (size_t i = 0; i < count; ++i) {
    logits[i] = static_cast<float>(spread * (UniformDouble(seed, i) - 0.5));
  }
  return logits;
}

// The definition, in the plainest way: sort, softmax in long double, cut, renormalize.
// Result: probability per token.
std::vector<double> NaiveDistribution(const std::vector<float>& logits,
                                      const SamplingOptions& options) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  if (options.top_k > 0) order.resize(std::min<size_t>(order.size(), options.top_k));
  std::vector<long double> weights;
  for (size_t id : order) {
    weights.push_back(
        std::exp((static_cast<long double>(logits[id]) - logits[order[0]]) / options.temperature));
  }
  const long double total = std::accumulate(weights.begin(), weights.end(), 0.0L);
  size_t kept = 0;
  long double mass = 0.0L;
  while (kept < order.size() && mass < options.top_p * total) mass += weights[kept++];
  while (kept > 1 && weights[kept - 1] < options.min_p) --kept;
  const long double rest = std::accumulate(weights.begin(), weights.begin() + kept, 0.0L);
  std::vector<double> distribution(logits.size(), 0.0);
  for (size_t i = 0; i < kept; ++i) distribution[order[i]] = weights[i] / rest;
  return distribution;
}

// Upper 1e-6 quantile of chi-square with `freedom` degrees (Wilson and Hilferty 1931); 4.753 is
// that quantile of the normal distribution. Seeds are fixed: this passes always or never.
double ChiSquareLimit(double freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - a + 4.753 * std::sqrt(a), 3.0);
}

void ExpectDistribution(const std::vector<float>& logits, SamplingOptions options) {
  const std::vector<double> expected = NaiveDistribution(logits, options);
  constexpr int64_t kDraws = 50'000;
  std::vector<int64_t> counts(logits.size(), 0);
  Sampler sampler;
  for (int64_t i = 0; i < kDraws; ++i) {
    const Token token = sampler.Sample(logits, options, i);
    ASSERT_GT(expected[static_cast<size_t>(token)], 0.0) << "token " << token << " was cut";
    ++counts[static_cast<size_t>(token)];
  }
  // Cells with fewer than 10 expected draws are pooled: chi-square wants normal counts.
  double statistic = 0.0, pooled_expected = 0.0, pooled_count = 0.0;
  int cells = 0;
  const auto add = [&](double wanted, double count) {
    statistic += (count - wanted) * (count - wanted) / wanted;
    ++cells;
  };
  for (size_t i = 0; i < logits.size(); ++i) {
    const double wanted = expected[i] * kDraws;
    if (wanted >= 10.0) {
      add(wanted, static_cast<double>(counts[i]));
    } else {
      pooled_expected += wanted;
      pooled_count += static_cast<double>(counts[i]);
    }
  }
  if (pooled_expected >= 1.0) add(pooled_expected, pooled_count);
  if (cells < 2) return;
  EXPECT_LT(statistic, ChiSquareLimit(cells - 1)) << cells << " cells";
}

TEST(Sampler, DrawsTheDistribution) {
  const std::vector<float> logits = RandomLogits(200, 7, 8.0);
  ExpectDistribution(logits, {.temperature = 1.0, .seed = 1});
  ExpectDistribution(logits, {.temperature = 0.6, .seed = 2});
  ExpectDistribution(logits, {.temperature = 5.0, .seed = 3});
}

TEST(Sampler, DrawsTheFilteredDistribution) {
  const std::vector<float> logits = RandomLogits(300, 8, 10.0);
  ExpectDistribution(logits, {.temperature = 1.0, .top_k = 20, .seed = 4});
  ExpectDistribution(logits, {.temperature = 1.3, .top_p = 0.8, .seed = 5});
  ExpectDistribution(logits, {.temperature = 0.8, .min_p = 0.05, .seed = 6});
  ExpectDistribution(logits,
                     {.temperature = 1.1, .top_k = 50, .top_p = 0.9, .min_p = 0.1, .seed = 7});
}

// Every token the sampler can return, found by many draws, is in the naive set and the other way
// round for all that are likely enough to be seen.
TEST(Sampler, FiltersAgreeWithTheNaiveOnesOnRandomOptions) {
  Sampler sampler;
  for (uint64_t round = 0; round < 300; ++round) {
    const auto pick = [&](uint64_t what) { return UniformDouble(99, round, what); };
    // Logits in steps of 1/4: ties are frequent.
    std::vector<float> logits(1 + static_cast<size_t>(60 * pick(0)));
    for (size_t i = 0; i < logits.size(); ++i) {
      logits[i] = std::round(static_cast<float>(24.0 * UniformDouble(round, i))) / 4.0f;
    }
    SamplingOptions options;
    options.temperature = 0.25 + 2.0 * pick(1);
    options.seed = round;
    if (pick(2) < 0.5) options.top_k = 1 + static_cast<int64_t>(pick(3) * 70);
    if (pick(4) < 0.5) options.top_p = 0.01 + 0.98 * pick(5);
    if (pick(6) < 0.5) options.min_p = pick(7);
    const std::vector<double> expected = NaiveDistribution(logits, options);
    std::set<Token> seen;
    for (Position position = 0; position < 2000; ++position) {
      seen.insert(sampler.Sample(logits, options, position));
    }
    for (size_t i = 0; i < logits.size(); ++i) {
      const bool was_seen = seen.contains(static_cast<Token>(i));
      if (was_seen) {
        ASSERT_GT(expected[i], 0.0) << "round " << round << " token " << i;
      }
      // Not seen in 2000 draws with this probability: below e^-40.
      if (expected[i] > 0.02) {
        ASSERT_TRUE(was_seen) << "round " << round << " token " << i;
      }
    }
  }
}

TEST(Sampler, GreedyTakesTheLowestOfTheLikeliest) {
  Sampler sampler;
  const std::vector<float> logits = {1.0f, NAN, 5.0f, 5.0f, -kInfinity};
  EXPECT_EQ(sampler.Sample(logits, {}, 0), 2);
  EXPECT_EQ(Argmax(logits), 2);
}

TEST(Sampler, TopKOfOneIsGreedyAndTiesGoToLowerIds) {
  Sampler sampler;
  const std::vector<float> logits = {1.0f, 5.0f, 5.0f, 5.0f, 2.0f};
  for (Position position = 0; position < 200; ++position) {
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1.0, .top_k = 1, .seed = 3}, position), 1);
    const Token token =
        sampler.Sample(logits, {.temperature = 1.0, .top_k = 2, .seed = 3}, position);
    EXPECT_TRUE(token == 1 || token == 2);
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1.0, .top_p = 1e-9, .seed = 3}, position), 1);
  }
}

TEST(Sampler, SelectionOfLargeVocabulariesAgreesWithSorting) {
  // More than the selection buffer, ascending (every logit enters it) and with many ties.
  std::vector<float> logits(20'000);
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = static_cast<float>(i / 4) * 1e-4f;
  for (const int64_t k : {1, 2, 100, 1023, 1024, 3000, 19'999, 20'000, 30'000}) {
    const SamplingOptions options = {.temperature = 1.0, .top_k = k, .seed = 5};
    const std::vector<double> expected = NaiveDistribution(logits, options);
    Sampler sampler;
    for (Position position = 0; position < 50; ++position) {
      const Token token = sampler.Sample(logits, options, position);
      ASSERT_GT(expected[static_cast<size_t>(token)], 0.0) << k;
    }
  }
}

// The boundary of top_p by histogram and halving, against a full sort: exactly the same set.
TEST(Sampler, TopPOfLargeVocabulariesAgreesWithSorting) {
  Sampler sampler;
  for (const double temperature : {0.1, 1.0, 30.0}) {
    for (const double top_p : {0.02, 0.5, 0.97}) {
      std::vector<float> logits(3000);
      for (size_t i = 0; i < logits.size(); ++i) {
        logits[i] = std::round(static_cast<float>(UniformDouble(6, i) * 500.0)) / 50.0f;
      }
      const SamplingOptions options = {.temperature = temperature, .top_p = top_p, .seed = 5};
      const std::vector<double> expected = NaiveDistribution(logits, options);
      const auto kept = std::count_if(expected.begin(), expected.end(),
                                      [](double probability) { return probability > 0.0; });
      std::set<Token> seen;
      for (Position position = 0; position < 3000; ++position) {
        const Token token = sampler.Sample(logits, options, position);
        ASSERT_GT(expected[static_cast<size_t>(token)], 0.0);
        seen.insert(token);
      }
      if (kept < 100) {
        EXPECT_EQ(static_cast<ptrdiff_t>(seen.size()), kept);
      }
    }
  }
}

TEST(Sampler, FiltersThatCutNothingChangeNothing) {
  const std::vector<float> logits = RandomLogits(5000, 11, 10.0);
  Sampler sampler;
  const SamplingOptions plain = {.temperature = 1.0, .seed = 8};
  const SamplingOptions wide = {.temperature = 1.0, .top_k = 4999, .min_p = 1e-12, .seed = 8};
  SamplingOptions all = plain;
  all.top_k = 5000;
  int same = 0;
  for (Position position = 0; position < 500; ++position) {
    const Token token = sampler.Sample(logits, plain, position);
    ASSERT_EQ(sampler.Sample(logits, all, position), token);
    same += sampler.Sample(logits, wide, position) == token;
  }
  // Cutting one of 5000 tokens moves the borders of the others a little.
  EXPECT_GE(same, 490);
}

TEST(Sampler, DependsOnSeedAndPositionOnly) {
  const std::vector<float> logits = RandomLogits(1000, 12, 4.0);
  const SamplingOptions options = {.temperature = 1.0, .top_p = 0.95, .seed = 42};
  std::vector<Token> forward(100);
  Sampler sampler;
  for (Position p = 0; p < 100; ++p) forward[p] = sampler.Sample(logits, options, p);
  // Another object, the other way round, with other requests in between.
  Sampler other;
  for (Position p = 99; p >= 0; --p) {
    other.Sample(RandomLogits(50, 1, 3.0), {.temperature = 2.0, .seed = 1}, p);
    ASSERT_EQ(other.Sample(logits, options, p), forward[p]);
  }
  SamplingOptions reseeded = options;
  reseeded.seed = 43;
  int same = 0;
  for (Position p = 0; p < 100; ++p) same += other.Sample(logits, reseeded, p) == forward[p];
  EXPECT_LT(same, 20);
}

// Pinned: any change of order, rounding or random numbers breaks users' seeds.
TEST(Sampler, SeedsKeepTheirMeaning) {
  const std::vector<float> logits = RandomLogits(1000, 12, 12.0);
  const SamplingOptions options = {
      .temperature = 0.9, .top_k = 200, .top_p = 0.97, .min_p = 0.001, .seed = 1234};
  Sampler sampler;
  std::vector<Token> tokens;
  for (Position p = 0; p < 8; ++p) tokens.push_back(sampler.Sample(logits, options, p));
  EXPECT_EQ(tokens, (std::vector<Token>{198, 664, 332, 790, 111, 881, 988, 777}));
}

TEST(Sampler, ExtremeTemperatures) {
  const std::vector<float> logits = {0.0f, 1.0f, 3.0e38f, -3.0e38f};
  Sampler sampler;
  for (Position p = 0; p < 50; ++p) {
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 5e-324, .seed = 1}, p), 2);
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 5e-324, .top_p = 0.5, .seed = 1}, p), 2);
    EXPECT_EQ(sampler.Sample(logits, {.temperature = 1.0, .seed = 1}, p), 2);
  }
  std::set<Token> seen;
  for (Position p = 0; p < 200; ++p) {
    seen.insert(sampler.Sample(logits, {.temperature = 1e308, .top_p = 0.999, .seed = 1}, p));
  }
  EXPECT_EQ(seen.size(), 4u);
}

TEST(Sampler, InfiniteAndMissingLogits) {
  Sampler sampler;
  const SamplingOptions options = {.temperature = 1.0, .top_k = 3, .top_p = 0.5, .seed = 9};
  EXPECT_EQ(sampler.Sample(std::vector<float>{NAN, -kInfinity, NAN}, options, 0), 0);
  EXPECT_EQ(sampler.Sample(std::vector<float>{1.0f, kInfinity, kInfinity}, options, 0), 1);
  EXPECT_EQ(sampler.Sample(std::vector<float>{-2.0f}, options, 0), 0);
  for (Position p = 0; p < 100; ++p) {
    const std::vector<float> logits = {NAN, 1.0f, -kInfinity, 1.0f, NAN};
    const Token token = sampler.Sample(logits, {.temperature = 1.0, .seed = 2}, p);
    EXPECT_TRUE(token == 1 || token == 3);
  }
}

TEST(Sampler, BiasBansAndForces) {
  Sampler sampler;
  const std::vector<float> logits = {5.0f, 4.0f, 3.0f};
  SamplingOptions options;
  options.logit_bias = {{0, -kInfinity}};
  EXPECT_EQ(sampler.Sample(logits, options, 0), 1);
  options.logit_bias = {{2, 100.0f}};
  EXPECT_EQ(sampler.Sample(logits, options, 0), 2);
}

TEST(Sampler, PenaltiesFollowTheirFormulas) {
  Sampler sampler;
  const std::vector<Token> prompt = {0, 0, 1, -5, 1000};
  const std::vector<Token> output = {1, 2, 2, 2};
  const TokenHistory history = {prompt, output};
  // Token 0 is in the prompt only, 3 nowhere. Repetition 2: 10 -> 5.
  SamplingOptions options = {.repetition_penalty = 2.0};
  EXPECT_EQ(sampler.Sample(std::vector<float>{10.0f, 0.0f, 0.0f, 5.1f}, options, 0, history), 3);
  EXPECT_EQ(sampler.Sample(std::vector<float>{10.0f, 0.0f, 0.0f, 4.9f}, options, 0, history), 0);
  // A negative logit grows in size: -1 -> -2.
  EXPECT_EQ(sampler.Sample(std::vector<float>{-1.0f, -9.0f, -9.0f, -1.9f}, options, 0, history), 3);
  // Frequency counts the output only: 10 - 3 * 1 for token 2, nothing for 0.
  options = {.frequency_penalty = 1.0};
  EXPECT_EQ(sampler.Sample(std::vector<float>{7.1f, 0.0f, 10.0f, 0.0f}, options, 0, history), 0);
  EXPECT_EQ(sampler.Sample(std::vector<float>{6.9f, 0.0f, 10.0f, 0.0f}, options, 0, history), 2);
  // Presence counts once.
  options = {.presence_penalty = 1.0};
  EXPECT_EQ(sampler.Sample(std::vector<float>{9.1f, 0.0f, 10.0f, 0.0f}, options, 0, history), 0);
  EXPECT_EQ(sampler.Sample(std::vector<float>{8.9f, 0.0f, 10.0f, 0.0f}, options, 0, history), 2);
  // All of them at once: (8 / 2 - 3 * 0.5) - 0.25 = 2.25. And nothing was left over by the calls
  // before.
  options = {.repetition_penalty = 2.0, .frequency_penalty = 0.5, .presence_penalty = 0.25};
  EXPECT_EQ(sampler.Sample(std::vector<float>{0.0f, 0.0f, 8.0f, 2.26f}, options, 0, history), 3);
  EXPECT_EQ(sampler.Sample(std::vector<float>{0.0f, 0.0f, 8.0f, 2.24f}, options, 0, history), 2);
}

TEST(Sampler, HistoryWithoutPenaltiesIsNotRead) {
  Sampler sampler;
  const std::vector<Token> output = {1, 1, 1};
  EXPECT_EQ(sampler.Sample(std::vector<float>{1.0f, 2.0f}, {}, 0, {{}, output}), 1);
}

}  // namespace
}  // namespace kvasir
