// The chain against the plain reference: each stage alone, and random chains in random orders over
// random histories. Deliberately compares whole distributions, not draws.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/sampling/dry_breakers.h"
#include "kvasir/sampling/mirostat.h"
#include "kvasir/sampling/reference_sampler_test_util.h"
#include "kvasir/sampling/sampler.h"

namespace kvasir {
namespace {

// Random numbers of one round, one after the other.
class Dice {
 public:
  explicit Dice(uint64_t seed) : seed_(seed) {}
  double Uniform() { return UniformDouble(seed_, next_++, 77); }
  double Between(double low, double high) { return low + (high - low) * Uniform(); }
  int64_t Integer(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(Uniform() * static_cast<double>(high - low + 1));
  }
  bool Chance(double probability) { return Uniform() < probability; }

 private:
  uint64_t seed_;
  uint64_t next_ = 0;
};

struct Case {
  ReferenceSampler::Input input;
  std::vector<Token> prompt, output, drafts;
  DryBreakers breakers;
  MirostatState mirostat;

  Case() = default;
  Case(const Case&) = delete;
  Case& operator=(const Case&) = delete;
};

void MakeLogits(Dice& dice, std::vector<float>* logits) {
  logits->resize(static_cast<size_t>(dice.Integer(1, dice.Chance(0.5) ? 8 : 300)));
  const double spread = dice.Between(0.5, 12);
  const bool has_ties = dice.Chance(0.3);
  const bool has_holes = dice.Chance(0.3);
  for (float& logit : *logits) {
    // A sum of three is about normal.
    const double value = spread * (dice.Uniform() + dice.Uniform() + dice.Uniform() - 1.5);
    logit = static_cast<float>(has_ties ? std::round(value * 4) / 4 : value);
    if (has_holes && dice.Chance(0.2)) {
      logit = dice.Chance(0.5) ? NAN : -std::numeric_limits<float>::infinity();
    }
  }
  logits->back() = 1.0f;
}

void MakeHistory(Dice& dice, Case* test) {
  const auto size = static_cast<int64_t>(test->input.logits.size());
  // Few different tokens, so that sequences repeat.
  const int64_t kinds = dice.Integer(1, std::min<int64_t>(size, 6));
  for (std::vector<Token>* part : {&test->prompt, &test->output, &test->drafts}) {
    part->resize(static_cast<size_t>(dice.Integer(0, 30)));
    for (Token& token : *part) token = static_cast<Token>(dice.Integer(0, kinds - 1));
  }
  if (dice.Chance(0.5)) test->input.breakers.insert(static_cast<Token>(dice.Integer(0, size - 1)));
  const DryBreakers::Vocabulary vocabulary = {
      .size = size,
      .bytes = [&](Token token) { return test->input.breakers.contains(token) ? "a|b" : "word"; },
      .encode = [](std::string_view) { return std::vector<Token>(); }};
  test->breakers = DryBreakers({"|"}, vocabulary);
  test->input.history = {test->prompt, test->output, test->drafts, &test->breakers,
                         &test->mirostat};
}

// Sets what a stage needs so that it does something.
void TurnOn(Dice& dice, SamplerStage stage, SamplingOptions* options) {
  switch (stage) {
    case SamplerStage::kPenalties:
      options->repetition_penalty = dice.Between(0.5, 2);
      if (dice.Chance(0.7)) options->frequency_penalty = dice.Between(-0.5, 1);
      if (dice.Chance(0.7)) options->presence_penalty = dice.Between(-1, 2);
      if (dice.Chance(0.5)) options->repeat_last_n = dice.Integer(0, 70);
      return;
    case SamplerStage::kDry:
      options->dry.multiplier = dice.Between(0.1, 2);
      options->dry.base = dice.Between(1, 2);
      options->dry.allowed_length = dice.Integer(1, 4);
      if (dice.Chance(0.5)) options->dry.last_n = dice.Integer(0, 100);
      return;
    case SamplerStage::kTopNSigma:
      options->top_n_sigma = dice.Between(0.2, 4);
      return;
    case SamplerStage::kTemperature:
      options->temperature = dice.Between(0.2, 3);
      if (!dice.Chance(0.3)) return;
      options->dynamic_temperature = {dice.Between(0.05, 2), dice.Between(0.3, 2)};
      return;
    case SamplerStage::kTopK:
      options->top_k = dice.Integer(1, dice.Chance(0.5) ? 10 : 320);
      return;
    case SamplerStage::kTypicalP:
      options->typical_p = dice.Between(0.05, 0.999);
      return;
    case SamplerStage::kTopP:
      options->top_p = dice.Between(0.05, 0.999);
      return;
    case SamplerStage::kMinP:
      options->min_p = dice.Between(0.001, 0.6);
      return;
    case SamplerStage::kXtc:
      options->xtc = {dice.Between(0.2, 1), dice.Between(0.005, 0.4)};
      return;
  }
}

// Penalized logits are rounded to floats, 6e-8 of them, and histories pull on them several times;
// low temperatures magnify that. Without penalties the same tolerance covers weights of 2^-40.
constexpr double kTolerance = 1e-4;

std::string Describe(const SamplingOptions& options) {
  std::ostringstream text;
  text << " T " << options.temperature << " range " << options.dynamic_temperature.range
       << " mirostat " << options.mirostat.version;
  for (const SamplerStage stage : options.stages) text << " " << SamplerStageName(stage);
  return text.str();
}

class Comparison {
 public:
  void Expect(Case& test, const std::string& round) {
    const std::string what = round + Describe(test.input.options);
    ASSERT_TRUE(test.input.options.Validate(static_cast<int64_t>(test.input.logits.size())).ok());
    test.input.mu = test.mirostat.mu.value_or(2 * test.input.options.mirostat.tau);
    const auto expected = reference_.Run(test.input);
    if (reference_.margin < kTolerance) {
      ++ambiguous;
      return;
    }
    ++compared;
    const TokenDistribution got = sampler_.Distribution(test.input.logits, test.input.options,
                                                        test.input.position, test.input.history);
    for (const auto& [token, p] : expected) {
      ASSERT_NEAR(got.Of(token), p, kTolerance * p + 1e-11) << what << " token " << token;
    }
    for (const TokenDistribution::Entry& entry : got.entries()) {
      ASSERT_TRUE(expected.contains(entry.token)) << what << " token " << entry.token;
    }
    const Token token = sampler_.Sample(test.input.logits, test.input.options, test.input.position,
                                        test.input.history);
    const double uniform =
        UniformDouble(test.input.options.seed, static_cast<uint64_t>(test.input.position));
    ASSERT_EQ(token, got.Draw(uniform)) << what;
  }

  int compared = 0;
  int ambiguous = 0;

 private:
  ReferenceSampler reference_;
  Sampler sampler_;
};

TEST(SamplerChain, EachStageAloneIsItsDefinition) {
  for (const SamplerStage stage : DefaultStages()) {
    Comparison comparison;
    for (uint64_t round = 0; round < 400; ++round) {
      Dice dice(round * 16 + static_cast<uint64_t>(stage));
      Case test;
      MakeLogits(dice, &test.input.logits);
      MakeHistory(dice, &test);
      test.input.options.temperature = 1.0;
      test.input.options.seed = round;
      TurnOn(dice, stage, &test.input.options);
      test.input.position = dice.Integer(0, 1000);
      comparison.Expect(test, std::string(SamplerStageName(stage)) + " " + std::to_string(round));
      if (HasFatalFailure()) return;
    }
    EXPECT_GT(comparison.compared, 300) << SamplerStageName(stage);
  }
}

TEST(SamplerChain, RandomChainsInRandomOrdersAreTheirDefinition) {
  Comparison comparison;
  for (uint64_t round = 0; round < 6000; ++round) {
    Dice dice(round + 1'000'000);
    Case test;
    MakeLogits(dice, &test.input.logits);
    MakeHistory(dice, &test);
    SamplingOptions& options = test.input.options;
    options.temperature = dice.Chance(0.1) ? 0.0 : 1.0;
    options.seed = round;
    if (dice.Chance(0.5)) {
      for (size_t i = options.stages.size() - 1; i > 0; --i) {
        std::swap(options.stages[i],
                  options.stages[static_cast<size_t>(dice.Integer(0, static_cast<int64_t>(i)))]);
      }
      options.stages.resize(static_cast<size_t>(dice.Integer(0, 9)));
    }
    for (const SamplerStage stage : DefaultStages()) {
      if (options.temperature == 0.0 && stage == SamplerStage::kTemperature) continue;
      if (dice.Chance(0.5)) TurnOn(dice, stage, &options);
    }
    if (dice.Chance(0.3) && test.input.logits.size() > 1) {
      const auto bias = static_cast<float>(dice.Between(-5, 5));
      const bool is_ban = dice.Chance(0.3);
      options.logit_bias = {{0, is_ban ? -std::numeric_limits<float>::infinity() : bias}};
    }
    if (dice.Chance(0.15)) {
      options.mirostat = {dice.Integer(1, 2), dice.Between(0.5, 6), dice.Between(0, 1)};
      if (dice.Chance(0.5)) test.mirostat.mu = dice.Between(-1, 8);
    }
    test.input.position = dice.Integer(0, 1000);
    comparison.Expect(test, std::to_string(round));
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(comparison.compared, 5000);
}

// Upper 1e-6 quantile of chi-square (Wilson and Hilferty 1931). Seeds are fixed.
double ChiSquareLimit(double freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - a + 4.753 * std::sqrt(a), 3.0);
}

// With XTC the coin is part of the draw: the mixture of both distributions is what is drawn.
TEST(SamplerChain, ManyPositionsDrawTheDistribution) {
  constexpr int64_t kDraws = 100'000;
  std::vector<float> logits(60);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(5.0 * UniformDouble(3, i));
  }
  SamplingOptions options = {
      .temperature = 0.8, .top_k = 40, .top_p = 0.95, .min_p = 0.02, .seed = 99};
  options.typical_p = 0.98;
  Sampler sampler;
  options.xtc = {0.0, 0.05};
  const TokenDistribution without = sampler.Distribution(logits, options, 0);
  options.xtc.probability = 1.0;
  const TokenDistribution with = sampler.Distribution(logits, options, 0);
  ASSERT_LT(with.entries().size(), without.entries().size());
  options.xtc.probability = 0.3;
  std::vector<int64_t> counts(logits.size(), 0);
  for (int64_t i = 0; i < kDraws; ++i) {
    ++counts[static_cast<size_t>(sampler.Sample(logits, options, i))];
  }
  double statistic = 0.0;
  int cells = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const auto token = static_cast<Token>(i);
    const double wanted = kDraws * (0.7 * without.Of(token) + 0.3 * with.Of(token));
    if (wanted == 0.0) {
      ASSERT_EQ(counts[i], 0);
      continue;
    }
    ASSERT_GE(wanted, 10.0);
    const double difference = static_cast<double>(counts[i]) - wanted;
    statistic += difference * difference / wanted;
    ++cells;
  }
  EXPECT_LT(statistic, ChiSquareLimit(cells - 1));
}

TEST(SamplerChain, OneTokenIsAlwaysThatToken) {
  Sampler sampler;
  for (uint64_t round = 0; round < 200; ++round) {
    Dice dice(round);
    SamplingOptions options = {.temperature = 1.0, .seed = round};
    for (const SamplerStage stage : DefaultStages()) {
      if (dice.Chance(0.7)) TurnOn(dice, stage, &options);
    }
    options.mirostat.version = dice.Integer(0, 2);
    const std::vector<Token> output(20, 0);
    for (const float logit : {0.0f, -3.0e38f, 3.0e38f, INFINITY, -INFINITY, NAN}) {
      ASSERT_EQ(sampler.Sample(std::vector<float>{logit}, options, 5, {{}, output}), 0);
    }
  }
}

// Any accepted options over any logits: an id comes out, and the same one again.
TEST(SamplerChain, ExtremeOptionsAndLogitsGiveSomeToken) {
  const float extremes[] = {NAN, INFINITY, -INFINITY, 3.4e38f, -3.4e38f, 1e-45f, 0.0f, 1.0f};
  Sampler sampler;
  Sampler other;
  for (uint64_t round = 0; round < 20'000; ++round) {
    Dice dice(round + 5'000'000);
    std::vector<float> logits(static_cast<size_t>(dice.Integer(1, 12)));
    for (float& logit : logits) logit = extremes[dice.Integer(0, 7)];
    SamplingOptions options = {.temperature = 1.0, .seed = round};
    for (const SamplerStage stage : DefaultStages()) {
      if (dice.Chance(0.4)) TurnOn(dice, stage, &options);
    }
    const double temperatures[] = {5e-324, 1e-300, 1e-3, 1.0, 1e308};
    if (dice.Chance(0.5)) options.temperature = temperatures[dice.Integer(0, 4)];
    if (dice.Chance(0.2)) options.dynamic_temperature = {100, 100};
    if (dice.Chance(0.2)) options.top_p = 5e-324;
    if (dice.Chance(0.2)) options.typical_p = 5e-324;
    if (dice.Chance(0.2)) options.xtc = {1, 0};
    if (dice.Chance(0.2)) options.dry = {100, 100, 1, -1, {}};
    if (dice.Chance(0.2)) options.top_n_sigma = dice.Chance(0.5) ? 1e308 : 5e-324;
    if (dice.Chance(0.3)) options.mirostat = {dice.Integer(1, 2), 100 * dice.Uniform(), 1};
    if (dice.Chance(0.3)) std::reverse(options.stages.begin(), options.stages.end());
    ASSERT_TRUE(options.Validate(12).ok());
    const std::vector<Token> output = {0, 1, 0, 1, 0, 1, -7, 1 << 30, 0, 1, 0};
    MirostatState state;
    MirostatState again;
    TokenHistory history = {output, output, output, nullptr, &state};
    for (Position position = 0; position < 3; ++position) {
      history.mirostat = &state;
      const TokenDistribution distribution =
          sampler.Distribution(logits, options, position, history);
      const Token token = sampler.Sample(logits, options, position, history);
      ASSERT_GE(token, 0) << round;
      ASSERT_LT(token, static_cast<Token>(logits.size())) << round;
      ASSERT_GT(distribution.Of(token), 0.0) << round;
      history.mirostat = &again;
      ASSERT_EQ(other.Sample(logits, options, position, history), token) << round;
      ASSERT_EQ(state.mu, again.mu) << round;
    }
  }
}

// Drafts count as output: what is verified now is sampled as if it had been committed before.
TEST(SamplerChain, DraftsAreSampledAsIfCommitted) {
  Sampler sampler;
  for (uint64_t round = 0; round < 200; ++round) {
    Dice dice(round);
    std::vector<float> logits(50);
    for (float& logit : logits) logit = static_cast<float>(dice.Between(0, 4));
    std::vector<Token> tokens(40);
    for (Token& token : tokens) token = static_cast<Token>(dice.Integer(0, 4));
    SamplingOptions options = {.temperature = 1.0, .seed = round};
    TurnOn(dice, SamplerStage::kPenalties, &options);
    TurnOn(dice, SamplerStage::kDry, &options);
    const std::span<const Token> all = tokens;
    const Token plain = sampler.Sample(logits, options, 40, {all.first(10), all.subspan(10)});
    ASSERT_EQ(
        sampler.Sample(logits, options, 40, {all.first(10), all.subspan(10, 25), all.subspan(35)}),
        plain);
  }
}

// Pinned: any change of order, rounding or random numbers breaks users' seeds.
TEST(SamplerChain, SeedsKeepTheirMeaning) {
  std::vector<float> logits(1000);
  for (size_t i = 0; i < logits.size(); ++i) {
    logits[i] = static_cast<float>(8.0 * UniformDouble(12, i));
  }
  SamplingOptions options = {.temperature = 0.9, .seed = 1234, .presence_penalty = 0.5};
  options.typical_p = 0.9;
  options.top_n_sigma = 2.5;
  options.xtc = {0.5, 0.002};
  options.dry.multiplier = 0.8;
  options.dynamic_temperature = {0.5, 1.5};
  const std::vector<Token> output = {1, 2, 3, 4, 1, 2, 3};
  Sampler sampler;
  const auto draw = [&] {
    MirostatState state;
    std::vector<Token> tokens;
    for (Position p = 0; p < 8; ++p) {
      tokens.push_back(sampler.Sample(logits, options, p, {{}, output, {}, nullptr, &state}));
    }
    return tokens;
  };
  EXPECT_EQ(draw(), (std::vector<Token>{138, 629, 188, 712, 58, 778, 992, 707}));
  options.mirostat = {1, 9.0, 0.1};
  EXPECT_EQ(draw(), (std::vector<Token>{141, 645, 297, 765, 84, 833, 992, 721}));
  options.mirostat = {2, 5.0, 0.1};
  EXPECT_EQ(draw(), (std::vector<Token>{138, 642, 311, 777, 111, 833, 992, 779}));
}

TEST(SamplerChain, AllBannedGivesTheLargestThatCameIn) {
  Sampler sampler;
  SamplingOptions options = {.temperature = 1.0, .seed = 1};
  constexpr float kBan = -std::numeric_limits<float>::infinity();
  options.logit_bias = {{0, kBan}, {1, kBan}, {2, kBan}};
  EXPECT_EQ(sampler.Sample(std::vector<float>{1.0f, 3.0f, 2.0f}, options, 0), 1);
}

}  // namespace
}  // namespace kvasir
