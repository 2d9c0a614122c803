// Rejection sampling keeps the target's distribution, whatever the drafter does.
// Deliberately statistical; seeds are fixed.
#include "kvasir/sampling/draft_verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvasir/base/rng.h"
#include "kvasir/sampling/sampler.h"

namespace kvasir {
namespace {

constexpr int64_t kDraws = 100'000;

// Upper 1e-6 quantile of chi-square (Wilson and Hilferty 1931).
double ChiSquareLimit(double freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - a + 4.753 * std::sqrt(a), 3.0);
}

// Of ten tokens, each drawn so many times of kDraws.
void ExpectDrawnFrom(const TokenDistribution& target, const std::vector<double>& counts) {
  double statistic = 0.0;
  for (Token token = 0; token < 10; ++token) {
    const double wanted = kDraws * target.Of(token);
    const double count = counts[static_cast<size_t>(token)];
    if (wanted == 0.0) {
      EXPECT_EQ(count, 0.0);
    } else {
      statistic += (count - wanted) * (count - wanted) / wanted;
    }
  }
  EXPECT_LT(statistic,
            ChiSquareLimit(std::max(1.0, static_cast<double>(target.entries().size()) - 1)));
}

// Draws from `drafter` (nullptr: always token `fixed`), verifies, and compares with `target`.
// Result: the share of accepted drafts.
double ExpectTarget(const TokenDistribution& target, const TokenDistribution* drafter,
                    Token fixed = 0) {
  std::vector<double> counts(10, 0.0);
  double accepted = 0.0;
  for (Position position = 0; position < kDraws; ++position) {
    const double uniform = UniformDouble(1, static_cast<uint64_t>(position));
    const Token drafted = drafter != nullptr ? drafter->Draw(uniform) : fixed;
    const DraftVerdict verdict = VerifyDraft(target, {drafted, drafter}, 1, position);
    EXPECT_TRUE(!verdict.accepted || verdict.token == drafted);
    ++counts[static_cast<size_t>(verdict.token)];
    accepted += verdict.accepted ? 1.0 : 0.0;
  }
  ExpectDrawnFrom(target, counts);
  return accepted / kDraws;
}

// Six standard deviations of a share over kDraws.
constexpr double kShareTolerance = 0.01;

TEST(DraftVerdict, KeepsTheTargetAndAcceptsTheOverlap) {
  const TokenDistribution target({{0, 10}, {2, 30}, {3, 40}, {7, 20}});
  const TokenDistribution drafter({{0, 40}, {1, 20}, {2, 10}, {3, 30}});
  // Sum of min(p, q): 0.1 + 0.1 + 0.3.
  EXPECT_NEAR(ExpectTarget(target, &drafter), 0.5, kShareTolerance);
}

TEST(DraftVerdict, EqualDistributionsAlwaysAccept) {
  const TokenDistribution target({{0, 10}, {2, 30}, {3, 41}, {7, 20}});
  EXPECT_EQ(ExpectTarget(target, &target), 1.0);
}

TEST(DraftVerdict, DisjointOnesNeverDo) {
  const TokenDistribution target({{0, 10}, {2, 30}});
  const TokenDistribution drafter({{1, 10}, {9, 30}});
  EXPECT_EQ(ExpectTarget(target, &drafter), 0.0);
}

TEST(DraftVerdict, FixedDraftsAreAcceptedWithTheirProbability) {
  const TokenDistribution target({{0, 10}, {2, 30}, {3, 60}});
  EXPECT_NEAR(ExpectTarget(target, nullptr, 2), 0.3, kShareTolerance);
  EXPECT_EQ(ExpectTarget(target, nullptr, 5), 0.0);
  const TokenDistribution certain({{4, 1}});
  EXPECT_EQ(ExpectTarget(certain, nullptr, 4), 1.0);
}

TEST(DraftVerdict, ADraftItsDistributionCannotGiveIsRefused) {
  const TokenDistribution target({{0, 1}, {2, 1}});
  const TokenDistribution drafter({{0, 1}});
  const DraftVerdict verdict = VerifyDraft(target, {2, &drafter}, 3, 0);
  EXPECT_FALSE(verdict.accepted);
  EXPECT_EQ(verdict.token, 2);
}

// Chains of ten tokens' logits, with penalties for what was said and drafted.
std::vector<SamplingOptions> Chains() {
  std::vector<SamplingOptions> chains(6);
  for (SamplingOptions& chain : chains) {
    chain.temperature = 0.9;
    chain.seed = 11;
  }
  chains[1].top_k = 4;
  chains[2].top_p = 0.8;
  chains[3].min_p = 0.1;
  chains[4].repetition_penalty = 1.5;
  chains[4].presence_penalty = 0.4;
  chains[4].frequency_penalty = 0.3;
  chains[5] = chains[4];
  chains[5].top_k = 7;
  chains[5].top_p = 0.9;
  chains[5].min_p = 0.02;
  return chains;
}

const std::vector<float> kTargetLogits = {0.1f, 2.0f, 1.5f,  -1.0f, 0.7f,
                                          1.9f, 0.0f, -0.5f, 1.1f,  0.4f};
const std::vector<float> kDraftLogits = {0.4f, 1.6f, 1.9f,  -1.2f, 0.2f,
                                         1.0f, 0.3f, -2.0f, 1.4f,  0.1f};
const std::vector<Token> kSaid = {1, 5, 5, 8};
const std::vector<Token> kDrafted = {2, 1};  // in flight before this one
const TokenHistory kHistory = {{}, kSaid, kDrafted};

TEST(DraftVerdict, KeepsTheTargetUnderEveryChain) {
  Sampler sampler;
  for (const SamplingOptions& chain : Chains()) {
    const TokenDistribution target = sampler.Distribution(kTargetLogits, chain, 0, kHistory);
    const TokenDistribution drafter = sampler.Distribution(kDraftLogits, chain, 0, kHistory);
    EXPECT_GT(ExpectTarget(target, &drafter), 0.4);
  }
}

// What the engine does: drafter and target draw with the random number of the position, and a
// draft is accepted if it is what the target drew.
TEST(CoupledDrafts, KeepTheTargetUnderEveryChain) {
  Sampler sampler;
  for (const SamplingOptions& chain : Chains()) {
    const TokenDistribution target = sampler.Distribution(kTargetLogits, chain, 0, kHistory);
    std::vector<double> counts(10, 0.0);
    double equal = 0.0;
    for (Position position = 0; position < kDraws; ++position) {
      const Token drafted = sampler.Sample(kDraftLogits, chain, position, kHistory);
      const Token token = sampler.Sample(kTargetLogits, chain, position, kHistory);
      ++counts[static_cast<size_t>(token)];
      equal += drafted == token ? 1.0 : 0.0;
    }
    ExpectDrawnFrom(target, counts);
    // Two independent draws would be equal in the sum of p * q.
    const TokenDistribution drafter = sampler.Distribution(kDraftLogits, chain, 0, kHistory);
    double independent = 0.0;
    for (Token token = 0; token < 10; ++token) independent += target.Of(token) * drafter.Of(token);
    EXPECT_GT(equal / kDraws, independent + kShareTolerance);
  }
}

}  // namespace
}  // namespace kvasir
