// Budgets: when rows are evicted, what stays, what is refused. Deliberately with scores that are
// plain to see; row_scores_test.cc has the scores, kv_model_test.cc everything at random.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_test_util.h"
#include "kvasir/kv/row_codec.h"
#include "kvasir/kv/speculation.h"

namespace kvasir {
namespace {

using namespace kv_testing;

KvLayerSpec BudgetLayer(const char* name) { return Layer(*RetentionSpec::FromName(name)); }

// Keeps 128 rows once 256 are stored: the first 4, the last 64, the latest of the rest.
constexpr const char* kStreaming = "budget:128,keep=4,recent=64,interval=128,score=streaming";
constexpr const char* kKnorm = "budget:128,keep=4,recent=64,interval=128,score=knorm";

class KvBudgetTest : public testing::Test {
 protected:
  KvSequence Make(std::vector<KvLayerSpec> layers) {
    return Must(KvSequence::Create(&pool_, Spec(std::move(layers))));
  }
  // Appends in runs of at most `chunk`, cut where rows are evicted.
  static void AppendCut(KvSequence& sequence, Position end, int64_t chunk = 1 << 20) {
    while (sequence.position() < end) {
      const int64_t run = std::min({chunk, end - sequence.position(), sequence.RunLimit()});
      MustOk(Append(sequence, Tokens(static_cast<Token>(sequence.position()), run)));
    }
  }
  static std::vector<Position> Sorted(std::vector<Position> positions) {
    std::sort(positions.begin(), positions.end());
    return positions;
  }

  KvPool pool_{Budget(kAmpleBytes)};
};

TEST_F(KvBudgetTest, EvictsAtFixedPositionsOnly) {
  auto sequence = Make({BudgetLayer(kStreaming)});
  EXPECT_EQ(sequence.RunLimit(), 256);
  MustOk(Append(sequence, Tokens(0, 256)));
  EXPECT_FALSE(sequence.evicted());  // only when room is needed
  EXPECT_EQ(sequence.RunLimit(), 128);
  MustOk(Append(sequence, Tokens(256, 1)));
  EXPECT_TRUE(sequence.evicted());
  EXPECT_EQ(sequence.RunLimit(), 127);
  EXPECT_EQ(sequence.StoredRows(0), 129);
  EXPECT_EQ(sequence.RowOf(0, 256), 128);
  EXPECT_EQ(sequence.Visible(0, 257), (VisibleRows{0, 0, 130}));
  std::vector<Position> kept = {0, 1, 2, 3};
  for (Position p = 132; p < 257; ++p) kept.push_back(p);
  EXPECT_EQ(Sorted(sequence.RowPositions(0)), kept);
  // Whatever the runs were, rows lie at the same places.
  auto slow = Make({BudgetLayer(kStreaming)});
  AppendCut(slow, 1000, 7);
  AppendCut(sequence, 1000);
  EXPECT_EQ(slow.RowPositions(0), sequence.RowPositions(0));
  EXPECT_EQ(slow.ReadRows(0, 0, slow.StoredRows(0)).keys,
            sequence.ReadRows(0, 0, sequence.StoredRows(0)).keys);
  EXPECT_EQ(sequence.nbytes(), sequence.spec().BytesAt(1000));
}

TEST_F(KvBudgetTest, ARunAcrossAnEvictionIsRefusedAndSaysWhereToCut) {
  auto sequence = Make({BudgetLayer(kKnorm)});
  MustOk(Append(sequence, Tokens(0, 100)));
  const Status status = sequence.Reserve(157);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(status.error().message.find("at position 256"), std::string::npos)
      << status.error().message;
  MustOk(sequence.Reserve(156));
}

TEST_F(KvBudgetTest, OnlyRowsOfBlocksThatLoseSomeMove) {
  auto sequence = Make({BudgetLayer(kStreaming)});
  AppendCut(sequence, 256);
  const std::byte* third = sequence.Blocks(0).block(2);
  const std::byte* last = sequence.Blocks(0).block(3);
  const size_t block = sequence.nbytes() / 4;
  // Rows 132-255 stay where they are, rows 0-3 move into the gap before them.
  auto fork = sequence.Fork();
  EXPECT_EQ(fork.BytesToReserve(1), 2 * block);  // nobody may write into the fork's third block
  MustOk(fork.CompactIfDue());
  EXPECT_NE(fork.Blocks(0).block(0), third);
  EXPECT_EQ(fork.Blocks(0).block(1), last);
  EXPECT_EQ(pool_.used_bytes(), 5 * block);
  ExpectHolds(sequence, Tokens(0, 256));

  EXPECT_EQ(sequence.BytesToReserve(1), block);
  MustOk(sequence.CompactIfDue());
  EXPECT_EQ(sequence.Blocks(0).block(0), third);
  EXPECT_EQ(sequence.Blocks(0).block(1), last);
  EXPECT_EQ(pool_.used_bytes(), 3 * block);
  EXPECT_EQ(sequence.RowPositions(0), fork.RowPositions(0));
  EXPECT_EQ(sequence.ReadRows(0, 0, 128).keys, fork.ReadRows(0, 0, 128).keys);
}

TEST_F(KvBudgetTest, LayersKeepOneSetUnlessAskedOtherwise) {
  auto sequence = Make({BudgetLayer(kKnorm), BudgetLayer(kKnorm)});
  AppendCut(sequence, 300);
  EXPECT_EQ(sequence.RowPositions(0), sequence.RowPositions(1));
  const std::string alone = std::string(kKnorm) + ",per-layer";
  auto each = Make({BudgetLayer(alone.c_str()), BudgetLayer(alone.c_str())});
  AppendCut(each, 300);
  EXPECT_NE(Sorted(each.RowPositions(0)), Sorted(each.RowPositions(1)));
}

TEST_F(KvBudgetTest, AfterAnEvictionTrimStopsThereOrTakesAll) {
  auto sequence = Make({BudgetLayer(kKnorm)});
  AppendCut(sequence, 256);
  EXPECT_EQ(sequence.MaxTrim(), 256);
  AppendCut(sequence, 300);
  EXPECT_EQ(sequence.MaxTrim(), 44);
  const auto refused = sequence.Trim(45);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_NE(refused.error().message.find("evicted rows at position 256"), std::string::npos)
      << refused.error().message;
  EXPECT_EQ(Must(sequence.Trim(44)), 44);
  EXPECT_EQ(sequence.StoredRows(0), 128);
  EXPECT_EQ(Must(sequence.Trim(1000)), 256);
  EXPECT_FALSE(sequence.evicted());
  ExpectHolds(sequence, {});
  AppendCut(sequence, 256);
  ExpectHolds(sequence, Tokens(0, 256));
}

TEST_F(KvBudgetTest, ByHand) {
  auto sequence = Make({BudgetLayer("budget:50,recent=10,score=streaming")});
  EXPECT_EQ(sequence.RunLimit(), kMaxPosition);
  MustOk(Append(sequence, Tokens(0, 120)));
  EXPECT_FALSE(Must(sequence.Compact(70)));
  EXPECT_FALSE(sequence.evicted());
  EXPECT_TRUE(Must(sequence.Compact(69)));
  EXPECT_EQ(sequence.StoredRows(0), 50);
  EXPECT_FALSE(Must(sequence.Compact()));
  EXPECT_FALSE(sequence.Compact(-1).ok());
  auto plain = Make({Layer(RetentionSpec::All())});
  EXPECT_EQ(plain.Compact().error().code, ErrorCode::kFailedPrecondition);
}

TEST_F(KvBudgetTest, SpeculationEvictsBeforeItBeginsAndNeverInside) {
  auto sequence = Make({BudgetLayer(kKnorm)});
  AppendCut(sequence, 256);
  KvSequence* const member = &sequence;
  auto speculation = Must(Speculation::Begin({&member, 1}));
  EXPECT_EQ(sequence.StoredRows(0), 128);
  AppendCut(sequence, 384);
  EXPECT_EQ(sequence.RunLimit(), 0);
  const Status status = sequence.Reserve(1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_NE(status.error().message.find("commit"), std::string::npos);
  EXPECT_FALSE(sequence.CompactIfDue().ok());
  EXPECT_FALSE(sequence.Compact().ok());
  const std::vector<int64_t> accepted = {100};
  MustOk(speculation.Commit(accepted));
  EXPECT_EQ(sequence.position(), 356);
  EXPECT_EQ(sequence.StoredRows(0), 228);
}

TEST_F(KvBudgetTest, ASnapshotKnowsThatRowsAreGone) {
  auto sequence = Make({BudgetLayer(kKnorm)});
  AppendCut(sequence, 256);
  const KvSnapshot whole = sequence.Snapshot();
  AppendCut(sequence, 320);
  EXPECT_FALSE(whole.evicted());
  const KvSnapshot late = sequence.Snapshot();
  EXPECT_TRUE(late.evicted());
  auto restored = Must(KvSequence::Restore(&pool_, late));
  EXPECT_EQ(restored.RowPositions(0), sequence.RowPositions(0));
  AppendCut(restored, 700);
  AppendCut(sequence, 700);
  EXPECT_EQ(restored.RowPositions(0), sequence.RowPositions(0));
  EXPECT_EQ(restored.ReadRows(0, 0, 188).values, sequence.ReadRows(0, 0, 188).values);
  // What ended before the eviction is still whole, though it was taken from the same tokens.
  EXPECT_EQ(Must(KvSequence::Restore(&pool_, whole)).StoredRows(0), 256);

  EXPECT_FALSE(late.Split(100).ok());
  auto [left, right] = Must(late.Split(290));
  EXPECT_TRUE(left.Restorable().ok());
  EXPECT_FALSE(right.Restorable().ok());
  EXPECT_EQ(Must(KvSequence::Restore(&pool_, Must(KvSnapshot::Merge(left, right)))).StoredRows(0),
            192);
  // All that is left of the positions before the eviction comes along with its end.
  EXPECT_TRUE(Must(KvSnapshot::Merge(sequence.Snapshot(600, 640), sequence.Snapshot(640, 700)))
                  .Restorable()
                  .ok());
  // Nothing is held of what ended before it.
  EXPECT_FALSE(sequence.Snapshot(0, 600).Restorable().ok());
}

TEST_F(KvBudgetTest, RowsOfAnotherNumberingDoNotGoOnFromThese) {
  auto sequence = Make({BudgetLayer(kKnorm)});
  AppendCut(sequence, 200);
  auto compacted = sequence.Fork();
  EXPECT_TRUE(Must(compacted.Compact()));
  AppendCut(compacted, 210);
  AppendCut(sequence, 230);
  const auto merged = KvSnapshot::Merge(compacted.Snapshot(), sequence.Snapshot(210, 230));
  ASSERT_FALSE(merged.ok());
  EXPECT_NE(merged.error().message.find("same eviction"), std::string::npos);
}

TEST(KvBudgetMemoryTest, WithoutRoomToMoveRowsNothingChanges) {
  KvLayerSpec layer = BudgetLayer(kKnorm);
  KvPool pool(Budget(4 * layer.layout.BlockBytes(0)));
  auto sequence = Must(KvSequence::Create(&pool, Spec({layer})));
  MustOk(Append(sequence, Tokens(0, 256)));
  const Status status = sequence.Reserve(1);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_FALSE(sequence.evicted());
  ExpectHolds(sequence, Tokens(0, 256));
}

TEST(KvBudgetMemoryTest, ACompactionWithoutRoomLeavesWhatIsReserved) {
  KvLayerSpec layer = BudgetLayer(kKnorm);
  layer.retention.interval = 0;
  KvPool pool(Budget(5 * layer.layout.BlockBytes(0)));
  auto sequence = Must(KvSequence::Create(&pool, Spec({layer})));
  MustOk(Append(sequence, Tokens(0, 256)));
  const KvSequence fork = sequence.Fork();  // whose rows cannot move in their place
  MustOk(sequence.Reserve(10));
  ASSERT_FALSE(sequence.Compact().ok());
  EXPECT_EQ(sequence.reserved_end(), 266);
  ExpectHolds(sequence, Tokens(0, 256));
}

TEST(KvBudgetMemoryTest, PackedRowsMoveBitByBit) {
  KvLayerSpec layer = BudgetLayer(kKnorm);
  layer.layout.key_dim = 32;
  layer.layout.value_dim = 48;
  layer.layout.key_codec = KvCodec::Affine(3, 32);
  layer.layout.value_codec = KvCodec::Turbo(4);
  layer.layout.key_norms = true;
  KvPool pool(Budget(kAmpleBytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({layer})));
  MustOk(Append(sequence, Tokens(0, 256)));
  const KvRows before = sequence.ReadRows(0, 0, 256);
  const size_t key_size = before.keys.size() / 256;
  MustOk(sequence.CompactIfDue());
  const auto positions = sequence.RowPositions(0);
  ASSERT_EQ(positions.size(), 128u);
  for (int64_t row = 0; row < 128; ++row) {
    const auto from =
        before.keys.begin() + positions[static_cast<size_t>(row)] * static_cast<int64_t>(key_size);
    EXPECT_EQ(sequence.ReadKeys(0, row),
              std::vector<float>(from, from + static_cast<int64_t>(key_size)));
  }
}

}  // namespace
}  // namespace kvasir
