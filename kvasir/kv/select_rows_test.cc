#include "kvasir/kv/select_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace kvasir {
namespace {

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

RetentionSpec Budget(int64_t size, int64_t keep = 0, int64_t recent = 0) {
  return {.kind = RetentionSpec::Kind::kBudget, .size = size, .keep = keep, .recent = recent};
}

std::vector<Position> Ascending(size_t count) {
  std::vector<Position> positions(count);
  for (size_t i = 0; i < count; ++i) positions[i] = static_cast<Position>(i);
  return positions;
}

// One row at a time: the row that beats all others by the rule of select_rows.h.
std::vector<int64_t> NaiveSelect(std::span<const float> scores, std::span<const Position> positions,
                                 const RetentionSpec& budget) {
  const auto later = [&](size_t row) {
    return std::count_if(positions.begin(), positions.end(),
                         [&](Position other) { return other > positions[row]; });
  };
  std::vector<int64_t> chosen;
  while (static_cast<int64_t>(chosen.size()) < budget.size && chosen.size() < scores.size()) {
    int64_t best = -1;
    std::tuple<bool, bool, float, Position> best_key;
    for (size_t row = 0; row < scores.size(); ++row) {
      if (std::find(chosen.begin(), chosen.end(), static_cast<int64_t>(row)) != chosen.end()) {
        continue;
      }
      const bool is_protected = positions[row] < budget.keep || later(row) < budget.recent;
      const bool is_number = !std::isnan(scores[row]);
      const std::tuple key = {is_protected, is_number, is_number ? scores[row] : 0.0f,
                              positions[row]};
      if (best < 0 || key > best_key) {
        best = static_cast<int64_t>(row);
        best_key = key;
      }
    }
    chosen.push_back(best);
  }
  std::sort(chosen.begin(), chosen.end());
  return chosen;
}

TEST(SelectRowsTest, KeepsTheBestAscending) {
  const std::vector<float> scores = {3, 1, 4, 1, 5, 9};
  EXPECT_EQ(SelectRows(scores, Ascending(6), Budget(3)), (std::vector<int64_t>{2, 4, 5}));
}

TEST(SelectRowsTest, KeepsAllWithinTheBudget) {
  const std::vector<float> scores = {kNan, -1, 2};
  const std::vector<int64_t> all = {0, 1, 2};
  EXPECT_EQ(SelectRows(scores, Ascending(3), Budget(3)), all);
  EXPECT_EQ(SelectRows(scores, Ascending(3), Budget(64)), all);
  EXPECT_TRUE(SelectRows({}, {}, Budget(4)).empty());
}

TEST(SelectRowsTest, ProtectsFirstPositionsAndLatestRows) {
  const std::vector<float> scores = {-kInfinity, -5, kInfinity, 7, 6, -kInfinity};
  EXPECT_EQ(SelectRows(scores, Ascending(6), Budget(3, 1, 1)), (std::vector<int64_t>{0, 2, 5}));
}

TEST(SelectRowsTest, ProtectsPositionsNotRows) {
  // Positions 0 and 1 are gone; 9 and 12 are the latest, wherever their rows are.
  const std::vector<Position> positions = {12, 2, 9, 3, 7};
  const std::vector<float> scores = {0, 1, 0, 5, 2};
  EXPECT_EQ(SelectRows(scores, positions, Budget(3, 2, 2)), (std::vector<int64_t>{0, 2, 3}));
}

TEST(SelectRowsTest, TheLaterPositionWinsATie) {
  const std::vector<float> scores = {2, 2, 2, 2};
  EXPECT_EQ(SelectRows(scores, Ascending(4), Budget(2)), (std::vector<int64_t>{2, 3}));
  const std::vector<Position> reversed = {40, 30, 20, 10};
  EXPECT_EQ(SelectRows(scores, reversed, Budget(2)), (std::vector<int64_t>{0, 1}));
}

TEST(SelectRowsTest, NanIsWorseThanMinusInfinity) {
  const std::vector<float> scores = {kNan, -kInfinity, kNan, 1};
  EXPECT_EQ(SelectRows(scores, Ascending(4), Budget(2)), (std::vector<int64_t>{1, 3}));
  EXPECT_EQ(SelectRows(scores, Ascending(4), Budget(3)), (std::vector<int64_t>{1, 2, 3}));
}

TEST(SelectRowsTest, EqualsTheNaiveChoice) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937 random(seed);
    const size_t count = random() % 80;
    std::vector<float> scores(count);
    // Few distinct values make many ties.
    for (float& score : scores) {
      const uint32_t kind = random() % 20;
      score = kind == 0 ? kNan : static_cast<float>(kind % 6) - 2.5f;
    }
    std::vector<Position> positions = Ascending(count);
    for (size_t i = 1; i < count; ++i) positions[i] = positions[i - 1] + 1 + random() % 3;
    if (seed % 2 == 1) std::shuffle(positions.begin(), positions.end(), random);
    const auto keep = static_cast<int64_t>(random() % 8);
    const auto recent = static_cast<int64_t>(random() % 8);
    const RetentionSpec budget = Budget(keep + recent + random() % 60 + 1, keep, recent);
    EXPECT_EQ(SelectRows(scores, positions, budget), NaiveSelect(scores, positions, budget));
  }
}

}  // namespace
}  // namespace kvasir
