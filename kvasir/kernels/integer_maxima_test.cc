// The largest scores of a block, and for which rows it is decisive (integer_maxima.cc).
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kvasir/kernels/integer_test_util.h"

namespace kvasir {
namespace {

using testing::AwkwardScores;
using testing::ExpectSameBits;
using testing::kInfinity;
using testing::kNan;
using testing::kRows;
using testing::Oracle;
using testing::SimdTables;
using testing::SumCase;

// What prepare_scores and find_decisive leave.
struct Maxima {
  std::vector<float> scores;  // of rows that see something, and their largest behind them
  std::vector<int32_t> decisive;
  std::vector<int32_t> others;

  Maxima(const KernelTable& table, SumCase c) {
    std::vector<float> largest(c.max.size());
    const WeighTileArgs args = {.scores = c.scores.data(),
                                .rows = c.rows,
                                .begin = c.begin.data(),
                                .end = c.end.data(),
                                .softcap = c.softcap,
                                .to_base2 = c.to_base2,
                                .max = c.max.data(),
                                .sum = c.sum.data(),
                                .largest = largest.data()};
    table.prepare_scores(args);
    decisive.resize(largest.size());
    others.resize(largest.size());
    DecisiveRows found = {.decisive = decisive.data(), .others = others.data()};
    table.find_decisive(args, found);
    decisive.resize(static_cast<size_t>(found.decisive_count));
    others.resize(static_cast<size_t>(found.others_count));
    for (size_t r = 0; r < largest.size(); ++r) {
      if (c.begin[r] == c.end[r]) continue;
      const auto row = c.scores.begin() + static_cast<int64_t>(r * kBlockTokens);
      scores.insert(scores.end(), row, row + kBlockTokens);
      scores.push_back(largest[r]);
    }
  }
};

TEST(IntegerMaxima, TablesFindWhatTheOracleFinds) {
  constexpr float kOdd[] = {0.0f, -0.0f, 1.0f, 300.0f, 1e30f, kInfinity, -kInfinity, kNan};
  std::mt19937 random(41);
  int64_t decisive = 0;
  int64_t others = 0;
  for (uint32_t i = 0; i < 200; ++i) {
    SumCase c(kRows[i % std::size(kRows)] + (i % 4 == 0 ? 7 : 0), 16, i % 3);
    if (i % 5 == 1) c.scores = AwkwardScores(c.scores.size());
    if (i % 5 == 2) c.softcap = 2.0f;
    if (i % 5 == 3) c.to_base2 = 1.4427f;
    for (float& sum : c.sum) sum = std::ldexp(1.0f, static_cast<int>(random() % 16) - 2);
    for (size_t r = 0; i % 5 == 4 && r < c.max.size(); ++r) {
      c.max[r] = kOdd[random() % std::size(kOdd)];
      c.sum[r] = kOdd[random() % std::size(kOdd)];
    }
    const Maxima expected(Oracle(), c);
    decisive += static_cast<int64_t>(expected.decisive.size());
    others += static_cast<int64_t>(expected.others.size());
    for (const KernelTable* table : SimdTables()) {
      const Maxima found(*table, c);
      ExpectSameBits(expected.scores, found.scores, std::string(IsaName(table->isa)));
      EXPECT_EQ(expected.decisive, found.decisive) << IsaName(table->isa) << ", case " << i;
      EXPECT_EQ(expected.others, found.others) << IsaName(table->isa) << ", case " << i;
    }
  }
  EXPECT_GT(decisive, 500);
  EXPECT_GT(others, 500);
}

// A block is decisive from a weight of a quarter of what came before, and for a row's first block.
TEST(IntegerMaxima, ABlockIsDecisiveByItsLargestWeight) {
  SumCase c(8, 16, 0);
  std::fill(c.scores.begin(), c.scores.end(), -100.0f);
  const struct {
    float score;
    float max;
    float sum;
    bool is_decisive;
  } rows[] = {{3.0f, 3.0f, 3.9f, true},         {3.0f, 3.0f, 4.0f, false},
              {-40.0f, -kInfinity, 0.0f, true}, {-7.0f, 3.0f, 0.0039f, true},
              {-7.0f, 3.0f, 0.0040f, false},    {11.0f, 3.0f, 1000.0f, true},
              {11.0f, 3.0f, 1024.0f, false},    {11.5f, 3.0f, 1e9f, true}};
  std::vector<int32_t> expected;
  for (size_t r = 0; r < std::size(rows); ++r) {
    c.scores[r * kBlockTokens + 7 * r] = rows[r].score;
    c.max[r] = rows[r].max;
    c.sum[r] = rows[r].sum;
    if (rows[r].is_decisive) expected.push_back(static_cast<int32_t>(r));
  }
  for (const Isa isa : SupportedIsas()) {
    EXPECT_EQ(Maxima(KernelsFor(isa), c).decisive, expected) << IsaName(isa);
  }
}

}  // namespace
}  // namespace kvasir
