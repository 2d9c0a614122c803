#include "kvasir/kv/speculation.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

using Counts = std::vector<int64_t>;

class SpeculationTest : public testing::Test {
 protected:
  KvSequence Make(Token first, int64_t tokens) {
    auto sequence = Must(KvSequence::Create(&pool_, spec_));
    MustOk(Append(sequence, Tokens(first, tokens)));
    return sequence;
  }

  KvPool pool_{Budget(kAmpleBytes)};
  std::shared_ptr<const KvCacheSpec> spec_ =
      Spec({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(20), F16()),
            Layer(RetentionSpec::Chunk(50))});
};

std::vector<Token> Concat(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(SpeculationTest, CommitsADifferentLengthOfEach) {
  auto a = Make(0, 100), b = Make(1000, 64), c = Make(2000, 3);
  const std::vector<KvSequence*> all = {&a, &b, &c};
  auto speculation = Must(Speculation::Begin(all));
  for (KvSequence* sequence : all) MustOk(Append(*sequence, Tokens(7000, 5)));
  EXPECT_EQ(speculation.appended(1), 5);
  MustOk(speculation.Commit(Counts{5, 0, 2}));
  EXPECT_FALSE(speculation.open());
  ExpectHolds(a, Concat(Tokens(0, 100), Tokens(7000, 5)));
  ExpectHolds(b, Tokens(1000, 64));
  ExpectHolds(c, Concat(Tokens(2000, 3), Tokens(7000, 2)));
  EXPECT_EQ(speculation.Commit(Counts{5, 0, 2}).error().code, ErrorCode::kFailedPrecondition);
  for (KvSequence* sequence : all) MustOk(Append(*sequence, Tokens(8000, 70)));
  ExpectHolds(b, Concat(Tokens(1000, 64), Tokens(8000, 70)));
}

// At every position and draft length, past a window and across blocks and chunks: going back
// leaves the state in which nothing had been appended, block for block.
TEST_F(SpeculationTest, RolledBackIsAsNeverAppended) {
  for (const int64_t length : {0, 1, 19, 20, 49, 50, 63, 64, 83, 84, 127, 128, 150, 199}) {
    for (const int64_t drafts : {1, 4, 20, 64, 65, 200}) {
      auto sequence = Make(0, length);
      const auto untouched = Make(0, length);
      KvSequence* const member = &sequence;
      {
        const auto speculation = Must(Speculation::Begin({&member, 1}));
        MustOk(Append(sequence, Tokens(500, drafts)));
        ExpectHolds(sequence, Concat(Tokens(0, length), Tokens(500, drafts)));
      }
      ExpectHolds(sequence, Tokens(0, length));
      EXPECT_EQ(sequence.nbytes(), untouched.nbytes());
      EXPECT_EQ(sequence.MaxTrim(), untouched.MaxTrim());
      EXPECT_EQ(sequence.reserved_end(), length);
      for (int layer = 0; layer < 3; ++layer) {
        EXPECT_EQ(sequence.Blocks(layer).first_block, untouched.Blocks(layer).first_block);
      }
      MustOk(Append(sequence, Tokens(900, 90)));
      ExpectHolds(sequence, Concat(Tokens(0, length), Tokens(900, 90)));
    }
  }
}

TEST_F(SpeculationTest, EveryExitRollsBack) {
  auto sequence = Make(0, 40);
  KvSequence* const member = &sequence;
  {
    auto speculation = Must(Speculation::Begin({&member, 1}));
    MustOk(sequence.Reserve(300));  // reserved, never written
  }
  ExpectHolds(sequence, Tokens(0, 40));
  EXPECT_EQ(pool_.used_bytes(), sequence.nbytes());
  auto speculation = Must(Speculation::Begin({&member, 1}));
  MustOk(Append(sequence, Tokens(500, 3)));
  speculation.Rollback();
  speculation.Rollback();
  ExpectHolds(sequence, Tokens(0, 40));
  {
    auto moved_from = Must(Speculation::Begin({&member, 1}));
    MustOk(Append(sequence, Tokens(500, 3)));
    std::optional<Speculation> moved_to(std::move(moved_from));
    EXPECT_FALSE(moved_from.open());
    moved_to.reset();
    ExpectHolds(sequence, Tokens(0, 40));
  }
}

TEST_F(SpeculationTest, WrongCountsLeaveItOpenAndWhole) {
  auto a = Make(0, 10), b = Make(100, 10);
  const std::vector<KvSequence*> both = {&a, &b};
  auto speculation = Must(Speculation::Begin(both));
  MustOk(Append(a, Tokens(500, 4)));
  for (const Counts& wrong : {Counts{}, Counts{1}, Counts{1, 1}, Counts{5, 0}, Counts{-1, 0}}) {
    const Status status = speculation.Commit(wrong);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
    EXPECT_TRUE(speculation.open());
    EXPECT_EQ(a.position(), 14);
  }
  MustOk(speculation.Commit(Counts{4, 0}));
  EXPECT_EQ(a.position(), 14);
}

TEST_F(SpeculationTest, OneSequenceIsInOneSpeculation) {
  auto a = Make(0, 10), b = Make(100, 10);
  const std::vector<KvSequence*> twice = {&a, &b, &a};
  const auto named_twice = Speculation::Begin(twice);
  ASSERT_FALSE(named_twice.ok());
  EXPECT_EQ(named_twice.error().code, ErrorCode::kFailedPrecondition);

  KvSequence* const only_a = &a;
  auto speculation = Must(Speculation::Begin({&only_a, 1}));
  const std::vector<KvSequence*> both = {&b, &a};
  EXPECT_FALSE(Speculation::Begin(both).ok());
  KvSequence* const only_b = &b;
  auto other = Must(Speculation::Begin({&only_b, 1}));  // b was not left open by the failure
  MustOk(Append(b, Tokens(110, 2)));
  MustOk(other.Commit(Counts{2}));
  ExpectHolds(b, Tokens(100, 12));
}

TEST_F(SpeculationTest, AFailedBeginKeepsReservations) {
  auto a = Make(0, 10), b = Make(100, 10);
  MustOk(a.Reserve(30));
  const std::vector<KvSequence*> twice = {&a, &b, &b};
  EXPECT_FALSE(Speculation::Begin(twice).ok());
  EXPECT_EQ(a.reserved_end(), 40);
}

TEST_F(SpeculationTest, TrimsInsideStopAtTheStart) {
  auto sequence = Make(0, 60);
  KvSequence* const member = &sequence;
  auto speculation = Must(Speculation::Begin({&member, 1}));
  MustOk(Append(sequence, Tokens(500, 10)));
  EXPECT_EQ(sequence.MaxTrim(), 10);
  const auto refused = sequence.Trim(11);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(Must(sequence.Trim(7)), 7);
  MustOk(speculation.Commit(Counts{3}));
  ExpectHolds(sequence, Concat(Tokens(0, 60), Tokens(500, 3)));
}

TEST_F(SpeculationTest, OnASharedTailNothingIsLost) {
  auto original = Make(0, 40);
  auto fork = original.Fork();
  KvSequence* const member = &fork;
  {
    const auto speculation = Must(Speculation::Begin({&member, 1}));
    MustOk(Append(fork, Tokens(500, 30)));
  }
  ExpectHolds(fork, Tokens(0, 40));
  ExpectHolds(original, Tokens(0, 40));
  MustOk(Append(original, Tokens(40, 5)));
  ExpectHolds(original, Tokens(0, 45));
}

TEST(SpeculationBudgetTest, AFullPoolInTheMiddleRollsBackCleanly) {
  const KvLayerSpec layer = Layer(RetentionSpec::All());
  KvPool pool(Budget(3 * layer.layout.BlockBytes(0)));
  auto sequence = Must(KvSequence::Create(&pool, Spec({layer})));
  MustOk(Append(sequence, Tokens(0, 120)));
  KvSequence* const member = &sequence;
  {
    const auto speculation = Must(Speculation::Begin({&member, 1}));
    MustOk(Append(sequence, Tokens(500, 20)));
    EXPECT_FALSE(Append(sequence, Tokens(520, 100)).ok());
  }
  ExpectHolds(sequence, Tokens(0, 120));
  EXPECT_EQ(pool.used_bytes(), 2 * layer.layout.BlockBytes(0));
}

// Evicted rows would not come back.
TEST(SpeculationBudgetTest, AFailedBeginEvictsNothing) {
  const auto spec =
      Spec({Layer(*RetentionSpec::FromName("budget:64,interval=64,score=streaming"))});
  KvPool pool(Budget(kAmpleBytes));
  std::vector<KvSequence> sequences;
  for (int i = 0; i < 2; ++i) {
    sequences.push_back(Must(KvSequence::Create(&pool, spec)));
    MustOk(Append(sequences.back(), Tokens(100 * i, 128)));  // full, as the next token will find
  }
  const std::vector<KvSequence*> twice = {&sequences[0], &sequences[1], &sequences[0]};
  EXPECT_FALSE(Speculation::Begin(twice).ok());
  EXPECT_FALSE(sequences[0].evicted());
  EXPECT_EQ(sequences[0].MaxTrim(), 128);
  const std::vector<KvSequence*> both = {&sequences[0], &sequences[1]};
  EXPECT_TRUE(Speculation::Begin(both).ok());
  EXPECT_TRUE(sequences[0].evicted());
  EXPECT_TRUE(sequences[1].evicted());
}

TEST_F(SpeculationTest, LeavingWhileOpenIsOurMistake) {
  auto sequence = Make(0, 5);
  KvSequence* const member = &sequence;
  const auto speculation = Must(Speculation::Begin({&member, 1}));
  EXPECT_DEATH({ KvSequence stolen = std::move(sequence); }, "check failed");
}

}  // namespace
}  // namespace kvasir
