#include "kvasir/kv/kv_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

constexpr size_t kBlock = 1024;

Status Ensure(KvPool& pool, size_t block_bytes, int64_t count) {
  const KvPool::Demand demand = {block_bytes, count};
  return pool.EnsureFree({&demand, 1});
}

BlockRef TakeOne(KvPool& pool, size_t block_bytes = kBlock) {
  MustOk(Ensure(pool, block_bytes, 1));
  return pool.Take(block_bytes);
}

// Host memory that counts what is out and refuses the n-th allocation.
class CountingMemory final : public KvMemory {
 public:
  struct Counts {
    int allocations = 0;
    size_t live_bytes = 0;
    size_t copied_bytes = 0;
    int refuse_from = 1 << 30;
  };
  explicit CountingMemory(Counts* counts) : counts_(counts) {}

  Result<std::unique_ptr<Slab>> Allocate(size_t size_bytes) override {
    if (counts_->allocations >= counts_->refuse_from) {
      return {ErrorCode::kResourceExhausted, "refused by the test"};
    }
    ++counts_->allocations;
    counts_->live_bytes += size_bytes;
    KVASIR_TRY(auto slab, host_->Allocate(size_bytes));
    return std::unique_ptr<Slab>(
        std::make_unique<CountedSlab>(std::move(slab), size_bytes, counts_));
  }
  void Copy(std::byte* to, const std::byte* from, size_t size_bytes) override {
    counts_->copied_bytes += size_bytes;
    host_->Copy(to, from, size_bytes);
  }
  void Zero(std::byte* to, size_t size_bytes) override { host_->Zero(to, size_bytes); }

 private:
  class CountedSlab final : public Slab {
   public:
    CountedSlab(std::unique_ptr<Slab> slab, size_t size_bytes, Counts* counts)
        : slab_(std::move(slab)), size_bytes_(size_bytes), counts_(counts) {}
    ~CountedSlab() override { counts_->live_bytes -= size_bytes_; }
    std::byte* data() const override { return slab_->data(); }

   private:
    std::unique_ptr<Slab> slab_;
    size_t size_bytes_;
    Counts* counts_;
  };

  std::unique_ptr<KvMemory> host_ = KvMemory::Host();
  Counts* counts_;
};

TEST(KvPoolTest, NothingIsReservedBeforeTheFirstBlock) {
  KvPool pool(Budget(kAmpleBytes));
  EXPECT_EQ(pool.reserved_bytes(), 0u);
  MustOk(Ensure(pool, kBlock, 0));
  EXPECT_EQ(pool.reserved_bytes(), 0u);
  EXPECT_EQ(pool.Stats().growth_events, 0u);
}

TEST(KvPoolTest, SlabsDouble) {
  KvPool pool(Budget(kAmpleBytes));
  std::vector<BlockRef> blocks;
  std::vector<int64_t> totals;
  for (int i = 0; i < 200; ++i) {
    blocks.push_back(TakeOne(pool));
    const int64_t total = pool.Stats().size_classes[0].blocks;
    if (totals.empty() || totals.back() != total) totals.push_back(total);
  }
  EXPECT_EQ(totals, (std::vector<int64_t>{4, 8, 16, 32, 64, 128, 256}));
  EXPECT_EQ(pool.Stats().growth_events, 7u);
  EXPECT_EQ(pool.used_bytes(), 200 * kBlock);
  EXPECT_EQ(pool.reserved_bytes(), 256 * kBlock);
}

TEST(KvPoolTest, ExactSlabsHoldWhatIsWanted) {
  KvPool pool({.budget_bytes = 1000 * kBlock});
  pool.SetExactGrowth(true);
  std::vector<BlockRef> blocks;
  for (const int64_t count : {3, 1, 20}) {
    MustOk(Ensure(pool, kBlock, count));
    EXPECT_EQ(pool.FreeBlocks(kBlock), count);
    for (int64_t i = 0; i < count; ++i) blocks.push_back(pool.Take(kBlock));
    EXPECT_EQ(pool.reserved_bytes(), pool.used_bytes());
  }
  pool.SetExactGrowth(false);
  MustOk(Ensure(pool, kBlock, 1));
  EXPECT_EQ(pool.Stats().size_classes[0].blocks, 48);  // doubled
}

TEST(KvPoolTest, ADemandMayCrossSeveralSlabs) {
  KvPool pool(Budget(kAmpleBytes));
  MustOk(Ensure(pool, kBlock, 100));
  EXPECT_EQ(pool.Stats().size_classes[0].blocks, 128);
  EXPECT_EQ(pool.Stats().growth_events, 6u);  // 4, 4, 8, 16, 32, 64
}

TEST(KvPoolTest, NoSlabExceedsItsCap) {
  KvPoolOptions options = Budget(kAmpleBytes);
  options.max_slab_bytes = 10 * kBlock;
  KvPool pool(std::move(options));
  MustOk(Ensure(pool, kBlock, 50));
  // 4, 4, 8, then 10 at a time
  EXPECT_EQ(pool.Stats().growth_events, 7u);
  EXPECT_EQ(pool.Stats().size_classes[0].blocks, 56);

  KvPool small(Budget(160 * kBlock));  // an eighth is 20 blocks
  MustOk(Ensure(small, kBlock, 33));
  EXPECT_EQ(small.Stats().size_classes[0].blocks, 16 + 16 + 20);
}

TEST(KvPoolTest, ASlabIsCutToWhatTheBudgetAllows) {
  KvPool pool(Budget(6 * kBlock + 100));
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(TakeOne(pool));
  EXPECT_EQ(pool.reserved_bytes(), 6 * kBlock);
  EXPECT_FALSE(Ensure(pool, kBlock, 1).ok());
  blocks.pop_back();
  MustOk(Ensure(pool, kBlock, 1));
}

TEST(KvPoolTest, APoolTooSmallForOneBlockSaysSo) {
  for (const size_t budget : {size_t{0}, kBlock - 1}) {
    KvPool pool(Budget(budget));
    const Status status = Ensure(pool, kBlock, 1);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(status.error().message.find("1 blocks of 1024 bytes"), std::string::npos)
        << status.error().message;
    EXPECT_NE(status.error().message.find("budget of " + std::to_string(budget) + " bytes"),
              std::string::npos);
    EXPECT_EQ(pool.reserved_bytes(), 0u);
  }
}

TEST(KvPoolTest, AnEnormousDemandIsRefusedNotOverflowed) {
  KvPool pool(Budget(SIZE_MAX));
  EXPECT_FALSE(Ensure(pool, size_t{1} << 40, int64_t{1} << 40).ok());
  EXPECT_FALSE(Ensure(pool, kBlock, INT64_MAX).ok());
  MustOk(Ensure(pool, kBlock, 3));
}

TEST(KvPoolTest, SeveralSizesAllOrNothing) {
  KvPool pool(Budget(10 * kBlock));
  const std::vector<KvPool::Demand> too_much = {{kBlock, 4}, {4 * kBlock, 2}};
  EXPECT_FALSE(pool.EnsureFree(too_much).ok());
  EXPECT_EQ(pool.reserved_bytes(), 0u);
  const std::vector<KvPool::Demand> fits = {{kBlock, 2}, {4 * kBlock, 2}};
  MustOk(pool.EnsureFree(fits));
  EXPECT_EQ(pool.reserved_bytes(), 10 * kBlock);
  std::vector<BlockRef> blocks = {pool.Take(kBlock), pool.Take(kBlock), pool.Take(4 * kBlock),
                                  pool.Take(4 * kBlock)};
  EXPECT_EQ(pool.used_bytes(), 10 * kBlock);
}

TEST(KvPoolTest, EmptySlabsOfOneSizeMakeRoomForAnother) {
  KvPool pool(Budget(16 * kBlock));
  {
    std::vector<BlockRef> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(TakeOne(pool));
    blocks.erase(blocks.begin() + 1, blocks.end());  // one block pins the first slab
    EXPECT_EQ(pool.reserved_bytes(), 16 * kBlock);
    MustOk(Ensure(pool, 3 * kBlock, 4));  // 12 of 16: three of the four slabs must go
    EXPECT_EQ(pool.reserved_bytes(), 16 * kBlock);
    EXPECT_FALSE(Ensure(pool, 5 * kBlock, 3).ok());
  }
  MustOk(Ensure(pool, 5 * kBlock, 3));
  EXPECT_LE(pool.reserved_bytes(), 16 * kBlock);
}

TEST(KvPoolTest, ARefusedDemandGivesNothingBack) {
  KvPool pool(Budget(16 * kBlock));
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 8; ++i) blocks.push_back(TakeOne(pool));
  blocks.resize(1);
  const size_t reserved = pool.reserved_bytes();
  EXPECT_FALSE(Ensure(pool, 13 * kBlock, 1).ok());
  EXPECT_EQ(pool.reserved_bytes(), reserved);
}

TEST(KvPoolTest, FreedBlocksAreReusedOldestSlabFirst) {
  KvPool pool(Budget(kAmpleBytes));
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 16; ++i) blocks.push_back(TakeOne(pool));
  const std::byte* of_first_slab = blocks[2].data();
  const std::byte* of_last_slab = blocks[15].data();
  blocks[15] = BlockRef();
  blocks[2] = BlockRef();
  EXPECT_EQ(TakeOne(pool).data(), of_first_slab);
  blocks[2] = TakeOne(pool);
  blocks[15] = TakeOne(pool);
  EXPECT_EQ(blocks[15].data(), of_last_slab);
  EXPECT_EQ(pool.Stats().growth_events, 3u);
}

TEST(KvPoolTest, MemoryIsCommittedOnce) {
  KvPool pool(Budget(kAmpleBytes));
  std::vector<BlockRef> blocks;
  for (int i = 0; i < 6; ++i) blocks.push_back(TakeOne(pool));
  EXPECT_EQ(pool.committed_bytes(), 6 * kBlock);
  blocks.erase(blocks.begin() + 1, blocks.begin() + 3);
  for (int i = 0; i < 2; ++i) blocks.push_back(TakeOne(pool));
  EXPECT_EQ(pool.committed_bytes(), 6 * kBlock);
  blocks.push_back(TakeOne(pool));
  EXPECT_EQ(pool.committed_bytes(), 7 * kBlock);
  blocks.clear();
  pool.ReleaseFreeSlabs();
  blocks.push_back(TakeOne(pool));
  EXPECT_EQ(pool.committed_bytes(), 8 * kBlock);
}

TEST(KvPoolTest, FreshBlocksAreContiguous) {
  KvPool pool(Budget(kAmpleBytes));
  MustOk(Ensure(pool, kBlock, 4));
  const BlockRef a = pool.Take(kBlock), b = pool.Take(kBlock);
  EXPECT_EQ(b.data(), a.data() + kBlock);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(a.data()) % 64, 0u);
}

TEST(KvPoolTest, ReferencesAreCounted) {
  KvPool pool(Budget(kAmpleBytes));
  BlockRef a = TakeOne(pool);
  EXPECT_FALSE(a.shared());
  {
    const BlockRef b = a;
    EXPECT_TRUE(a.shared());
    EXPECT_EQ(pool.used_bytes(), kBlock);
  }
  EXPECT_FALSE(a.shared());
  BlockRef c = std::move(a);
  EXPECT_FALSE(c.shared());
  BlockRef& alias = c;
  c = alias;
  EXPECT_FALSE(c.shared());
  c = BlockRef();
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(pool.Stats().peak_used_bytes, kBlock);
}

TEST(KvPoolTest, CopiesGoThroughTheMemoryAndAreCounted) {
  CountingMemory::Counts counts;
  KvPoolOptions options = Budget(kAmpleBytes);
  options.memory = std::make_unique<CountingMemory>(&counts);
  KvPool pool(std::move(options));
  const BlockRef original = TakeOne(pool);
  std::memset(original.data(), 0x5A, kBlock);
  const BlockRef copy = pool.TakeCopy(original);
  EXPECT_NE(copy.data(), original.data());
  EXPECT_EQ(std::memcmp(copy.data(), original.data(), kBlock), 0);
  EXPECT_EQ(counts.copied_bytes, kBlock);
  EXPECT_EQ(pool.Stats().copied_bytes, kBlock);
}

TEST(KvPoolTest, FreeSlabsGoBackToTheMemory) {
  CountingMemory::Counts counts;
  {
    KvPoolOptions options = Budget(kAmpleBytes);
    options.memory = std::make_unique<CountingMemory>(&counts);
    KvPool pool(std::move(options));
    std::vector<BlockRef> blocks;
    for (int i = 0; i < 16; ++i) blocks.push_back(TakeOne(pool));
    EXPECT_EQ(counts.live_bytes, 16 * kBlock);
    blocks.resize(5);
    EXPECT_EQ(pool.ReleaseFreeSlabs(), 8 * kBlock);
    EXPECT_EQ(counts.live_bytes, 8 * kBlock);
    EXPECT_EQ(pool.reserved_bytes(), 8 * kBlock);
    blocks.clear();
    EXPECT_EQ(pool.ReleaseFreeSlabs(), 8 * kBlock);
    EXPECT_EQ(pool.reserved_bytes(), 0u);
    EXPECT_EQ(pool.Stats().size_classes[0].slabs, 0);
    blocks.push_back(TakeOne(pool));  // and the series starts again
    EXPECT_EQ(pool.reserved_bytes(), 4 * kBlock);
  }
  EXPECT_EQ(counts.live_bytes, 0u);
}

TEST(KvPoolTest, ARefusingSystemIsAnErrorNotACrash) {
  CountingMemory::Counts counts;
  counts.refuse_from = 2;
  KvPoolOptions options = Budget(kAmpleBytes);
  options.memory = std::make_unique<CountingMemory>(&counts);
  KvPool pool(std::move(options));
  const Status status = Ensure(pool, kBlock, 100);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "refused by the test");
  EXPECT_EQ(pool.used_bytes(), 0u);
  EXPECT_EQ(pool.reserved_bytes(), 0u);  // what did come has gone back
  EXPECT_EQ(counts.live_bytes, 0u);
  counts.refuse_from = 1 << 30;
  MustOk(Ensure(pool, kBlock, 8));
}

TEST(KvPoolDeathTest, MustOutliveItsBlocks) {
  EXPECT_DEATH(
      {
        std::optional<KvPool> pool(std::in_place, Budget(kAmpleBytes));
        const BlockRef block = TakeOne(*pool);
        pool.reset();
      },
      "check failed");
}

}  // namespace
}  // namespace kvasir
