#include "kvasir/engine/hidden_pool.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvasir {
namespace {

constexpr int64_t kRows = 7;
constexpr int64_t kCols = 3;

class HiddenPoolTest : public testing::Test {
 protected:
  HiddenPoolTest() {
    for (size_t i = 0; i < states_.size(); ++i) {
      states_[i] = std::sin(static_cast<float>(i * i)) + 0.3f;
    }
  }
  ConstFloatRows Rows(int64_t begin, int64_t count) const {
    return ConstFloatRows(states_.data(), kRows, kCols, kCols).Part(begin, count);
  }
  std::vector<float> states_ = std::vector<float>(kRows * kCols);
};

TEST_F(HiddenPoolTest, MeanIsThatOfAllStatesWithLengthOne) {
  HiddenPool pool(Pooling::kMean);
  pool.Add(0, Rows(0, kRows));
  std::vector<double> mean(kCols);
  for (size_t i = 0; i < states_.size(); ++i) mean[i % kCols] += states_[i] / double{kRows};
  const double length = std::hypot(mean[0], mean[1], mean[2]);
  const std::vector<float> embedding = pool.Embedding();
  ASSERT_EQ(embedding.size(), mean.size());
  // Two roundings to float apart, of values below 1.
  for (size_t i = 0; i < mean.size(); ++i) EXPECT_NEAR(embedding[i], mean[i] / length, 1e-7);
}

TEST_F(HiddenPoolTest, ChunksAndWhatIsReadAgainChangeNothing) {
  for (const Pooling pooling : {Pooling::kMean, Pooling::kLast}) {
    HiddenPool whole(pooling);
    whole.Add(0, Rows(0, kRows));
    HiddenPool parts(pooling);
    parts.Add(0, Rows(0, 2));
    parts.Add(2, Rows(2, 3));
    EXPECT_EQ(parts.position(), 5);
    parts.Add(1, Rows(1, 5));  // as after a preemption
    parts.Add(6, Rows(6, 1));
    EXPECT_EQ(parts.position(), kRows);
    EXPECT_EQ(parts.Embedding(), whole.Embedding());
  }
}

TEST_F(HiddenPoolTest, LastIsTheLastState) {
  HiddenPool pool(Pooling::kLast);
  EXPECT_EQ(pool.WantedRows(5, false), 0);
  EXPECT_EQ(pool.WantedRows(5, true), 1);
  pool.Add(6, Rows(6, 1));
  std::vector<float> last(Rows(6, 1).row(0), Rows(6, 1).row(0) + kCols);
  NormalizeLength(&last);
  EXPECT_EQ(pool.Embedding(), last);
}

TEST(NormalizeLengthTest, ZerosStayZeros) {
  std::vector<float> zeros(4);
  NormalizeLength(&zeros);
  EXPECT_EQ(zeros, std::vector<float>(4));
}

TEST(PoolingFromNameTest, KnowsTwo) {
  EXPECT_EQ(PoolingFromName("mean"), Pooling::kMean);
  EXPECT_EQ(PoolingFromName("last"), Pooling::kLast);
  EXPECT_EQ(PoolingFromName("cls"), std::nullopt);
}

}  // namespace
}  // namespace kvasir
