// Recurrent layers: one state per sequence, which goes back to checkpoints only.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_test_util.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {
namespace {

using namespace kv_testing;

class KvRecurrentTest : public testing::Test {
 protected:
  KvSequence Make(std::vector<KvLayerSpec> layers = {Recurrent(64), Layer(RetentionSpec::All())}) {
    return Must(KvSequence::Create(&pool_, Spec(std::move(layers))));
  }
  static void AppendTo(KvSequence& sequence, Position end) {
    const Position start = sequence.position();
    MustOk(Append(sequence, Tokens(static_cast<Token>(start), end - start)));
  }
  static void ExpectStateOf(const KvSequence& sequence, Position position) {
    EXPECT_EQ(sequence.position(), position);
    EXPECT_EQ(LoadState(sequence.State(0)), NextState(0, 0, Tokens(0, position)));
  }

  KvPool pool_{Budget(kAmpleBytes)};
};

TEST_F(KvRecurrentTest, BeginsAtZeroAndIsCopiedOnlyWhenShared) {
  auto sequence = Make({Recurrent(64)});
  EXPECT_EQ(sequence.State(0), nullptr);
  MustOk(sequence.Reserve(3));
  EXPECT_EQ(LoadState(sequence.State(0)), 0u);
  sequence.Unreserve();
  AppendTo(sequence, 5);
  const std::byte* state = sequence.State(0);
  AppendTo(sequence, 9);
  EXPECT_EQ(sequence.State(0), state);
  EXPECT_EQ(sequence.BytesToReserve(1), 0u);
  MustOk(sequence.Checkpoint());
  EXPECT_EQ(pool_.used_bytes(), 64u);  // by reference
  EXPECT_EQ(sequence.BytesToReserve(1), 64u);
  AppendTo(sequence, 10);
  EXPECT_NE(sequence.State(0), state);
  EXPECT_EQ(sequence.nbytes(), 128u);
  EXPECT_EQ(sequence.nbytes_exclusive(), 128u);
  sequence.DropCheckpoints(10);
  EXPECT_EQ(pool_.used_bytes(), 64u);
  ExpectStateOf(sequence, 10);
}

TEST_F(KvRecurrentTest, AnOpenSpeculationKeepsWhatItGoesBackTo) {
  auto sequence = Make();
  AppendTo(sequence, 4);
  MustOk(sequence.Checkpoint());
  AppendTo(sequence, 10);
  KvSequence* const member = &sequence;
  Speculation speculation = Must(Speculation::Begin(std::span(&member, 1)));
  AppendTo(sequence, 13);
  sequence.DropCheckpoints(1000);
  EXPECT_EQ(sequence.Checkpoints(), std::vector<Position>{10});
  speculation.Rollback();
  ExpectStateOf(sequence, 10);
}

TEST_F(KvRecurrentTest, GoesBackToCheckpointsAndTheStartOnly) {
  auto sequence = Make();
  AppendTo(sequence, 70);
  MustOk(sequence.Checkpoint());
  AppendTo(sequence, 100);
  EXPECT_EQ(sequence.MaxTrim(), 0);
  const auto refused = sequence.Trim(29);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message.find("checkpoints: 70"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(Must(sequence.Trim(30)), 30);
  ExpectStateOf(sequence, 70);
  AppendTo(sequence, 90);
  ExpectStateOf(sequence, 90);
  EXPECT_EQ(Must(sequence.Trim(20)), 20);  // the checkpoint is still whole
  ExpectStateOf(sequence, 70);
  EXPECT_EQ(Must(sequence.Trim(1000)), 70);
  EXPECT_TRUE(sequence.Checkpoints().empty());
  AppendTo(sequence, 3);
  ExpectStateOf(sequence, 3);
}

TEST_F(KvRecurrentTest, AHalfWrittenStateIsNoCheckpointAndComesBackFromOne) {
  auto sequence = Make();
  AppendTo(sequence, 10);
  MustOk(sequence.Reserve(2));
  EXPECT_EQ(sequence.Checkpoint().error().code, ErrorCode::kFailedPrecondition);
  EXPECT_FALSE(sequence.Snapshot().Restorable().ok());
  sequence.Unreserve();
  MustOk(sequence.Checkpoint());
  MustOk(sequence.Reserve(2));
  sequence.MutableState(0)[0] = std::byte{0xFF};  // a step that fails
  EXPECT_TRUE(sequence.Snapshot().Restorable().ok());
  ExpectStateOf(sequence.Fork(), 10);
  sequence.Unreserve();
  ExpectStateOf(sequence, 10);
}

TEST_F(KvRecurrentTest, SnapshotsHoldTheStatesOfTheirCheckpoints) {
  auto sequence = Make();
  AppendTo(sequence, 40);
  MustOk(sequence.Checkpoint());
  AppendTo(sequence, 100);
  const KvSnapshot whole = sequence.Snapshot();
  ExpectStateOf(Must(KvSequence::Restore(&pool_, whole)), 100);
  ExpectStateOf(Must(KvSequence::Restore(&pool_, sequence.Snapshot(0, 40))), 40);
  const Status lacking = sequence.Snapshot(0, 41).Restorable();
  ASSERT_FALSE(lacking.ok());
  EXPECT_NE(lacking.error().message.find("layer 0 (recurrent)"), std::string::npos);
  for (const Position at : {0, 13, 40, 77, 100}) {
    const auto [left, right] = Must(whole.Split(at));
    EXPECT_EQ(left.Restorable().ok(), at == 0 || at == 40 || at == 100) << at;
    const KvSnapshot merged = Must(KvSnapshot::Merge(left, right));
    auto restored = Must(KvSequence::Restore(&pool_, merged));
    ExpectStateOf(restored, 100);
    EXPECT_EQ(Must(restored.Trim(60)), 60);
    ExpectStateOf(restored, 40);
  }
}

TEST_F(KvRecurrentTest, SpeculationKeepsAllNoneOrUpToACheckpoint) {
  auto sequence = Make();
  AppendTo(sequence, 20);
  KvSequence* const member = &sequence;
  {
    auto speculation = Must(Speculation::Begin({&member, 1}));
    AppendTo(sequence, 23);
  }
  ExpectStateOf(sequence, 20);
  EXPECT_TRUE(sequence.Checkpoints().empty());

  auto speculation = Must(Speculation::Begin({&member, 1}));
  AppendTo(sequence, 22);
  MustOk(sequence.Checkpoint());
  AppendTo(sequence, 25);
  const std::vector<int64_t> between = {3};
  const Status refused = speculation.Commit(between);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_TRUE(speculation.open());
  const std::vector<int64_t> two = {2};
  MustOk(speculation.Commit(two));
  ExpectStateOf(sequence, 22);
  EXPECT_EQ(sequence.Checkpoints(), std::vector<Position>{22});
}

TEST_F(KvRecurrentTest, RunsLeaveStatesWhereTheyAreAskedFor) {
  auto sequence = Make();
  AppendTo(sequence, 10);
  sequence.KeepStatesAt({5, 10, 13, 15, 20, 30});  // what is behind is none
  EXPECT_EQ(sequence.BytesToReserve(10), 2 * 64u);
  AppendTo(sequence, 20);  // the run ends at one of them, by reference
  EXPECT_EQ(sequence.Checkpoints(), (std::vector<Position>{13, 15, 20}));
  ExpectStateOf(sequence, 20);
  AppendTo(sequence, 25);  // and goes on from a copy
  AppendTo(sequence, 31);
  EXPECT_EQ(sequence.Checkpoints(), (std::vector<Position>{13, 15, 20, 30}));
  for (const Position at : {30, 20, 13}) {
    MustOk(sequence.Trim(sequence.position() - at).status());
    ExpectStateOf(sequence, at);
  }
  AppendTo(sequence, 40);  // trimming has forgotten what was asked for
  EXPECT_EQ(sequence.Checkpoints(), std::vector<Position>{13});
  sequence.DropCheckpoints(41);
  EXPECT_EQ(pool_.used_bytes(), sequence.nbytes());
}

TEST_F(KvRecurrentTest, StatesWithinARunThatDidNotHappenAreGone) {
  auto sequence = Make();
  AppendTo(sequence, 10);
  const size_t used = pool_.used_bytes();
  sequence.KeepStatesAt({12, 14});
  MustOk(sequence.Reserve(3));
  EXPECT_EQ(sequence.InnerStates(0).size(), 1u);
  EXPECT_EQ(sequence.nbytes(), pool_.used_bytes());
  MustOk(sequence.Reserve(8));  // a longer one takes the other
  EXPECT_EQ(sequence.InnerStates(0).size(), 2u);
  EXPECT_EQ(sequence.InnerStateCount(8), 0u);
  sequence.Unreserve();
  EXPECT_TRUE(sequence.InnerStates(0).empty());
  EXPECT_EQ(pool_.used_bytes(), used);
  EXPECT_TRUE(sequence.Checkpoints().empty());
  AppendTo(sequence, 15);  // it is still asked for
  EXPECT_EQ(sequence.Checkpoints(), (std::vector<Position>{12, 14}));
  ExpectStateOf(sequence, 15);
}

TEST_F(KvRecurrentTest, SpeculationKeepsAnyCountWhoseStateWasKept) {
  for (const int64_t accepted : {0, 1, 3, 4}) {
    auto sequence = Make();
    AppendTo(sequence, 10);
    KvSequence* const member = &sequence;
    auto speculation = Must(Speculation::Begin({&member, 1}));
    sequence.KeepStatesAt({11, 12, 13});
    AppendTo(sequence, 14);
    MustOk(speculation.Commit({&accepted, 1}));
    ExpectStateOf(sequence, 10 + accepted);
    sequence.DropCheckpoints(sequence.position() + 1);
    EXPECT_TRUE(sequence.Checkpoints().empty());
    AppendTo(sequence, 20);
    ExpectStateOf(sequence, 20);
  }
}

TEST_F(KvRecurrentTest, ABatchTrimsEachOrNamesIt) {
  KvBatch batch;
  for (SequenceId id = 1; id <= 2; ++id) {
    auto sequence = Make();
    AppendTo(sequence, 10);
    if (id == 2) MustOk(sequence.Checkpoint());
    AppendTo(sequence, 12);
    MustOk(batch.Add(id, std::move(sequence)));
  }
  const std::vector<int64_t> counts = {2, 2};
  const auto reports = Must(batch.TrimEach(counts));
  EXPECT_FALSE(reports[0].status.ok());
  ExpectStateOf(*batch.Find(1), 12);
  EXPECT_EQ(reports[1].trimmed, 2);
  ExpectStateOf(*batch.Find(2), 10);
}

}  // namespace
}  // namespace kvasir
