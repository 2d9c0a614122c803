// Rejection sampling keeps the target's distribution, whatever the drafter does.
// Deliberately statistical; seeds are fixed.
#include "kvasir/sampling/draft_verdict.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "kvasir/base/rng.h"

namespace kvasir {
namespace {

constexpr int64_t kDraws = 100'000;

// Upper 1e-6 quantile of chi-square (Wilson and Hilferty 1931).
double ChiSquareLimit(double freedom) {
  const double a = 2.0 / (9.0 * freedom);
  return freedom * std::pow(1.0 - a + 4.753 * std::sqrt(a), 3.0);
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

}  // namespace
}  // namespace kvasir
