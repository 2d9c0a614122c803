// The growth facts: what appending costs, in slabs, bytes and copies. Never in time.
#include <gtest/gtest.h>

#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

// f16, 8 heads of 128: 256 KiB per block. Pages that nobody writes cost nothing.
KvLayerSpec WideLayer() {
  return {
      {.kv_heads = 8, .key_dim = 128, .value_dim = 128, .key_codec = F16(), .value_codec = F16()},
      RetentionSpec::All()};
}

void Grow(KvSequence& sequence, int64_t tokens) {
  MustOk(sequence.Reserve(tokens));
  sequence.Advance(tokens);
}

int64_t CapacityFor(int64_t tokens) {
  int64_t capacity = 256;
  while (capacity < tokens) capacity *= 2;
  return capacity;
}

TEST(GrowthTest, CapacityDoublesAndNothingIsCopied) {
  KvPool pool(Budget(kAmpleBytes));
  const auto spec = Spec({WideLayer()});
  const size_t block_bytes = spec->layers[0].layout.BlockBytes(0);
  auto sequence = Must(KvSequence::Create(&pool, spec));
  EXPECT_EQ(sequence.capacity_tokens(), 0);
  EXPECT_EQ(sequence.nbytes(), 0u);
  for (int64_t tokens = 1; tokens <= 2100; ++tokens) {
    Grow(sequence, 1);
    ASSERT_EQ(sequence.position(), tokens);
    ASSERT_EQ(sequence.capacity_tokens(), CapacityFor(tokens)) << tokens;
    const auto blocks = static_cast<size_t>((tokens + 63) / 64);
    ASSERT_EQ(sequence.nbytes(), blocks * block_bytes);
    ASSERT_EQ(sequence.nbytes_exclusive(), blocks * block_bytes);
    ASSERT_EQ(pool.used_bytes(), blocks * block_bytes);
    ASSERT_EQ(pool.reserved_bytes(),
              static_cast<size_t>(sequence.capacity_tokens() / 64) * block_bytes);
  }
  EXPECT_EQ(pool.Stats().copied_bytes, 0u);
  EXPECT_EQ(pool.Stats().growth_events, 5u);  // 256, 512, 1024, 2048, 4096
}

struct Border {
  int64_t tokens;
  int64_t capacity;
};

class GrowthBorderTest : public testing::TestWithParam<Border> {};

TEST_P(GrowthBorderTest, OneByOneAndAtOnceEndAlike) {
  const auto [tokens, capacity] = GetParam();
  for (const int64_t step : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{2048}, tokens}) {
    KvPool pool(Budget(kAmpleBytes));
    auto sequence = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::All())})));
    std::vector<Token> all;
    while (sequence.position() < tokens) {
      const int64_t count = std::min(step, tokens - sequence.position());
      const auto run = Tokens(static_cast<Token>(all.size()), count);
      MustOk(Append(sequence, run));
      all.insert(all.end(), run.begin(), run.end());
    }
    EXPECT_EQ(sequence.capacity_tokens(), capacity) << "step " << step;
    EXPECT_EQ(pool.Stats().copied_bytes, 0u);
    ExpectHolds(sequence, all);
  }
}

INSTANTIATE_TEST_SUITE_P(Borders, GrowthBorderTest,
                         testing::Values(Border{1, 256}, Border{63, 256}, Border{64, 256},
                                         Border{65, 256}, Border{255, 256}, Border{256, 256},
                                         Border{257, 512}, Border{258, 512}, Border{511, 512},
                                         Border{512, 512}, Border{513, 1024}, Border{902, 1024},
                                         Border{2048, 2048}, Border{2049, 4096},
                                         Border{5000, 8192}));

TEST(GrowthTest, OneAppendMayCrossSeveralSlabs) {
  KvPool pool(Budget(kAmpleBytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::All())})));
  MustOk(Append(sequence, Tokens(0, 100)));
  MustOk(Append(sequence, Tokens(100, 2048)));  // 256 -> 512, 1024, 2048, 4096
  EXPECT_EQ(sequence.capacity_tokens(), 4096);
  EXPECT_EQ(pool.Stats().growth_events, 5u);
  EXPECT_EQ(pool.Stats().copied_bytes, 0u);
  ExpectHolds(sequence, Tokens(0, 2148));
}

TEST(GrowthTest, AddressesNeverChange) {
  KvPool pool(Budget(kAmpleBytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({WideLayer()})));
  Grow(sequence, 1);
  std::vector<std::byte*> seen;
  for (int i = 0; i < 3000; ++i) {
    Grow(sequence, 1);
    const KvBlocksView view = sequence.Blocks(0);
    for (size_t block = 0; block < seen.size(); ++block) {
      ASSERT_EQ(view.blocks[block], seen[block]);
    }
    seen.assign(view.blocks.begin(), view.blocks.end());
  }
}

// 32k single appends: allocations are O(log n), each step takes a block every 64 tokens and
// touches nothing else.
TEST(GrowthTest, SingleAppendsStayFlat) {
  KvPool pool(Budget(kAmpleBytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({WideLayer()})));
  const size_t block_bytes = sequence.spec().layers[0].layout.BlockBytes(0);
  for (int64_t tokens = 0; tokens < 32768; ++tokens) {
    const size_t before = pool.used_bytes();
    Grow(sequence, 1);
    ASSERT_EQ(pool.used_bytes() - before, tokens % 64 == 0 ? block_bytes : 0);
  }
  EXPECT_EQ(pool.Stats().growth_events, 8u);  // 256 ... 32768
  EXPECT_EQ(pool.reserved_bytes(), size_t{128} << 20);
  EXPECT_EQ(pool.Stats().copied_bytes, 0u);
}

TEST(GrowthTest, LayersOfOneSizeShareTheSeries) {
  KvPool pool(Budget(kAmpleBytes));
  const auto spec = std::make_shared<const KvCacheSpec>(
      KvCacheSpec::Uniform(28, Layer(RetentionSpec::All(), F16(), F16())));
  auto sequence = Must(KvSequence::Create(&pool, spec));
  Grow(sequence, 1);
  EXPECT_EQ(pool.Stats().growth_events, 4u);  // 4 + 4 + 8 + 16 blocks hold 28
  Grow(sequence, 8191);
  EXPECT_EQ(pool.Stats().size_classes[0].blocks, 4096);  // 28 * 128 = 3584 are needed
  EXPECT_EQ(pool.Stats().copied_bytes, 0u);
}

TEST(GrowthTest, AWindowStopsGrowing) {
  KvPool pool(Budget(kAmpleBytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::Window(500))})));
  const size_t block_bytes = sequence.spec().layers[0].layout.BlockBytes(0);
  Grow(sequence, 700);
  const uint64_t growth_events = pool.Stats().growth_events;
  for (int i = 0; i < 5000; ++i) {
    Grow(sequence, 1);
    // The last 499 rows before the next token touch at most 9 blocks, with the tail's own.
    ASSERT_LE(sequence.nbytes(), 9 * block_bytes);
  }
  EXPECT_EQ(pool.Stats().growth_events, growth_events);
}

TEST(GrowthTest, TrimmedBlocksAreTakenAgainBeforeTheyGrow) {
  KvPool pool(Budget(kAmpleBytes));
  auto sequence = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::All())})));
  Grow(sequence, 1000);
  EXPECT_EQ(Must(sequence.Trim(900)), 900);
  EXPECT_EQ(sequence.capacity_tokens(), 1024);
  Grow(sequence, 924);
  EXPECT_EQ(sequence.capacity_tokens(), 1024);
  EXPECT_EQ(pool.Stats().growth_events, 3u);
  EXPECT_EQ(pool.Stats().copied_bytes, 0u);
}

}  // namespace
}  // namespace kvasir
