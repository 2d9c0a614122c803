#include "kvasir/backend/weight_lookahead.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

class WeightLookaheadTest : public testing::Test {
 protected:
  using Matrix = WeightLookahead::Matrix;

  static Matrix Make(int64_t outputs) {
    auto matrix = PackedMatrix::Allocate(outputs, 64, WeightFormat::kF32);
    EXPECT_TRUE(matrix.ok());
    return std::make_shared<const PackedMatrix>(std::move(matrix).value());
  }
  void Multiply(const Matrix& a) { lookahead_.Begin(std::vector{a}); }
  void Multiply(const Matrix& a, const Matrix& b) { lookahead_.Begin(std::vector{a, b}); }
  // Bytes that `thread` reads until there is nothing to do, in steps of 1 KiB.
  size_t Fetched(int thread) {
    size_t steps = 0;
    while (lookahead_.Step(thread)) ++steps;
    return steps * 1024;
  }

  WeightLookahead lookahead_{2, 1};
  const Matrix first_ = Make(32);   // panels of 4 KiB
  const Matrix second_ = Make(96);  // 6 panels
  const Matrix third_ = Make(32);
};

TEST_F(WeightLookaheadTest, NothingIsKnownInTheFirstStep) {
  EXPECT_EQ(Fetched(0), 0u);
  Multiply(first_);
  EXPECT_EQ(Fetched(0), 0u);
  Multiply(second_);
  EXPECT_EQ(Fetched(1), 0u);
}

TEST_F(WeightLookaheadTest, FetchesWhatCameNextBefore) {
  for (int step = 0; step < 2; ++step) {
    Multiply(first_);
    if (step == 1) {
      // From the middle of both on: the rest of the second, up to its end.
      EXPECT_EQ(Fetched(1), 2u * 4096);
      EXPECT_EQ(Fetched(0), 6u * 4096);
      EXPECT_EQ(Fetched(0), 0u) << "fetched twice";
    }
    Multiply(second_, third_);
  }
}

// Where a matmul's tiles are shared out, whole ones: of 3 and 1 tiles the second thread begins with
// the third, which is one panel, and of 1 and 2 tiles with the first of the second matrix.
TEST_F(WeightLookaheadTest, FetchesWhereTheShareBegins) {
  const Matrix nine = Make(9 * 16);
  const Matrix three = Make(3 * 16);
  const auto fetched = [&](std::vector<Matrix> next, int thread) {
    const std::vector<Matrix> before = {first_};
    WeightLookahead lookahead(2, 4);
    for (int step = 0; step < 2; ++step) {
      lookahead.Begin(before);
      if (step == 0) lookahead.Begin(next);
    }
    size_t steps = 0;
    while (lookahead.Step(thread)) ++steps;
    return steps * 1024;
  };
  EXPECT_EQ(fetched({nine, three}, 0), 9u * 4096);
  EXPECT_EQ(fetched({nine, three}, 1), 1u * 4096);
  EXPECT_EQ(fetched({three, second_}, 1), 6u * 4096);
  // Of three tiles the second thread begins with the second.
  EXPECT_EQ(fetched({nine}, 1), 5u * 4096);
}

TEST_F(WeightLookaheadTest, GivesUpWhereTheNextOneChanges) {
  Multiply(first_);
  Multiply(second_);
  Multiply(first_);
  Multiply(third_);
  Multiply(first_);
  EXPECT_EQ(Fetched(0), 0u);
}

TEST_F(WeightLookaheadTest, IsBounded) {
  const Matrix large = Make(1 << 14);
  Multiply(first_);
  Multiply(large);
  Multiply(first_);
  EXPECT_EQ(Fetched(0), size_t{256} << 10);
}

// A thread may read on while nobody multiplies, even if a model has gone meanwhile.
TEST_F(WeightLookaheadTest, KeepsAliveWhatItReads) {
  Matrix gone = Make(32);
  const std::weak_ptr<const PackedMatrix> watched = gone;
  Multiply(first_);
  Multiply(gone);
  Multiply(first_);
  gone.reset();
  EXPECT_FALSE(watched.expired());
  EXPECT_EQ(Fetched(0), 2u * 4096);
}

}  // namespace
}  // namespace kvasir
