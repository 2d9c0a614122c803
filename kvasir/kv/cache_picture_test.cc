// Pictures of a cache: who shares which blocks, and what is left out of them.
#include "kvasir/kv/cache_picture.h"

#include <gtest/gtest.h>

#include <utility>
#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;
using Runs = std::vector<CachePicture::Run>;

constexpr uint64_t kSalt = 7;

class CachePictureTest : public testing::Test {
 protected:
  explicit CachePictureTest(std::vector<KvLayerSpec> layers = {Layer(RetentionSpec::All()),
                                                               Layer(RetentionSpec::All())})
      : pool_(Budget(kAmpleBytes)), spec_(Spec(std::move(layers))), tree_(&pool_, spec_) {}

  KvSequence Compute(const std::vector<Token>& tokens) {
    KvSequence sequence = Must(KvSequence::Create(&pool_, spec_));
    MustOk(Append(sequence, tokens));
    return sequence;
  }
  // `tokens` from what is cached of them.
  KvSequence Continue(const std::vector<Token>& tokens) {
    auto match = Must(tree_.Find(kSalt, tokens, static_cast<int64_t>(tokens.size())));
    MustOk(Append(match.sequence, std::span(tokens).subspan(static_cast<size_t>(match.tokens))));
    return std::move(match.sequence);
  }
  void Cache(const std::vector<Token>& tokens) {
    ASSERT_TRUE(tree_.Insert(kSalt, tokens, Continue(tokens)));
  }

  KvPool pool_;
  std::shared_ptr<const KvCacheSpec> spec_;
  PrefixTree tree_;
};

std::vector<Token> Fork(int64_t common, Token branch, int64_t count) {
  std::vector<Token> tokens = Tokens(1, common);
  for (const Token token : Tokens(branch, count)) tokens.push_back(token);
  return tokens;
}

TEST_F(CachePictureTest, NothingIsAnEmptyPicture) {
  const CachePicture picture = PictureOf({}, tree_);
  EXPECT_TRUE(picture.sequences.empty());
  EXPECT_EQ(picture.left_out, 0);
  ASSERT_EQ(picture.kinds.size(), 1u);
  EXPECT_EQ(picture.kinds[0].layers, (std::vector<int>{0, 1}));
  EXPECT_EQ(picture.kinds[0].name, "all");
}

TEST_F(CachePictureTest, BranchesShareTheBlocksOfTheirCommonPrefix) {
  Cache(Fork(192, 1000, 100));
  Cache(Fork(192, 2000, 10));
  const CachePicture picture = PictureOf({}, tree_);
  ASSERT_EQ(picture.sequences.size(), 2u);
  const CachePicture::Sequence& later = picture.sequences[0];
  const CachePicture::Sequence& earlier = picture.sequences[1];
  EXPECT_EQ(later.tokens, 202);
  EXPECT_EQ(earlier.tokens, 292);
  ASSERT_EQ(later.runs.size(), 1u);
  EXPECT_EQ(later.runs[0], (Runs{{0, 3, 2, 0, false, 0}, {3, 1, 1, 0, false, 3}}));
  EXPECT_EQ(earlier.runs[0], (Runs{{0, 3, 2, 0, false, 0}, {3, 2, 1, 0, false, 4}}));
  EXPECT_EQ(picture.codecs, (std::vector<std::string>{"f32"}));
  // Two layers of f32 [2, 4] keys and [2, 3] values.
  const uint64_t block_bytes = 2 * 64 * 2 * (4 + 3) * 4;
  EXPECT_EQ(earlier.bytes, 5 * block_bytes);
  EXPECT_EQ(earlier.exclusive_bytes, 2 * block_bytes);
}

TEST_F(CachePictureTest, ARunningSequenceHidesItsOwnBeginning) {
  const std::vector<Token> tokens = Fork(128, 1000, 70);
  Cache(Tokens(1, 128));
  const KvSequence sequence = Continue(tokens);
  const PicturedSequence running{&sequence, 42, kSalt, tokens};
  const CachePicture picture = PictureOf({&running, 1}, tree_);
  ASSERT_EQ(picture.sequences.size(), 1u);
  EXPECT_EQ(picture.sequences[0].id, 42u);
  EXPECT_TRUE(picture.sequences[0].is_running);
  EXPECT_EQ(picture.sequences[0].runs[0], (Runs{{0, 4, 1, 0, true, 0}}));
  EXPECT_EQ(picture.left_out, 0);

  // Under another salt it is somebody else's.
  const PicturedSequence stranger{&sequence, 42, kSalt + 1, tokens};
  const CachePicture two = PictureOf({&stranger, 1}, tree_);
  ASSERT_EQ(two.sequences.size(), 2u);
  EXPECT_FALSE(two.sequences[1].is_running);
  EXPECT_EQ(two.sequences[1].runs[0], (Runs{{0, 2, 2, 0, true, 0}}));
}

TEST_F(CachePictureTest, BoundsAreKeptAndCounted) {
  for (Token branch = 1; branch <= 5; ++branch) Cache(Tokens(1000 * branch, 200));
  const CachePicture few = PictureOf({}, tree_, {.max_sequences = 2});
  ASSERT_EQ(few.sequences.size(), 2u);
  EXPECT_EQ(few.left_out, 3);
  EXPECT_GT(few.sequences[0].id, few.sequences[1].id) << "the latest come first";
  const CachePicture small = PictureOf({}, tree_, {.max_blocks = 11});
  EXPECT_EQ(small.sequences.size(), 2u);
  EXPECT_EQ(small.left_out, 3);
}

class MixedCachePictureTest : public CachePictureTest {
 protected:
  MixedCachePictureTest()
      : CachePictureTest({Layer(RetentionSpec::Window(64), F16(), F16()),
                          Layer(RetentionSpec::All()), Recurrent(64),
                          Layer(RetentionSpec::Window(64), F16(), F16())}) {}
};

TEST_F(MixedCachePictureTest, KindsHaveTheirOwnBlocksAndCodecs) {
  const std::vector<Token> tokens = Tokens(1, 320);
  Cache(tokens);
  const CachePicture picture = PictureOf({}, tree_);
  ASSERT_EQ(picture.kinds.size(), 3u);
  EXPECT_EQ(picture.kinds[0].layers, (std::vector<int>{0, 3}));
  EXPECT_EQ(picture.kinds[2].name, "state");
  ASSERT_EQ(picture.sequences.size(), 1u);
  const auto& runs = picture.sequences[0].runs;
  ASSERT_EQ(runs.size(), 3u);
  // The window reaches back over one block.
  ASSERT_EQ(runs[0].size(), 1u);
  EXPECT_EQ(runs[0][0].first_block, 4);
  EXPECT_EQ(runs[0][0].blocks, 1);
  ASSERT_EQ(runs[1].size(), 1u);
  EXPECT_EQ(runs[1][0].blocks, 5);
  ASSERT_EQ(runs[2].size(), 1u);
  EXPECT_EQ(runs[2][0].first_block, 4);
  EXPECT_EQ(picture.codecs, (std::vector<std::string>{"f16", "f32", "state"}));
}

class StatesCachePictureTest : public CachePictureTest {
 protected:
  StatesCachePictureTest() : CachePictureTest({Recurrent(4096), Layer(RetentionSpec::All())}) {}
};

// Also those that come after the same block.
TEST_F(StatesCachePictureTest, EveryStateIsShown) {
  const std::vector<Token> tokens = Tokens(1, 200);
  {
    KvSequence sequence = Must(KvSequence::Create(&pool_, spec_));
    sequence.KeepStatesAt({10, 20, 63, 130, 199});
    MustOk(Append(sequence, tokens));
    ASSERT_TRUE(tree_.Insert(kSalt, tokens, sequence));
  }
  const CachePicture picture = PictureOf({}, tree_);
  ASSERT_EQ(picture.sequences.size(), 1u);
  EXPECT_EQ(picture.sequences[0].bytes, pool_.used_bytes());
  int64_t states = 0;
  for (size_t kind = 0; kind < picture.kinds.size(); ++kind) {
    if (picture.kinds[kind].name != "state") continue;
    for (const CachePicture::Run& run : picture.sequences[0].runs[kind]) states += run.blocks;
  }
  EXPECT_EQ(states, 6);
}

}  // namespace
}  // namespace kvasir
