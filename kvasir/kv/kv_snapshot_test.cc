#include "kvasir/kv/kv_snapshot.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

class KvSnapshotTest : public testing::Test {
 protected:
  KvSequence Make(std::vector<KvLayerSpec> layers, int64_t tokens) {
    auto sequence = Must(KvSequence::Create(&pool_, Spec(std::move(layers))));
    MustOk(Append(sequence, Tokens(0, tokens)));
    return sequence;
  }
  KvSequence Restore(const KvSnapshot& snapshot) {
    return Must(KvSequence::Restore(&pool_, snapshot));
  }
  static std::string WhyNot(const KvSnapshot& snapshot) {
    const Status status = snapshot.Restorable();
    if (status.ok()) return "ok";
    EXPECT_EQ(status.error().code, ErrorCode::kFailedPrecondition);
    return status.error().message;
  }

  KvPool pool_{Budget(kAmpleBytes)};
};

const std::vector<KvLayerSpec>& MixedLayers() {
  static const std::vector<KvLayerSpec>& layers = *new std::vector<KvLayerSpec>{
      Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(100), F16()),
      Layer(RetentionSpec::Chunk(150), F32(), Bf16())};
  return layers;
}

TEST_F(KvSnapshotTest, RestoredIsAsStraightOn) {
  for (const int64_t length : {0, 1, 63, 64, 65, 150, 300, 777}) {
    auto sequence = Make(MixedLayers(), length);
    const size_t used = pool_.used_bytes();
    const KvSnapshot snapshot = sequence.Snapshot();
    EXPECT_EQ(snapshot.nbytes(), sequence.nbytes());
    EXPECT_EQ(snapshot.nbytes_exclusive(), 0u);
    auto restored = Restore(snapshot);
    EXPECT_EQ(pool_.used_bytes(), used);  // nothing was copied to share
    EXPECT_EQ(restored.MaxTrim(), sequence.MaxTrim());
    ExpectHolds(restored, Tokens(0, length));
    MustOk(Append(restored, Tokens(static_cast<Token>(length), 200)));
    MustOk(Append(sequence, Tokens(static_cast<Token>(length), 200)));
    ExpectHolds(restored, Tokens(0, length + 200));
    ExpectHolds(sequence, Tokens(0, length + 200));
  }
}

TEST_F(KvSnapshotTest, NeverChangesWhateverTheSequenceDoes) {
  auto sequence = Make(MixedLayers(), 130);
  const KvSnapshot snapshot = sequence.Snapshot();
  EXPECT_EQ(Must(sequence.Trim(20)), 20);
  MustOk(Append(sequence, Tokens(9000, 500)));
  ExpectHolds(Restore(snapshot), Tokens(0, 130));
  std::optional<KvSequence> ended(std::move(sequence));
  ended.reset();
  ExpectHolds(Restore(snapshot), Tokens(0, 130));
  EXPECT_EQ(snapshot.nbytes_exclusive(), pool_.used_bytes());
}

TEST_F(KvSnapshotTest, AnEarlierEndIsRestorableWhereTheRowsAreStillHeld) {
  const auto all = Make({Layer(RetentionSpec::All())}, 500);
  for (const Position end : {0, 1, 64, 100, 499}) {
    ExpectHolds(Restore(all.Snapshot(0, end)), Tokens(0, end));
  }
  const auto window = Make({Layer(RetentionSpec::Window(100))}, 500);  // holds from 384 on
  EXPECT_EQ(WhyNot(window.Snapshot(0, 483)), "ok");
  ExpectHolds(Restore(window.Snapshot(0, 483)), Tokens(0, 483));
  EXPECT_EQ(WhyNot(window.Snapshot(0, 482)),
            "KV snapshot [0, 482): layer 0 (window:100) needs the rows from 383 on to continue, it "
            "holds those from 384 on; merge it with what comes before");
  EXPECT_NE(WhyNot(window.Snapshot(0, 100)).find("it holds none"), std::string::npos);
}

TEST_F(KvSnapshotTest, AllLayersNeedTheBeginningWindowsDoNot) {
  const auto all = Make({Layer(RetentionSpec::All())}, 500);
  EXPECT_NE(WhyNot(all.Snapshot(100, 500)).find("layer 0 (all) needs the rows from 0 on"),
            std::string::npos);
  const auto refused = KvSequence::Restore(&pool_, all.Snapshot(100, 500));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  const auto window = Make({Layer(RetentionSpec::Window(100))}, 500);
  ExpectHolds(Restore(window.Snapshot(401, 500)), Tokens(0, 500));
  EXPECT_NE(WhyNot(window.Snapshot(450, 500)), "ok");
}

TEST_F(KvSnapshotTest, SplitAnywhereThenMergeIsTheOriginal) {
  const auto sequence = Make(MixedLayers(), 400);
  const KvSnapshot whole = sequence.Snapshot();
  const size_t used = pool_.used_bytes();
  for (Position at = 0; at <= 400; ++at) {
    const auto [left, right] = Must(whole.Split(at));
    ASSERT_EQ(left.begin(), 0);
    ASSERT_EQ(left.end(), at);
    ASSERT_EQ(right.begin(), at);
    ASSERT_EQ(right.end(), 400);
    ASSERT_EQ(pool_.used_bytes(), used);
    const KvSnapshot merged = Must(KvSnapshot::Merge(left, right));
    ASSERT_EQ(merged.begin(), 0);
    ASSERT_EQ(merged.end(), 400);
    for (int layer = 0; layer < 3; ++layer) {
      ASSERT_EQ(merged.layer(layer).first_block(), whole.layer(layer).first_block()) << at;
      const auto expected = whole.layer(layer).view().blocks;
      const auto actual = merged.layer(layer).view().blocks;
      ASSERT_TRUE(std::equal(actual.begin(), actual.end(), expected.begin(), expected.end()));
    }
  }
  EXPECT_FALSE(whole.Split(-1).ok());
  EXPECT_FALSE(whole.Split(401).ok());
  EXPECT_FALSE(sequence.Snapshot(50, 100).Split(49).ok());
}

TEST_F(KvSnapshotTest, ALeftHalfContinuesAsIfTheRightHadNeverBeen) {
  const auto sequence = Make({Layer(RetentionSpec::All())}, 300);
  const auto [left, right] = Must(sequence.Snapshot().Split(170));
  auto restored = Restore(left);
  ExpectHolds(restored, Tokens(0, 170));
  MustOk(Append(restored, Tokens(170, 20)));
  ExpectHolds(restored, Tokens(0, 190));
  ExpectHolds(sequence, Tokens(0, 300));
  EXPECT_FALSE(right.Restorable().ok());
}

// The prefix-tree case: edges taken as the sequence grows, each by itself.
TEST_F(KvSnapshotTest, EdgesTakenAlongTheWayMergeToEveryRestorePoint) {
  auto sequence = Must(KvSequence::Create(&pool_, Spec(MixedLayers())));
  std::vector<KvSnapshot> edges;
  Position begin = 0;
  for (const Position end : {10, 64, 70, 200, 201, 460, 461, 512, 800}) {
    MustOk(Append(sequence, Tokens(static_cast<Token>(begin), end - begin)));
    edges.push_back(sequence.Snapshot(begin, end));
    begin = end;
  }
  KvSnapshot path = edges[0];
  for (size_t i = 0;;) {
    ExpectHolds(Restore(path), Tokens(0, path.end()));
    if (++i == edges.size()) break;
    path = Must(KvSnapshot::Merge(path, edges[i]));
  }
}

TEST_F(KvSnapshotTest, MergingAcrossWritersTakesTheFurtherFilledBlock) {
  auto first = Make({Layer(RetentionSpec::All())}, 100);
  const KvSnapshot head = first.Snapshot();
  auto second = Restore(head);  // writes on in a copy of the tail block
  MustOk(Append(second, Tokens(100, 60)));
  const KvSnapshot merged = Must(KvSnapshot::Merge(head, second.Snapshot(100, 160)));
  ExpectHolds(Restore(merged), Tokens(0, 160));
}

TEST_F(KvSnapshotTest, MergeRefusesWhatDoesNotMeet) {
  const auto sequence = Make(MixedLayers(), 300);
  EXPECT_FALSE(KvSnapshot::Merge(sequence.Snapshot(0, 100), sequence.Snapshot(101, 300)).ok());
  EXPECT_FALSE(KvSnapshot::Merge(sequence.Snapshot(0, 100), sequence.Snapshot(99, 300)).ok());
  const auto other = Make({Layer(RetentionSpec::All())}, 300);
  const auto refused = KvSnapshot::Merge(sequence.Snapshot(0, 100), other.Snapshot(100, 300));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(KvSnapshotTest, SequencesOfEqualSpecsMayShare) {
  const auto a = Make(MixedLayers(), 100);
  auto b = Make(MixedLayers(), 100);  // its own copy of the spec
  MustOk(Append(b, Tokens(100, 50)));
  ExpectHolds(Restore(Must(KvSnapshot::Merge(a.Snapshot(), b.Snapshot(100, 150)))), Tokens(0, 150));
}

TEST_F(KvSnapshotTest, AnotherPoolIsRefused) {
  KvPool other(Budget(kAmpleBytes));
  const auto sequence = Make(MixedLayers(), 10);
  const auto refused = KvSequence::Restore(&other, sequence.Snapshot());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(KvSnapshotTest, ARestorePointOfAWindowCostsItsLastRows) {
  auto sequence = Make({Layer(RetentionSpec::Window(100))}, 10000);
  const KvSnapshot point = sequence.Snapshot();
  EXPECT_LE(point.layer(0).block_count(), 3);
  MustOk(Append(sequence, Tokens(10000, 5000)));
  EXPECT_LE(point.nbytes_exclusive(), 3 * sequence.spec().layers[0].layout.BlockBytes(0));
  ExpectHolds(Restore(point), Tokens(0, 10000));
}

}  // namespace
}  // namespace kvasir
