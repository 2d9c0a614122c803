#include "kvasir/kv/kv_layer.h"

#include <gtest/gtest.h>

#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

constexpr size_t kBlock = 256;

class KvLayerTest : public testing::Test {
 protected:
  BlockRef Take() {
    const KvPool::Demand demand = {kBlock, 1};
    MustOk(pool_.EnsureFree({&demand, 1}));
    return pool_.Take(kBlock);
  }
  static void ExpectHead(const KvLayer& layer, int64_t count) {
    ASSERT_EQ(layer.view().head.size(), static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      EXPECT_EQ(layer.view().block(i), layer.head()[static_cast<size_t>(i)].data());
    }
  }
  // Blocks [first, end).
  KvLayer Make(int64_t first, int64_t end) {
    KvLayer layer;
    layer.DropBefore(first);
    for (int64_t i = first; i < end; ++i) layer.Append(Take());
    return layer;
  }
  static void ExpectRange(const KvLayer& layer, int64_t first, int64_t end) {
    EXPECT_EQ(layer.first_block(), first);
    EXPECT_EQ(layer.end_block(), end);
    EXPECT_EQ(layer.view().first_block, first);
    ASSERT_EQ(layer.view().blocks.size(), static_cast<size_t>(end - first));
    for (int64_t i = first; i < end; ++i) {
      EXPECT_EQ(layer.view().blocks[static_cast<size_t>(i - first)], layer.block(i).data());
      EXPECT_EQ(layer.view().block_of(i * 64 + 5), layer.block(i).data());
    }
  }

  KvPool pool_{Budget(kAmpleBytes)};
};

TEST_F(KvLayerTest, DropsAtBothEnds) {
  KvLayer layer = Make(0, 6);
  EXPECT_EQ(layer.capacity_rows(), 384);
  layer.DropBefore(2);
  layer.DropBefore(1);
  ExpectRange(layer, 2, 6);
  EXPECT_EQ(layer.first_row(), 128);
  layer.DropFrom(5);
  layer.DropFrom(7);
  ExpectRange(layer, 2, 5);
  EXPECT_EQ(pool_.used_bytes(), 3 * kBlock);
  layer.DropBefore(9);
  ExpectRange(layer, 9, 9);
  EXPECT_EQ(pool_.used_bytes(), 0u);
  layer.DropFrom(0);
  ExpectRange(layer, 0, 0);
}

TEST_F(KvLayerTest, SlicesShareBlocks) {
  const KvLayer layer = Make(2, 8);
  const KvLayer slice = layer.Slice(0, 5);
  ExpectRange(slice, 2, 5);
  ExpectRange(layer.Slice(4, 100), 4, 8);
  ExpectRange(layer.Slice(0, 1), 1, 1);
  ExpectRange(layer.Slice(8, 8), 8, 8);
  EXPECT_EQ(slice.block(3).data(), layer.block(3).data());
  EXPECT_EQ(pool_.used_bytes(), 6 * kBlock);
  EXPECT_TRUE(layer.block(3).shared());
  EXPECT_FALSE(layer.block(7).shared());
}

TEST_F(KvLayerTest, JoinsNeighboursAndPrefersTheLaterBlock) {
  const KvLayer a = Make(0, 4);
  const KvLayer b = Make(3, 6);
  const KvLayer joined = a.Joined(b);
  ExpectRange(joined, 0, 6);
  EXPECT_EQ(joined.block(2).data(), a.block(2).data());
  EXPECT_EQ(joined.block(3).data(), b.block(3).data());
  ExpectRange(a.Joined(Make(4, 5)), 0, 5);
}

TEST_F(KvLayerTest, AGapKeepsTheLaterOnly) {
  const KvLayer a = Make(0, 4);
  const KvLayer b = Make(5, 6);
  const KvLayer joined = a.Joined(b);
  ExpectRange(joined, 5, 6);
  EXPECT_EQ(joined.block(5).data(), b.block(5).data());
  ExpectRange(b.Joined(Make(2, 9)), 2, 9);
  ExpectRange(KvLayer().Joined(a), 0, 4);
  ExpectRange(a.Joined(Make(4, 4)), 0, 4);
}

TEST_F(KvLayerTest, TheHeadStaysWhenOthersAreDropped) {
  KvLayer layer = Make(0, 8);
  std::byte* const first = layer.block(0).data();
  layer.DropBefore(2, 2);
  ExpectRange(layer, 0, 8);  // nothing lies between
  layer.DropBefore(4, 2);
  ExpectRange(layer, 4, 8);
  ExpectHead(layer, 2);
  EXPECT_EQ(layer.view().block(0), first);
  layer.DropBefore(6, 2);
  ExpectHead(layer, 2);
  EXPECT_EQ(pool_.used_bytes(), 4 * kBlock);
  EXPECT_TRUE(layer.Holds(1));
  EXPECT_FALSE(layer.Holds(2));
  layer.DropFrom(1);
  ExpectRange(layer, 0, 1);
  ExpectHead(layer, 0);
  EXPECT_EQ(layer.block(0).data(), first);
}

TEST_F(KvLayerTest, SlicesAndJoinsWithAHead) {
  KvLayer layer = Make(0, 9);
  const KvLayer early = layer.Slice(0, 5);
  layer.DropBefore(6, 2);
  for (int64_t at = 0; at <= 9; ++at) {
    const KvLayer joined = layer.Slice(0, at).Joined(layer.Slice(at, 9), 2);
    ExpectRange(joined, 6, 9);
    ExpectHead(joined, 2);
  }
  // What went on from 5 has dropped up to 6: the head comes from before the gap.
  const KvLayer across = early.Joined(layer.Slice(5, 9), 2);
  ExpectRange(across, 6, 9);
  ExpectHead(across, 2);
  EXPECT_EQ(across.view().block(1), early.block(1).data());
  // Half of the head from each side.
  const KvLayer halves = early.Slice(0, 1).Joined(layer.Slice(1, 9), 2);
  ExpectHead(halves, 2);
}

TEST_F(KvLayerTest, ReplacesTheLast) {
  KvLayer layer = Make(1, 3);
  const BlockRef block = Take();
  layer.ReplaceLast(block);
  ExpectRange(layer, 1, 3);
  EXPECT_EQ(layer.block(2).data(), block.data());
}

}  // namespace
}  // namespace kvasir
