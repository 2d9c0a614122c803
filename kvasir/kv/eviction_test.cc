#include "kvasir/kv/eviction.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace kvasir {
namespace {

std::vector<int64_t> Range(int64_t begin, int64_t end) {
  std::vector<int64_t> rows(static_cast<size_t>(end - begin));
  std::iota(rows.begin(), rows.end(), begin);
  return rows;
}

std::vector<int64_t> Without(std::vector<int64_t> rows, std::vector<int64_t> lost) {
  std::erase_if(
      rows, [&](int64_t row) { return std::find(lost.begin(), lost.end(), row) != lost.end(); });
  return rows;
}

// New blocks that are an old one as it was.
int64_t WholeBlocks(const std::vector<int64_t>& source) {
  int64_t whole = 0;
  for (size_t begin = 0; begin + 64 <= source.size(); begin += 64) {
    bool same = source[begin] % 64 == 0;
    for (size_t i = 1; i < 64; ++i)
      same = same && source[begin + i] == source[begin] + static_cast<int64_t>(i);
    whole += same;
  }
  return whole;
}

TEST(ArrangeRowsTest, NothingLostNothingMoves) {
  EXPECT_EQ(ArrangeRows(Range(0, 200), {}), Range(0, 200));
  EXPECT_EQ(ArrangeRows(Range(0, 200), {.recent = 70, .dense_blocks = 1}), Range(0, 200));
  EXPECT_TRUE(ArrangeRows({}, {.recent = 3}).empty());
}

TEST(ArrangeRowsTest, OnlyBlocksThatLoseRowsAreTouched) {
  // Blocks 1 and 3 of 8 lose half of their rows: together they make one new block.
  std::vector<int64_t> lost = Range(64, 96);
  for (const int64_t row : Range(200, 232)) lost.push_back(row);
  const auto source = ArrangeRows(Without(Range(0, 512), lost), {.recent = 128});
  EXPECT_EQ(source.size(), 448u);
  EXPECT_EQ(WholeBlocks(source), 6);
  EXPECT_TRUE(std::equal(source.end() - 128, source.end(), Range(384, 512).begin()));
}

TEST(ArrangeRowsTest, DenseBlocksStayInFront) {
  // Block 0 is dense and loses rows; whole blocks behind it must not move into it.
  const auto source = ArrangeRows(Without(Range(0, 320), Range(0, 64)), {.dense_blocks = 2});
  EXPECT_EQ(source[0], 64);
  EXPECT_EQ(source[128], 128);
  EXPECT_EQ(WholeBlocks(source), 4);
}

TEST(ArrangeRowsTest, IsAPermutationThatKeepsTheTail) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<int64_t> kept;
    const int64_t rows = random() % 700;
    const auto recent = static_cast<int64_t>(random() % 150);
    for (int64_t row = 0; row < rows; ++row) {
      // Whole blocks often survive.
      const bool stays = (row / 64 * 7 + round) % 3 == 0 || random() % 3 != 0;
      if (stays || row >= rows - recent) kept.push_back(row);
    }
    const int64_t dense = random() % 4;
    auto source = ArrangeRows(kept, {.recent = recent, .dense_blocks = dense});
    const auto tail = std::min<int64_t>(recent, static_cast<int64_t>(kept.size()));
    EXPECT_TRUE(std::equal(kept.end() - tail, kept.end(), source.end() - tail));
    for (size_t i = 0; i < source.size(); ++i) {
      // Never from a dense block into one that is not.
      ASSERT_TRUE(source[i] / 64 >= dense || static_cast<int64_t>(i) / 64 < dense);
    }
    std::sort(source.begin(), source.end());
    ASSERT_EQ(source, kept);
  }
}

}  // namespace
}  // namespace kvasir
