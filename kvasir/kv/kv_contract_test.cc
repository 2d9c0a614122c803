// What the caches of other engines guarantee about restoring, trimming, splitting, merging and
// rolling back (their tests, in meaning), where ours refuses less said with each.
// Deliberately small windows and positions: kv_model_test.cc has the rest at random.
#include <gtest/gtest.h>

#include <vector>

#include "kvasir/kv/kv_test_util.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {
namespace {

using namespace kv_testing;

class KvContractTest : public testing::Test {
 protected:
  KvSequence Make(RetentionSpec retention, int64_t tokens) {
    auto sequence = Must(KvSequence::Create(&pool_, Spec({Layer(retention)})));
    MustOk(Append(sequence, Tokens(0, tokens)));
    return sequence;
  }
  KvSequence Restore(const KvSnapshot& snapshot) {
    return Must(KvSequence::Restore(&pool_, snapshot));
  }
  // That it goes on as a sequence that never was anywhere else.
  void ExpectGoesOn(KvSequence sequence, Position position) {
    ExpectHolds(sequence, Tokens(0, position));
    MustOk(Append(sequence, Tokens(static_cast<Token>(position), 150)));
    ExpectHolds(sequence, Tokens(0, position + 150));
  }

  KvPool pool_{Budget(kAmpleBytes)};
};

TEST_F(KvContractTest, AnEdgeWithoutItsBaseCannotBeRestored) {
  const auto sequence = Make(RetentionSpec::All(), 100);
  EXPECT_FALSE(sequence.Snapshot(70, 100).Restorable().ok());
  // Half a range is not useless here: it waits for its other half.
  ExpectGoesOn(
      Restore(Must(KvSnapshot::Merge(sequence.Snapshot(0, 70), sequence.Snapshot(70, 100)))), 100);
  // An edge that begins in the first block has its base in the same block.
  ExpectGoesOn(Restore(sequence.Snapshot(5, 100)), 100);
}

TEST_F(KvContractTest, CapturesAtEveryTokenCostNothingAndRestoreEach) {
  auto sequence = Make(RetentionSpec::All(), 3);
  const size_t used = pool_.used_bytes();
  std::vector<KvSnapshot> captures;
  for (Position end = 3; end < 11; ++end) {
    captures.push_back(sequence.Snapshot());
    MustOk(Append(sequence, Tokens(static_cast<Token>(end), 1)));
  }
  // The tail block was copied once, when it was first written with a capture behind it; every
  // later capture shares the copy or the one before it.
  EXPECT_LE(pool_.used_bytes(), 9 * used);
  Must(sequence.Trim(8));
  MustOk(Append(sequence, std::vector<Token>{77, 78, 79, 80, 81, 82}));
  for (size_t i = 0; i < captures.size(); ++i) {
    ExpectGoesOn(Restore(captures[i]), 3 + static_cast<Position>(i));
  }
}

TEST_F(KvContractTest, AFullWindowGoesBackAsFarAsBlocksAreHeld) {
  // Others refuse every rewind of a full window (W = 4, 10 tokens, back to 3). The block is still
  // here, so the answer is too.
  auto sequence = Make(RetentionSpec::Window(4), 10);
  EXPECT_EQ(Must(sequence.Trim(7)), 7);
  ExpectGoesOn(std::move(sequence), 3);
  auto longer = Make(RetentionSpec::Window(4), 200);
  EXPECT_FALSE(longer.Trim(100).ok());
  EXPECT_EQ(longer.MaxTrim(), 200 - (192 + 3));
}

TEST_F(KvContractTest, AWindowSnapshotIsRestoredAfterMoreTokensAndClampsBelowItsEnd) {
  auto sequence = Make(RetentionSpec::Window(4), 10);
  const KvSnapshot snapshot = sequence.Snapshot();
  MustOk(Append(sequence, Tokens(10, 300)));
  ExpectGoesOn(Restore(snapshot), 10);
  // Others refuse a target below the end of a snapshot longer than its window.
  ExpectGoesOn(Restore(Must(snapshot.Split(7)).first), 7);
}

TEST_F(KvContractTest, AChildsWindowSupersedesItsParents) {
  auto sequence = Make(RetentionSpec::Window(4), 100);
  const KvSnapshot parent = sequence.Snapshot(0, 100);
  MustOk(Append(sequence, Tokens(100, 200)));
  const KvSnapshot merged = Must(KvSnapshot::Merge(parent, sequence.Snapshot(100, 300)));
  ExpectGoesOn(Restore(merged), 300);
  // Splitting it is possible: the left part may lack its rows, and says so.
  const auto [left, right] = Must(merged.Split(200));
  EXPECT_FALSE(left.Restorable().ok());
  ExpectGoesOn(Restore(right), 300);
}

TEST_F(KvContractTest, EveryAcceptedCountOfAWindowIsReached) {
  // Not full, exactly full, full for long; drafts that leave the window and the block behind.
  for (const int64_t start : {2, 4, 63, 200}) {
    for (int64_t accepted = 0; accepted <= 6; ++accepted) {
      auto sequence = Make(RetentionSpec::Window(4), start);
      KvSequence* const member = &sequence;
      auto speculation = Must(Speculation::Begin({&member, 1}));
      MustOk(Append(sequence, Tokens(static_cast<Token>(start), 6)));
      const std::vector<int64_t> counts = {accepted};
      MustOk(speculation.Commit(counts));
      ExpectGoesOn(std::move(sequence), start + accepted);
    }
  }
}

TEST_F(KvContractTest, RewindAndRefillLeaveEveryCaptureAsItWas) {
  // A corruption elsewhere: captures further ahead were overwritten by the second append after a
  // rewind, because only the first was guarded.
  auto sequence = Make(RetentionSpec::All(), 100);
  const KvSnapshot at_100 = sequence.Snapshot();
  const KvSnapshot part = sequence.Snapshot(70, 100);
  Must(sequence.Trim(60));
  for (int i = 0; i < 5; ++i) MustOk(Append(sequence, std::vector<Token>(20, 900 + i)));
  ExpectGoesOn(Restore(at_100), 100);
  ExpectGoesOn(Restore(Must(KvSnapshot::Merge(Must(at_100.Split(70)).first, part))), 100);
}

TEST_F(KvContractTest, KeptFirstRowsSurviveEverything) {
  auto sequence = Make(RetentionSpec::Window(20, 4), 400);
  EXPECT_EQ(sequence.Visible(0, 400), (VisibleRows{4, 385, 401}));
  EXPECT_EQ(sequence.ReadKeys(0, 3),
            RowsOf(sequence.spec().layers[0].layout, 0, Tokens(3, 1)).keys);
  EXPECT_EQ(sequence.layer_blocks(0).block_count() + 1, 2);
  const auto [left, right] = Must(sequence.Snapshot().Split(200));
  EXPECT_FALSE(right.Restorable().ok());  // the first rows are in the other half
  auto restored = Restore(Must(KvSnapshot::Merge(left, right)));
  EXPECT_EQ(restored.ReadRows(0, 0, 4).values, sequence.ReadRows(0, 0, 4).values);
  // Back to where the first rows are all there is.
  EXPECT_EQ(Must(restored.Trim(400 - 30)), 370);
  ExpectGoesOn(std::move(restored), 30);
}

}  // namespace
}  // namespace kvasir
