#include "kvasir/kv/kv_sequence.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

class KvSequenceTest : public testing::Test {
 protected:
  KvSequence Make(std::vector<KvLayerSpec> layers) {
    return Must(KvSequence::Create(&pool_, Spec(std::move(layers))));
  }
  uint64_t copied_bytes() const { return pool_.Stats().copied_bytes; }

  KvPool pool_{Budget(kAmpleBytes)};
};

std::vector<Token> Concat(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(KvSequenceTest, RefusesAnInvalidSpec) {
  const auto sequence = KvSequence::Create(&pool_, Spec({}));
  ASSERT_FALSE(sequence.ok());
  EXPECT_EQ(sequence.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(KvSequenceTest, RowsComeBackInEveryCodec) {
  auto sequence =
      Make({Layer(RetentionSpec::All(), F32(), F16()), Layer(RetentionSpec::All(), F16(), Bf16()),
            Layer(RetentionSpec::All(), Bf16(), F32())});
  MustOk(Append(sequence, Tokens(0, 200)));
  ExpectHolds(sequence, Tokens(0, 200));
  EXPECT_EQ(sequence.ReadKeys(1, 77).size(), 8u);
  EXPECT_EQ(sequence.ReadKeys(1, 77)[3], Element(77, 1, 0, 3));
  EXPECT_EQ(sequence.ReadValues(2, 199)[5], Element(199, 2, 1, 5));
}

TEST_F(KvSequenceTest, ASharingLayerReadsTheRowsOfAnother) {
  KvLayerSpec sharing = Layer(RetentionSpec::Window(70));
  sharing.shares_layer = 1;
  auto sequence = Make({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(70)), sharing});
  MustOk(Append(sequence, Tokens(0, 300)));
  ExpectHolds(sequence, Tokens(0, 300));
  EXPECT_EQ(sequence.Blocks(2).blocks.data(), sequence.Blocks(1).blocks.data());
  EXPECT_EQ(sequence.Visible(2, 299), (VisibleRows{0, 230, 300}));
  EXPECT_EQ(sequence.nbytes(), pool_.used_bytes());
}

TEST_F(KvSequenceTest, WindowAndChunkReleaseBlocksThatNobodySees) {
  auto sequence = Make({Layer(RetentionSpec::Window(100)), Layer(RetentionSpec::Chunk(200)),
                        Layer(RetentionSpec::All())});
  MustOk(Append(sequence, Tokens(0, 1001)));
  EXPECT_EQ(sequence.Blocks(1).first_block, 0);  // as it was appended at one go
  MustOk(Append(sequence, Tokens(1001, 1)));
  EXPECT_EQ(sequence.Blocks(0).first_block, (1002 - 99) / 64);
  EXPECT_EQ(sequence.Blocks(1).first_block, 1000 / 64);
  EXPECT_EQ(sequence.Blocks(2).first_block, 0);
  ExpectHolds(sequence, Tokens(0, 1002));
}

TEST_F(KvSequenceTest, ALongChunkIsWholeUntilItIsDone) {
  auto sequence = Make({Layer(RetentionSpec::Window(10))});
  MustOk(sequence.Reserve(1000));
  EXPECT_EQ(sequence.Blocks(0).first_block, 0);
  EXPECT_GE(sequence.Blocks(0).end_row(), 1000);
  WriteReserved(sequence, Tokens(0, 1000));
  ExpectHolds(sequence, Tokens(0, 1000));
  EXPECT_EQ(sequence.Blocks(0).blocks.size(), 1u);
}

TEST_F(KvSequenceTest, ReservationsGrowAndGoBack) {
  auto sequence = Make({Layer(RetentionSpec::All())});
  MustOk(sequence.Reserve(100));
  EXPECT_EQ(sequence.reserved_end(), 100);
  MustOk(sequence.Reserve(10));  // a smaller one keeps what is reserved
  EXPECT_EQ(sequence.reserved_end(), 100);
  MustOk(sequence.Reserve(200));
  EXPECT_EQ(sequence.reserved_end(), 200);
  EXPECT_EQ(pool_.Stats().size_classes[0].blocks_used, 4);
  WriteReserved(sequence, Tokens(0, 50));
  sequence.Unreserve();
  EXPECT_EQ(sequence.reserved_end(), 50);
  EXPECT_EQ(pool_.Stats().size_classes[0].blocks_used, 1);
  ExpectHolds(sequence, Tokens(0, 50));
  MustOk(sequence.Reserve(0));
  EXPECT_EQ(sequence.reserved_end(), 50);
}

TEST_F(KvSequenceTest, ImpossibleReservationsAreErrors) {
  auto sequence = Make({Layer(RetentionSpec::All())});
  for (const int64_t tokens : {int64_t{-1}, kMaxPosition + 1, INT64_MAX, INT64_MIN}) {
    const Status status = sequence.Reserve(tokens);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  }
  const Status status = sequence.Reserve(kMaxPosition);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
}

TEST(KvSequenceBudgetTest, AReservationNeverHalfApplies) {
  // Two sizes of blocks; the second layer is the one that does not fit.
  const KvLayerSpec narrow = Layer(RetentionSpec::All(), F16(), F16());
  KvLayerSpec wide = narrow;
  wide.layout.kv_heads = 10;
  const size_t narrow_bytes = narrow.layout.BlockBytes(0);
  const size_t wide_bytes = wide.layout.BlockBytes(0);
  KvPool pool(Budget(3 * narrow_bytes + 2 * wide_bytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({narrow, wide})));
  MustOk(Append(sequence, Tokens(0, 100)));
  auto fork = sequence.Fork();
  EXPECT_EQ(fork.BytesToReserve(1), narrow_bytes + wide_bytes);
  const size_t used = pool.used_bytes();
  const KvPoolStats before = pool.Stats();
  for (const int64_t tokens : {1, 28, 29, 1000}) {
    const Status status = fork.Reserve(tokens);
    ASSERT_FALSE(status.ok()) << tokens;
    EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
    EXPECT_EQ(fork.reserved_end(), 100);
    EXPECT_EQ(pool.used_bytes(), used);
    EXPECT_EQ(pool.Stats().copied_bytes, before.copied_bytes);
    EXPECT_LE(pool.reserved_bytes(), pool.budget_bytes());
    ExpectHolds(fork, Tokens(0, 100));
    ExpectHolds(sequence, Tokens(0, 100));
  }
  { const KvSequence ended = std::move(sequence); }
  MustOk(Append(fork, Tokens(100, 28)));
  ExpectHolds(fork, Tokens(0, 128));
}

TEST_F(KvSequenceTest, AForkSharesEverythingAndCopiesOneTailBlockOnWrite) {
  auto original = Make({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(30))});
  MustOk(Append(original, Tokens(0, 100)));
  const size_t used = pool_.used_bytes();
  auto fork = original.Fork();
  EXPECT_EQ(pool_.used_bytes(), used);
  EXPECT_EQ(fork.nbytes_exclusive(), 0u);
  EXPECT_EQ(fork.nbytes(), original.nbytes());

  MustOk(Append(fork, Tokens(500, 40)));
  const size_t block_bytes = fork.spec().layers[0].layout.BlockBytes(0);
  EXPECT_EQ(copied_bytes(), 2 * block_bytes);  // one tail per layer
  MustOk(Append(original, Tokens(100, 40)));
  EXPECT_EQ(copied_bytes(), 2 * block_bytes);  // the original's tail is its own again
  ExpectHolds(original, Tokens(0, 140));
  ExpectHolds(fork, Concat(Tokens(0, 100), Tokens(500, 40)));
}

TEST_F(KvSequenceTest, AForkAtABlockBorderCopiesNothing) {
  auto original = Make({Layer(RetentionSpec::All())});
  MustOk(Append(original, Tokens(0, 128)));
  auto fork = original.Fork();
  MustOk(Append(fork, Tokens(500, 10)));
  MustOk(Append(original, Tokens(128, 10)));
  EXPECT_EQ(copied_bytes(), 0u);
  ExpectHolds(original, Tokens(0, 138));
  ExpectHolds(fork, Concat(Tokens(0, 128), Tokens(500, 10)));
}

TEST_F(KvSequenceTest, AForkOutlivesItsOriginal) {
  std::optional<KvSequence> original(Make({Layer(RetentionSpec::All())}));
  MustOk(Append(*original, Tokens(0, 90)));
  auto fork = original->Fork();
  original.reset();
  MustOk(Append(fork, Tokens(90, 5)));
  EXPECT_EQ(copied_bytes(), 0u);
  ExpectHolds(fork, Tokens(0, 95));
}

TEST_F(KvSequenceTest, AForkBetweenReserveAndWriteIsIndependent) {
  auto original = Make({Layer(RetentionSpec::All())});
  MustOk(Append(original, Tokens(0, 20)));
  MustOk(original.Reserve(100));
  auto fork = original.Fork();
  EXPECT_EQ(fork.reserved_end(), 20);
  WriteReserved(original, Tokens(20, 100));
  MustOk(Append(fork, Tokens(700, 60)));
  ExpectHolds(original, Tokens(0, 120));
  ExpectHolds(fork, Concat(Tokens(0, 20), Tokens(700, 60)));
}

TEST_F(KvSequenceTest, TrimAndRewriteInASharedTailLeavesTheOtherAlone) {
  auto original = Make({Layer(RetentionSpec::All())});
  MustOk(Append(original, Tokens(0, 50)));
  const auto fork = original.Fork();
  EXPECT_EQ(Must(original.Trim(30)), 30);
  MustOk(Append(original, Tokens(900, 30)));
  ExpectHolds(original, Concat(Tokens(0, 20), Tokens(900, 30)));
  ExpectHolds(fork, Tokens(0, 50));
}

TEST_F(KvSequenceTest, TrimCancelsAReservationIntoASharedBlock) {
  auto original = Make({Layer(RetentionSpec::All())});
  MustOk(Append(original, Tokens(0, 20)));
  MustOk(original.Reserve(10));
  const KvSnapshot snapshot = original.Snapshot();
  EXPECT_EQ(Must(original.Trim(5)), 5);
  EXPECT_EQ(original.reserved_end(), 15);
  MustOk(Append(original, Tokens(800, 10)));
  ExpectHolds(original, Concat(Tokens(0, 15), Tokens(800, 10)));
  ExpectHolds(Must(KvSequence::Restore(&pool_, snapshot)), Tokens(0, 20));
}

TEST_F(KvSequenceTest, TrimmedAndContinuedIsAsNeverAppended) {
  const std::vector<KvLayerSpec> layers = {Layer(RetentionSpec::All()),
                                           Layer(RetentionSpec::Window(150), F16())};
  for (const int64_t trim : {0, 1, 20, 36, 37, 63, 64, 100}) {
    auto sequence = Make(layers);
    MustOk(Append(sequence, Tokens(0, 100)));
    EXPECT_EQ(Must(sequence.Trim(trim)), trim);
    ExpectHolds(sequence, Tokens(0, 100 - trim));
    MustOk(Append(sequence, Tokens(300, 80)));
    ExpectHolds(sequence, Concat(Tokens(0, 100 - trim), Tokens(300, 80)));
  }
  EXPECT_EQ(copied_bytes(), 0u);
}

TEST_F(KvSequenceTest, TrimRemovesAtMostEverything) {
  auto sequence = Make({Layer(RetentionSpec::All())});
  EXPECT_EQ(Must(sequence.Trim(5)), 0);
  MustOk(Append(sequence, Tokens(0, 70)));
  EXPECT_EQ(sequence.MaxTrim(), 70);
  EXPECT_EQ(Must(sequence.Trim(INT64_MAX)), 70);
  EXPECT_EQ(sequence.position(), 0);
  EXPECT_EQ(pool_.used_bytes(), 0u);
  EXPECT_FALSE(sequence.Trim(-1).ok());
  MustOk(Append(sequence, Tokens(5, 3)));
  ExpectHolds(sequence, Tokens(5, 3));
}

TEST_F(KvSequenceTest, AWindowRefusesToTrimPastWhatItHoldsAndSaysHowFar) {
  auto sequence = Make({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(100))});
  MustOk(Append(sequence, Tokens(0, 1000)));
  // Rows from block 14 (896) on are held; position 995 is the first whose window starts there.
  EXPECT_EQ(sequence.MaxTrim(), 5);
  const auto refused = sequence.Trim(6);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message.find("layer 1 (window:100)"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find("up to 5 tokens, not 6, can"), std::string::npos);
  ExpectHolds(sequence, Tokens(0, 1000));
  EXPECT_EQ(Must(sequence.Trim(5)), 5);
  ExpectHolds(sequence, Tokens(0, 995));
  EXPECT_EQ(sequence.MaxTrim(), 0);
}

TEST_F(KvSequenceTest, AWindowThatDroppedNothingTrimsToTheStart) {
  auto sequence = Make({Layer(RetentionSpec::Window(100))});
  MustOk(Append(sequence, Tokens(0, 162)));  // FirstNeeded(162) == 63: block 0 stays
  EXPECT_EQ(sequence.MaxTrim(), 162);
  MustOk(Append(sequence, Tokens(162, 1)));  // FirstNeeded(163) == 64: block 0 goes
  EXPECT_EQ(sequence.MaxTrim(), 0);
}

TEST_F(KvSequenceTest, AChunkTrimsBackToTheStartOfWhatItHolds) {
  auto sequence = Make({Layer(RetentionSpec::Chunk(100))});
  MustOk(Append(sequence, Tokens(0, 240)));
  MustOk(Append(sequence, Tokens(240, 10)));
  // Chunk [200, 300) starts in block 3 (192 ...), from which no earlier chunk is whole.
  EXPECT_EQ(sequence.MaxTrim(), 50);
  EXPECT_FALSE(sequence.Trim(51).ok());
  EXPECT_EQ(Must(sequence.Trim(50)), 50);
  ExpectHolds(sequence, Tokens(0, 200));
}

// What was appended at one go can be taken back, whatever borders of chunks and blocks it crossed.
TEST_F(KvSequenceTest, AChunkTakesItsLastRunBack) {
  for (const int64_t size : {8, 16, 64, 100, 200}) {
    for (const int64_t begin : {int64_t{0}, 4 * size - 1, 4 * size, 4 * size + 1, int64_t{190}}) {
      for (const int64_t run : {1, 5, 64, 300}) {
        auto sequence = Make({Layer(RetentionSpec::Chunk(size))});
        MustOk(Append(sequence, Tokens(0, begin)));
        MustOk(Append(sequence, Tokens(begin, run)));
        ASSERT_GE(sequence.MaxTrim(), run) << size << " " << begin;
        ASSERT_EQ(Must(sequence.Trim(run)), run);
        ExpectHolds(sequence, Tokens(0, begin));
        MustOk(Append(sequence, Tokens(begin, 3)));
        ExpectHolds(sequence, Tokens(0, begin + 3));
      }
    }
  }
}

TEST_F(KvSequenceTest, AChunkThatIsDoneIsKeptForOneRun) {
  auto sequence = Make({Layer(RetentionSpec::Chunk(64))});
  MustOk(Append(sequence, Tokens(0, 63)));
  MustOk(Append(sequence, Tokens(63, 1)));
  EXPECT_EQ(sequence.MaxTrim(), 64);
  MustOk(Append(sequence, Tokens(64, 1)));
  EXPECT_EQ(sequence.MaxTrim(), 65);
  MustOk(Append(sequence, Tokens(65, 2)));
  ExpectHolds(sequence, Tokens(0, 67));
  EXPECT_EQ(sequence.MaxTrim(), 3);
  EXPECT_EQ(sequence.Blocks(0).first_block, 1);
}

TEST(KvSequenceBudgetTest, SeveralSequencesReserveAllOrNone) {
  const KvLayerSpec layer = Layer(RetentionSpec::All());
  KvPool pool(Budget(6 * layer.layout.BlockBytes(0)));
  const auto spec = Spec({layer});
  auto a = Must(KvSequence::Create(&pool, spec));
  auto b = Must(KvSequence::Create(&pool, spec));
  const std::vector<KvSequence*> both = {&a, &b};
  const std::vector<int64_t> too_much = {200, 200};
  EXPECT_FALSE(KvSequence::ReserveAll(both, too_much).ok());
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(a.reserved_end(), 0);
  const std::vector<int64_t> fits = {200, 128};
  MustOk(KvSequence::ReserveAll(both, fits));
  EXPECT_EQ(pool.used_bytes(), pool.budget_bytes());
  EXPECT_EQ(b.reserved_end(), 128);
}

TEST(KvSequenceBudgetTest, SharedTailsOfOneStepAreCountedExactly) {
  const KvLayerSpec layer = Layer(RetentionSpec::All());
  const size_t block_bytes = layer.layout.BlockBytes(0);
  for (const bool somebody_else_holds_it : {false, true}) {
    const size_t copies = somebody_else_holds_it ? 3 : 2;
    for (const size_t room : {copies - 1, copies}) {
      KvPool pool(Budget((1 + room) * block_bytes));
      auto a = Must(KvSequence::Create(&pool, Spec({layer})));
      MustOk(Append(a, Tokens(0, 10)));
      auto b = a.Fork();
      auto c = a.Fork();
      std::optional<KvSnapshot> snapshot;
      if (somebody_else_holds_it) snapshot = a.Snapshot();
      const std::vector<KvSequence*> all = {&a, &b, &c};
      const std::vector<int64_t> tokens = {1, 1, 1};
      const Status status = KvSequence::ReserveAll(all, tokens);
      EXPECT_EQ(status.ok(), room == copies) << room;
      EXPECT_EQ(pool.Stats().copied_bytes, status.ok() ? copies * block_bytes : 0);
    }
  }
}

TEST_F(KvSequenceTest, MovesKeepEverything) {
  auto a = Make({Layer(RetentionSpec::All())});
  MustOk(Append(a, Tokens(0, 80)));
  MustOk(a.Reserve(7));
  KvSequence b = std::move(a);
  EXPECT_EQ(b.reserved_end(), 87);
  WriteReserved(b, Tokens(80, 7));
  a = std::move(b);
  ExpectHolds(a, Tokens(0, 87));
}

TEST_F(KvSequenceTest, NoBlockIsLeftBehind) {
  {
    auto a = Make({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(9))});
    MustOk(Append(a, Tokens(0, 500)));
    auto b = a.Fork();
    const KvSnapshot snapshot = b.Snapshot(3, 400);
    MustOk(Append(b, Tokens(0, 100)));
    MustOk(a.Reserve(1000));
  }
  EXPECT_EQ(pool_.used_bytes(), 0u);
  const size_t reserved_bytes = pool_.reserved_bytes();
  EXPECT_EQ(pool_.ReleaseFreeSlabs(), reserved_bytes);
  EXPECT_EQ(pool_.reserved_bytes(), 0u);
}

TEST_F(KvSequenceTest, StaleBytesOfAReusedBlockAreNeverVisible) {
  {
    auto other = Make({Layer(RetentionSpec::All())});
    MustOk(Append(other, Tokens(4000, 64)));
  }
  auto sequence = Make({Layer(RetentionSpec::All())});
  MustOk(Append(sequence, Tokens(0, 3)));
  // The block is the other's, uncleared: row 3 holds its old value, but nobody is told to look.
  EXPECT_EQ(sequence.Visible(0, 2).end, 3);
  MustOk(sequence.Reserve(1));
  EXPECT_EQ(sequence.ReadKeys(0, 3)[0], Element(4003, 0, 0, 0));
  ExpectHolds(sequence, Tokens(0, 3));
}

TEST_F(KvSequenceTest, WritingWhatIsNotReservedIsOurMistake) {
  auto sequence = Make({Layer(RetentionSpec::All())});
  EXPECT_DEATH(sequence.Advance(1), "check failed");
  MustOk(Append(sequence, Tokens(0, 10)));
  const KvRows rows = RowsOf(sequence.spec().layers[0].layout, 0, Tokens(0, 1));
  EXPECT_DEATH(sequence.WriteRows(0, 9, rows), "check failed");
  EXPECT_DEATH(sequence.WriteRows(0, 10, rows), "check failed");
  EXPECT_DEATH(static_cast<void>(sequence.Snapshot(0, 11)), "check failed");
}

}  // namespace
}  // namespace kvasir
