#include "kvasir/kv/kv_batch.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

using Ids = std::vector<SequenceId>;
using Counts = std::vector<int64_t>;

class KvBatchTest : public testing::Test {
 protected:
  KvSequence Make(Token first, int64_t tokens) {
    auto sequence = Must(KvSequence::Create(&pool_, spec_));
    MustOk(Append(sequence, Tokens(first, tokens)));
    return sequence;
  }
  KvBatch Batch(const Ids& ids) {
    KvBatch batch;
    for (const SequenceId id : ids) {
      MustOk(batch.Add(id, Make(static_cast<Token>(1000 * id), static_cast<int64_t>(10 * id))));
    }
    return batch;
  }
  static void ExpectUntouched(const KvBatch& batch, SequenceId id) {
    ASSERT_NE(batch.Find(id), nullptr);
    ExpectHolds(*batch.Find(id),
                Tokens(static_cast<Token>(1000 * id), static_cast<int64_t>(10 * id)));
  }

  KvPool pool_{Budget(kAmpleBytes)};
  std::shared_ptr<const KvCacheSpec> spec_ =
      Spec({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(20))});
};

TEST_F(KvBatchTest, KeepsOrderAndFindsByIds) {
  const KvBatch batch = Batch({7, 3, 9});
  EXPECT_EQ(batch.ids(), (Ids{7, 3, 9}));
  EXPECT_EQ(batch.sequences()[1], batch.Find(3));
  EXPECT_EQ(batch.Find(4), nullptr);
  for (const SequenceId id : {7, 3, 9}) ExpectUntouched(batch, id);
}

TEST_F(KvBatchTest, AddRefusesAKnownIdAndLeavesTheSequence) {
  KvBatch batch = Batch({1, 2});
  auto sequence = Make(5, 5);
  const Status status = batch.Add(2, std::move(sequence));
  ASSERT_FALSE(status.ok());
  EXPECT_NE(status.error().message.find("sequence 2"), std::string::npos);
  ExpectHolds(sequence, Tokens(5, 5));
  auto stranger = Must(KvSequence::Create(&pool_, Spec({Layer(RetentionSpec::All())})));
  EXPECT_FALSE(batch.Add(3, std::move(stranger)).ok());
  KvPool other_pool(Budget(kAmpleBytes));
  auto foreign = Must(KvSequence::Create(&other_pool, spec_));
  EXPECT_FALSE(batch.Add(3, std::move(foreign)).ok());
  EXPECT_EQ(batch.ids(), (Ids{1, 2}));
}

TEST_F(KvBatchTest, FilterKeepsInTheGivenOrderAndFreesTheRest) {
  KvBatch batch = Batch({1, 2, 3, 4});
  KvSequence* const kept = batch.Find(4);
  MustOk(batch.Filter(Ids{4, 2}));
  EXPECT_EQ(batch.ids(), (Ids{4, 2}));
  EXPECT_EQ(batch.Find(4), kept);
  ExpectUntouched(batch, 2);
  ExpectUntouched(batch, 4);
  EXPECT_EQ(pool_.used_bytes(), batch.nbytes());
  for (const Ids& wrong : {Ids{2, 9}, Ids{2, 2}, Ids{1}}) {
    EXPECT_FALSE(batch.Filter(wrong).ok());
    EXPECT_EQ(batch.ids(), (Ids{4, 2}));
  }
  MustOk(batch.Filter(Ids{}));
  EXPECT_TRUE(batch.empty());
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

TEST_F(KvBatchTest, ExtendMovesAllOrNothing) {
  KvBatch batch = Batch({1, 2});
  KvBatch more = Batch({5, 6});
  KvSequence* const moved = more.Find(6);
  const size_t used = pool_.used_bytes();
  MustOk(batch.Extend(std::move(more)));
  EXPECT_EQ(batch.ids(), (Ids{1, 2, 5, 6}));
  EXPECT_EQ(batch.Find(6), moved);
  EXPECT_TRUE(more.empty());
  EXPECT_EQ(pool_.used_bytes(), used);
  KvBatch clash = Batch({8, 2});
  EXPECT_FALSE(batch.Extend(std::move(clash)).ok());
  EXPECT_EQ(clash.ids(), (Ids{8, 2}));
  EXPECT_EQ(batch.size(), 4u);
  EXPECT_FALSE(batch.Extend(std::move(batch)).ok());
  EXPECT_EQ(batch.size(), 4u);
  KvBatch empty;
  MustOk(batch.Extend(std::move(empty)));
  MustOk(empty.Extend(std::move(batch)));
  EXPECT_EQ(empty.size(), 4u);
}

TEST_F(KvBatchTest, ExtractTakesOut) {
  KvBatch batch = Batch({1, 2, 3});
  const auto sequence = Must(batch.Extract(2));
  ExpectHolds(sequence, Tokens(2000, 20));
  EXPECT_EQ(batch.ids(), (Ids{1, 3}));
  const auto missing = batch.Extract(2);
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
}

TEST_F(KvBatchTest, MergeJoinsBatches) {
  std::vector<KvBatch> parts;
  parts.push_back(Batch({4}));
  parts.push_back(KvBatch());
  parts.push_back(Batch({1, 2}));
  KvBatch merged = Must(KvBatch::Merge(parts));
  EXPECT_EQ(merged.ids(), (Ids{4, 1, 2}));
  EXPECT_TRUE(parts[0].empty());
  for (const SequenceId id : {4, 1, 2}) ExpectUntouched(merged, id);

  parts.clear();
  parts.push_back(std::move(merged));
  parts.push_back(Batch({2}));
  EXPECT_FALSE(KvBatch::Merge(parts).ok());
  EXPECT_EQ(parts[0].ids(), (Ids{4, 1, 2}));
  EXPECT_EQ(parts[1].ids(), (Ids{2}));

  parts.pop_back();
  KvBatch stranger;
  MustOk(stranger.Add(9, Must(KvSequence::Create(&pool_, Spec({Layer(RetentionSpec::All())})))));
  parts.push_back(std::move(stranger));
  EXPECT_FALSE(KvBatch::Merge(parts).ok());
  EXPECT_EQ(Must(KvBatch::Merge({})).size(), 0u);
}

TEST_F(KvBatchTest, EachSequenceTrimsByItsOwnCount) {
  KvBatch batch = Batch({1, 2, 8});  // 10, 20 and 80 tokens, window 20
  const auto reports = Must(batch.TrimEach(Counts{3, 100, 70}));
  ASSERT_EQ(reports.size(), 3u);
  EXPECT_EQ(reports[0].id, 1u);
  EXPECT_EQ(reports[0].trimmed, 3);
  EXPECT_EQ(reports[1].trimmed, 20);  // no more than there are
  EXPECT_EQ(reports[2].trimmed, 70);  // the first block still holds everything
  ExpectHolds(*batch.Find(1), Tokens(1000, 7));
  ExpectHolds(*batch.Find(2), {});
  ExpectHolds(*batch.Find(8), Tokens(8000, 10));
}

TEST_F(KvBatchTest, ARefusalDoesNotKeepOthersFromTrimming) {
  KvBatch batch = Batch({1, 30, 2});  // 300 tokens, window 20: block 4 (256 ...) on is held
  const auto reports = Must(batch.TrimEach(Counts{1, 26, 1}));
  EXPECT_TRUE(reports[0].status.ok() && reports[2].status.ok());
  ASSERT_FALSE(reports[1].status.ok());
  EXPECT_EQ(reports[1].id, 30u);
  EXPECT_EQ(reports[1].trimmed, 0);
  EXPECT_EQ(reports[1].status.error().code, ErrorCode::kFailedPrecondition);
  ExpectUntouched(batch, 30);
  ExpectHolds(*batch.Find(2), Tokens(2000, 19));
  EXPECT_EQ(batch.Find(30)->MaxTrim(), 25);
}

TEST_F(KvBatchTest, WrongCountsChangeNothing) {
  KvBatch batch = Batch({1, 2});
  EXPECT_FALSE(batch.TrimEach(Counts{1}).ok());
  EXPECT_FALSE(batch.TrimEach(Counts{1, -1}).ok());
  EXPECT_FALSE(batch.ReserveEach(Counts{1, 2, 3}).ok());
  EXPECT_FALSE(batch.ReserveEach(Counts{1, -2}).ok());
  EXPECT_EQ(batch.Find(1)->reserved_end(), 10);
  ExpectUntouched(batch, 1);
  ExpectUntouched(batch, 2);
}

TEST_F(KvBatchTest, RaggedStepsReserveTogether) {
  KvBatch batch = Batch({1, 2, 3});
  MustOk(batch.ReserveEach(Counts{1, 0, 500}));
  WriteReserved(*batch.Find(1), Tokens(1010, 1));
  WriteReserved(*batch.Find(3), Tokens(3030, 500));
  ExpectHolds(*batch.Find(1), Tokens(1000, 11));
  ExpectUntouched(batch, 2);
  ExpectHolds(*batch.Find(3), Tokens(3000, 530));
}

TEST_F(KvBatchTest, SharedBlocksCountOnce) {
  KvBatch batch = Batch({5});
  MustOk(batch.Add(6, batch.Find(5)->Fork()));
  EXPECT_EQ(batch.nbytes(), pool_.used_bytes());
  EXPECT_EQ(batch.Find(5)->nbytes() + batch.Find(6)->nbytes(), 2 * batch.nbytes());
}

}  // namespace
}  // namespace kvasir
