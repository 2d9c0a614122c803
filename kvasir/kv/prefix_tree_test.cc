// The prefix tree: what is found after what was inserted and evicted, its bits and its bytes.
// Deliberately compares every hit with a sequence that was computed without any cache.
// A failure of the random test prints its seed; KVASIR_KV_SEED=n runs that seed only.
#include "kvasir/kv/prefix_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();
constexpr uint64_t kSalt = 7;

std::vector<Token> Concat(std::vector<Token> a, const std::vector<Token>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

KvSequence Compute(KvPool* pool, const std::shared_ptr<const KvCacheSpec>& spec,
                   const std::vector<Token>& tokens) {
  KvSequence sequence = Must(KvSequence::Create(pool, spec));
  MustOk(Append(sequence, tokens));
  return sequence;
}

// What the next query reads is the same, bit for bit.
void ExpectSame(const KvSequence& a, const KvSequence& b) {
  ASSERT_EQ(a.position(), b.position());
  const Position end = a.position();
  const auto& layers = a.spec().layers;
  for (size_t i = 0; i < layers.size(); ++i) {
    const int layer = static_cast<int>(i);
    if (layers[i].is_recurrent()) {
      ASSERT_EQ(LoadState(a.State(layer)), LoadState(b.State(layer))) << "layer " << layer;
      continue;
    }
    const VisibleRows rows = a.Visible(layer, end);
    const auto expect_rows = [&](int64_t first, int64_t last) {
      const KvRows ours = a.ReadRows(layer, first, last);
      const KvRows theirs = b.ReadRows(layer, first, last);
      ASSERT_EQ(ours.keys, theirs.keys) << "layer " << layer;
      ASSERT_EQ(ours.values, theirs.values) << "layer " << layer;
    };
    expect_rows(0, rows.head_end);
    expect_rows(rows.begin, end);
    if (layers[i].layout.dense_recent == 0) continue;
    const int64_t recent = layers[i].layout.RecentBegin(end);
    ASSERT_EQ(a.ReadRecentRows(layer, recent, end).keys, b.ReadRecentRows(layer, recent, end).keys);
  }
}

class PrefixTreeTest : public testing::Test {
 protected:
  explicit PrefixTreeTest(std::vector<KvLayerSpec> layers = {Layer(RetentionSpec::All()),
                                                             Layer(RetentionSpec::All())})
      : spec_(Spec(std::move(layers))), tree_(&pool_, spec_) {}

  size_t BlockBytes() const { return spec_->layers[0].layout.BlockBytes(0); }
  KvSequence Compute(const std::vector<Token>& tokens) {
    return kvasir::Compute(&pool_, spec_, tokens);
  }
  void Insert(const std::vector<Token>& tokens, PrefixPriority priority = PrefixPriority::kNormal) {
    EXPECT_TRUE(tree_.Insert(kSalt, tokens, Compute(tokens), priority));
  }
  int64_t Found(const std::vector<Token>& tokens, int64_t limit = kNoLimit) {
    return Must(tree_.Find(kSalt, tokens, limit)).tokens;
  }

  KvPool pool_{Budget(kAmpleBytes)};
  std::shared_ptr<const KvCacheSpec> spec_;
  PrefixTree tree_;
};

class PrefixTreeWindowTest : public PrefixTreeTest {
 protected:
  PrefixTreeWindowTest()
      : PrefixTreeTest({Layer(RetentionSpec::Window(70)), Layer(RetentionSpec::All())}) {}
};

TEST_F(PrefixTreeTest, FindsNothingInAnEmptyTree) {
  const auto match = Must(tree_.Find(kSalt, Tokens(0, 10), kNoLimit));
  EXPECT_EQ(match.tokens, 0);
  EXPECT_EQ(match.diverges_at, 0);
  EXPECT_EQ(match.sequence.position(), 0);
  EXPECT_EQ(tree_.Stats().misses, 1u);
  EXPECT_TRUE(tree_.Insert(kSalt, {}, Must(KvSequence::Create(&pool_, spec_))));
  EXPECT_EQ(tree_.Stats().nodes, 0);
}

TEST_F(PrefixTreeTest, FindsEveryPointOfDivergence) {
  const std::vector<Token> cached = Tokens(0, 200);
  Insert(cached);
  for (int64_t parts = 0; parts <= 200; ++parts) {
    const auto tokens = Concat(Tokens(0, parts), Tokens(1000, 5));
    auto match = Must(tree_.Find(kSalt, tokens, kNoLimit));
    ASSERT_EQ(match.tokens, parts);
    ASSERT_EQ(match.diverges_at, parts);
    ExpectHolds(match.sequence, Tokens(0, parts));
    MustOk(Append(match.sequence, Tokens(1000, 5)));
    ExpectHolds(match.sequence, tokens);
    ASSERT_TRUE(tree_.Insert(kSalt, tokens, match.sequence));
  }
  EXPECT_EQ(Found(cached), 200);
  EXPECT_EQ(Found(cached, 199), 199);
  EXPECT_EQ(Found(cached, 0), 0);
  EXPECT_EQ(Found(cached, -5), 0);
  EXPECT_EQ(Must(tree_.Find(kSalt, cached, 60)).diverges_at, 200);
  EXPECT_EQ(tree_.Stats().tokens, 200 + 201 * 5);
}

TEST_F(PrefixTreeTest, ContinuesWithWhatOthersSaid) {
  const std::vector<Token> question = Tokens(0, 100);
  Insert(Concat(question, Tokens(1000, 20)));
  EXPECT_EQ(tree_.Continuation(kSalt, question, 8), Tokens(1000, 8));
  EXPECT_EQ(tree_.Continuation(kSalt, question, 50), Tokens(1000, 20));
  EXPECT_EQ(tree_.Continuation(kSalt, Tokens(0, 99), 3), Concat(Tokens(99, 1), Tokens(1000, 2)));
  EXPECT_TRUE(tree_.Continuation(kSalt, Concat(question, {5}), 8).empty());
  EXPECT_TRUE(tree_.Continuation(kSalt, {}, 8).empty());
  EXPECT_TRUE(tree_.Continuation(kSalt, question, 0).empty());
  EXPECT_TRUE(tree_.Continuation(kSalt + 1, question, 8).empty()) << "another tenant's words";
  // Where they part, the way that was gone last.
  Insert(Concat(question, Tokens(2000, 20)));
  EXPECT_EQ(tree_.Continuation(kSalt, question, 4), Tokens(2000, 4));
  EXPECT_EQ(Found(Concat(question, Tokens(1000, 3))), 103);
  EXPECT_EQ(tree_.Continuation(kSalt, question, 4), Tokens(1000, 4));
}

TEST_F(PrefixTreeTest, FindNeedsNoFreeBlockAndCopiesNothing) {
  Insert(Tokens(0, 300));
  const KvPoolStats before = pool_.Stats();
  const auto match = Must(tree_.Find(kSalt, Tokens(0, 250), kNoLimit));
  EXPECT_EQ(match.tokens, 250);
  EXPECT_EQ(pool_.used_bytes(), before.used_bytes);
  EXPECT_EQ(pool_.Stats().copied_bytes, before.copied_bytes);
  EXPECT_EQ(match.sequence.nbytes_exclusive(), 0u);
}

TEST_F(PrefixTreeTest, AConversationHoldsItsBlocksOnce) {
  std::vector<Token> tokens;
  for (int turn = 0; turn < 9; ++turn) {
    auto match = Must(tree_.Find(kSalt, tokens, kNoLimit));
    ASSERT_EQ(match.tokens, static_cast<int64_t>(tokens.size()));
    const std::vector<Token> turn_tokens = Tokens(turn * 100, 23);
    MustOk(Append(match.sequence, turn_tokens));
    tokens = Concat(tokens, turn_tokens);
    ASSERT_TRUE(tree_.Insert(kSalt, tokens, match.sequence));
  }
  EXPECT_EQ(tree_.Stats().nodes, 9);
  EXPECT_EQ(tree_.Stats().bytes, spec_->BytesAt(9 * 23));
  EXPECT_EQ(pool_.used_bytes(), spec_->BytesAt(9 * 23));
  tree_.Clear();
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

TEST_F(PrefixTreeTest, TheSameTokensAreHeldOnce) {
  Insert(Tokens(0, 150));
  const size_t bytes = pool_.used_bytes();
  Insert(Tokens(0, 150));
  Insert(Tokens(0, 80));
  EXPECT_EQ(pool_.used_bytes(), bytes);
}

TEST_F(PrefixTreeTest, TheSequenceGoesOnWithoutChangingWhatItPublished) {
  KvSequence sequence = Compute(Tokens(0, 100));
  ASSERT_TRUE(tree_.Insert(kSalt, Tokens(0, 100), sequence));
  MustOk(Append(sequence, Tokens(500, 30)));
  EXPECT_EQ(Must(sequence.Trim(60)), 60);
  MustOk(Append(sequence, Tokens(900, 60)));
  ExpectHolds(Must(tree_.Find(kSalt, Tokens(0, 100), kNoLimit)).sequence, Tokens(0, 100));
}

TEST_F(PrefixTreeTest, SaltsSeeNothingOfEachOther) {
  const std::vector<Token> secret = Tokens(31337, 150);
  ASSERT_TRUE(tree_.Insert(1, secret, Compute(secret)));
  for (const uint64_t other : {uint64_t{0}, uint64_t{2}, ~uint64_t{0}}) {
    const auto match = Must(tree_.Find(other, secret, kNoLimit));
    EXPECT_EQ(match.tokens, 0);
    EXPECT_EQ(match.diverges_at, 0);
    EXPECT_EQ(match.sequence.nbytes(), 0u);
  }
  const std::vector<Token> fork = Concat(Tokens(31337, 100), {1});
  ASSERT_TRUE(tree_.Insert(2, fork, Compute(fork)));
  EXPECT_EQ(Must(tree_.Find(1, fork, kNoLimit)).tokens, 100);
  EXPECT_EQ(Must(tree_.Find(1, fork, kNoLimit)).diverges_at, 100);
  EXPECT_EQ(Must(tree_.Find(2, secret, kNoLimit)).tokens, 100);
  // Blocks of one are never those of the other.
  const auto first = Must(tree_.Find(1, secret, kNoLimit)).sequence.BlockReferences();
  for (const KvBlock* block : Must(tree_.Find(2, fork, kNoLimit)).sequence.BlockReferences()) {
    EXPECT_EQ(std::count(first.begin(), first.end(), block), 0);
  }
}

TEST_F(PrefixTreeTest, RefusesWhatIsNoCacheOfItsTokens) {
  const std::vector<Token> tokens = Tokens(0, 100);
  KvPool other_pool(Budget(kAmpleBytes));
  const KvSequence foreign = kvasir::Compute(&other_pool, spec_, tokens);
  EXPECT_FALSE(tree_.Insert(kSalt, tokens, foreign));
  const auto other_spec = Spec({Layer(RetentionSpec::All())});
  EXPECT_FALSE(tree_.Insert(kSalt, tokens, kvasir::Compute(&pool_, other_spec, tokens)));
  const KvSequence longer = Compute(Tokens(0, 101));
  EXPECT_FALSE(tree_.Insert(kSalt, tokens, longer));
  EXPECT_FALSE(tree_.Insert(kSalt, Tokens(0, 101), longer.Snapshot(64, 101)));
  EXPECT_EQ(tree_.Stats().nodes, 0);
  EXPECT_TRUE(tree_.Insert(kSalt, tokens, Compute(tokens)));
  EXPECT_TRUE(tree_.Insert(kSalt, Tokens(0, 101), longer.Snapshot(64, 101)));
  EXPECT_EQ(Found(Tokens(0, 200)), 101);
}

TEST(PrefixTreeBudgetTest, RefusesEvictedSequences) {
  KvPool pool(Budget(kAmpleBytes));
  KvLayerSpec layer = Layer(*RetentionSpec::FromName("budget:64,interval=64,score=streaming"));
  const auto spec = Spec({layer});
  PrefixTree tree(&pool, spec);
  KvSequence sequence = Compute(&pool, spec, Tokens(0, 128));
  EXPECT_TRUE(tree.Insert(kSalt, Tokens(0, 128), sequence));
  MustOk(Append(sequence, Tokens(128, 10)));
  ASSERT_TRUE(sequence.evicted());
  EXPECT_FALSE(tree.Insert(kSalt, Tokens(0, 138), sequence));
  const auto match = Must(tree.Find(kSalt, Tokens(0, 138), kNoLimit));
  EXPECT_EQ(match.tokens, 128);
  EXPECT_FALSE(match.sequence.evicted());
  ExpectHolds(match.sequence, Tokens(0, 128));
}

TEST_F(PrefixTreeTest, EvictsTheLeastRecentlyUsedLeafFromItsEnd) {
  Insert(Concat(Tokens(0, 64), Tokens(1000, 192)));
  Insert(Concat(Tokens(0, 64), Tokens(2000, 192)));
  EXPECT_EQ(Found(Concat(Tokens(0, 64), Tokens(1000, 192))), 256);  // now the younger one
  const size_t column = 2 * BlockBytes();
  EXPECT_EQ(tree_.Evict(1), column);
  EXPECT_EQ(Found(Concat(Tokens(0, 64), Tokens(2000, 192))), 64 + 128);
  EXPECT_EQ(Found(Concat(Tokens(0, 64), Tokens(1000, 192))), 256);
  EXPECT_EQ(tree_.Evict(3 * column), 3 * column);
  EXPECT_EQ(Found(Concat(Tokens(0, 64), Tokens(2000, 192))), 64);
  EXPECT_EQ(Found(Concat(Tokens(0, 64), Tokens(1000, 192))), 192);
  EXPECT_EQ(tree_.Stats().tokens, 192);
  EXPECT_EQ(tree_.Evict(std::numeric_limits<size_t>::max()), 3 * column);
  EXPECT_EQ(tree_.Stats().nodes, 0);
  EXPECT_EQ(tree_.Stats().tokens, 0);
  EXPECT_EQ(tree_.Evict(1), 0u);
  EXPECT_EQ(tree_.evictions().count, 3);
  EXPECT_EQ(tree_.evictions().bytes, static_cast<int64_t>(7 * column));
}

// Users and priorities change the order of eviction, not that of use.
TEST_F(PrefixTreeTest, TheLatestPathsAreThoseUsedLast) {
  EXPECT_TRUE(tree_.LatestPaths(5).empty());
  for (int i = 0; i < 60; ++i) {
    const std::vector<Token> tokens = Tokens(1000 * i, 70);
    Insert(tokens);
    for (int user = 0; user < i % 7 * 10; ++user) tree_.AddUser(kSalt, tokens);
  }
  for (int i = 0; i < 60; i += 4) Found(Tokens(1000 * i, 70));
  const auto all = tree_.LatestPaths(1000);
  ASSERT_EQ(static_cast<int64_t>(all.size()), tree_.leaf_count());
  for (size_t i = 1; i < all.size(); ++i) {
    EXPECT_GT(all[i - 1].back()->last_used, all[i].back()->last_used);
  }
  EXPECT_TRUE(tree_.LatestPaths(0).empty());
  for (const size_t most : {1u, 3u, 20u, 59u}) {
    const auto some = tree_.LatestPaths(most);
    ASSERT_EQ(some.size(), most);
    for (size_t i = 0; i < most; ++i) EXPECT_EQ(some[i], all[i]) << most << " " << i;
  }
}

// What an engine wants is a block at a time, and what a turn ends in is held by those above as
// well.
TEST_F(PrefixTreeTest, TheOldestGoesWholeHoweverLittleIsWanted) {
  std::vector<std::vector<Token>> conversations;
  for (int i = 0; i < 4; ++i) {
    std::vector<Token> tokens = Tokens(1000 * i, 160);
    for (const size_t turn : {size_t{100}, size_t{110}, size_t{160}}) {
      Insert({tokens.begin(), tokens.begin() + static_cast<ptrdiff_t>(turn)});
    }
    conversations.push_back(std::move(tokens));
  }
  const auto known = [&](const std::vector<Token>& tokens) {
    const PrefixNode* node = tree_.LastWithin(kSalt, tokens);
    return node == nullptr ? 0 : node->end();
  };
  for (size_t oldest = 0; oldest < conversations.size(); ++oldest) {
    while (known(conversations[oldest]) > 0) {
      ASSERT_GT(tree_.Evict(1), 0u);
      for (size_t later = oldest + 1; later < conversations.size(); ++later) {
        ASSERT_EQ(known(conversations[later]), 160) << oldest << " " << later;
      }
    }
  }
  EXPECT_EQ(pool_.used_bytes(), 0u);
}

TEST_F(PrefixTreeTest, SystemPromptsGoLast) {
  const std::vector<Token> system = Tokens(0, 64);
  Insert(system, PrefixPriority::kSystem);
  for (int user = 1; user <= 5; ++user) Insert(Concat(system, Tokens(user * 1000, 64)));
  Insert(Tokens(90000, 64));  // used last of all
  const size_t column = 2 * BlockBytes();
  EXPECT_EQ(tree_.Evict(6 * column), 6 * column);
  EXPECT_EQ(Found(Tokens(90000, 64)), 0);
  EXPECT_EQ(Found(Concat(system, Tokens(1000, 64))), 64);
  EXPECT_EQ(tree_.Evict(1), column);
}

// A shared beginning of 64 tokens with some users, whose continuations are gone; then strangers
// come, each a use later than the last. How many of them are evicted before the beginning?
TEST_F(PrefixTreeTest, WhatManyAskForOutlivesStrangersInProportion) {
  struct Row {
    int64_t users;
    int64_t strangers_evicted;  // of 90
  };
  for (const Row& row : {Row{0, 0}, Row{1, 0}, Row{2, 15}, Row{3, 31}, Row{5, 63}, Row{100, 90}}) {
    tree_.Clear();
    const std::vector<Token> shared = Tokens(0, 64);
    Insert(shared);
    for (int64_t i = 0; i < row.users; ++i) tree_.AddUser(kSalt, shared);
    tree_.AddUser(kSalt, Tokens(0, 63));  // leaves the edge: not these tokens
    tree_.AddUser(kSalt + 1, shared);     // another tenant's
    for (int i = 0; i < 90; ++i) Insert(Tokens(1000 + 100 * i, 64));
    // Finding nothing of it is no use of it.
    const auto is_known = [&] { return Must(tree_.Find(kSalt, shared, 0)).diverges_at == 64; };
    ASSERT_TRUE(is_known());
    int64_t evicted = 0;
    while (tree_.Stats().nodes > 1) {
      tree_.Evict(1);
      if (!is_known()) break;
      ++evicted;
    }
    EXPECT_EQ(evicted, row.strangers_evicted) << row.users;
  }
}

TEST_F(PrefixTreeTest, ItsOwnBytesAreCountedAndBounded) {
  PrefixTree tree(&pool_, spec_, 20'000);
  EXPECT_EQ(tree.index_bytes(), 0u);
  size_t most = 0;
  for (int i = 0; i < 100; ++i) {
    // Edges are made, split, cut short and evicted.
    const std::vector<Token> tokens = Concat(Tokens(i % 3, 100), Tokens(1000 * i, 100));
    EXPECT_TRUE(tree.Insert(kSalt + static_cast<uint64_t>(i % 2), tokens, Compute(tokens)));
    if (i % 10 == 0) tree.Evict(1);
    EXPECT_LE(tree.index_bytes(), 20'000u);
    EXPECT_GE(tree.index_bytes(), static_cast<size_t>(tree.Stats().tokens) * sizeof(Token));
    most = std::max(most, tree.index_bytes());
  }
  EXPECT_GT(most, 15'000u);
  // The last one is still there.
  EXPECT_EQ(
      Must(tree.Find(kSalt + 1, Concat(Tokens(0, 100), Tokens(99'000, 100)), kNoLimit)).tokens,
      200);
  while (tree.Evict(1) > 0) {
  }
  EXPECT_EQ(tree.Stats().nodes, 0);
  EXPECT_EQ(tree.index_bytes(), 0u);
}

TEST_F(PrefixTreeTest, BlocksInUseAreLeftAloneAndFreeNothing) {
  const std::vector<Token> used = Tokens(0, 128);
  const std::vector<Token> idle = Tokens(1000, 128);
  Insert(used);
  auto live = Must(tree_.Find(kSalt, used, kNoLimit));
  Insert(idle);
  EXPECT_EQ(tree_.Stats().bytes, spec_->BytesAt(128));
  EXPECT_EQ(tree_.Evict(spec_->BytesAt(128)), spec_->BytesAt(128));
  EXPECT_EQ(Found(idle), 0);
  EXPECT_EQ(Found(used), 128);
  EXPECT_EQ(tree_.Evict(1), 0u);
  EXPECT_EQ(Found(used), 128);
  ExpectHolds(live.sequence, used);
}

// A block that a cut edge shares with what it was cut from is held by two nodes, and by nobody
// else.
TEST_F(PrefixTreeTest, BlocksThatOnlyNodesShareAreFreedToo) {
  Insert(Tokens(0, 40));
  Insert(Concat(Tokens(0, 30), {1}));
  Insert(Concat(Tokens(0, 35), {2}));
  EXPECT_EQ(tree_.Evict(std::numeric_limits<size_t>::max()), 3 * 2 * BlockBytes());
  EXPECT_EQ(pool_.used_bytes(), 0u);
  EXPECT_EQ(tree_.Stats().nodes, 0);
}

// The tree's own copy of a prefix lies above a leaf whose blocks a sequence uses.
TEST_F(PrefixTreeTest, ReachesWhatLiesAboveALeafInUse) {
  Insert(Tokens(0, 128));
  const KvSequence live = Compute(Tokens(0, 192));
  ASSERT_TRUE(tree_.Insert(kSalt, Tokens(0, 192), live));
  EXPECT_EQ(tree_.Stats().bytes, spec_->BytesAt(128));
  EXPECT_EQ(tree_.Evict(1), 2 * BlockBytes());
  EXPECT_EQ(Found(Tokens(0, 192)), 64);
  ExpectHolds(live, Tokens(0, 192));
}

TEST_F(PrefixTreeTest, ManyNodesInARow) {
  KvSequence sequence = Must(KvSequence::Create(&pool_, spec_));
  constexpr int64_t kTokens = 3000;
  const std::vector<Token> tokens = Tokens(0, kTokens);
  for (int64_t i = 1; i <= kTokens; ++i) {
    MustOk(Append(sequence, std::span(tokens).subspan(static_cast<size_t>(i - 1), 1)));
    ASSERT_TRUE(tree_.Insert(kSalt, tokens, sequence));
  }
  EXPECT_EQ(tree_.Stats().nodes, kTokens);
  EXPECT_EQ(pool_.used_bytes(), spec_->BytesAt(kTokens));
  ExpectHolds(Must(tree_.Find(kSalt, tokens, kNoLimit)).sequence, tokens);
}

TEST_F(PrefixTreeWindowTest, ReachesBackAsFarAsTheWindowsBlocksDo) {
  Insert(Tokens(0, 300));  // holds the rows from 192 on: states from 192 + 69 = 261 on are whole
  for (const auto& [parts, found] :
       {std::pair<int64_t, int64_t>{300, 300}, {261, 261}, {260, 0}, {100, 0}}) {
    const auto match = Must(tree_.Find(kSalt, Concat(Tokens(0, parts), Tokens(1000, 5)), kNoLimit));
    EXPECT_EQ(match.tokens, found);
    EXPECT_EQ(match.diverges_at, parts);
    ExpectHolds(match.sequence, Tokens(0, found));
  }
}

TEST_F(PrefixTreeWindowTest, StatesKeptDuringPrefillAreRestorePoints) {
  KvSequence sequence = Must(KvSequence::Create(&pool_, spec_));
  const std::vector<Token> tokens = Tokens(0, 1000);
  std::vector<KvSnapshot> kept;
  for (size_t chunk = 0; chunk < 5; ++chunk) {
    if (chunk > 0) kept.push_back(sequence.Snapshot());
    MustOk(Append(sequence, std::span(tokens).subspan(chunk * 200, 200)));
  }
  ASSERT_TRUE(tree_.Insert(kSalt, tokens, sequence));
  EXPECT_EQ(Found(Tokens(0, 700)), 0);
  for (const KvSnapshot& snapshot : kept) ASSERT_TRUE(tree_.Insert(kSalt, tokens, snapshot));
  for (const auto& [parts, found] :
       {std::pair<int64_t, int64_t>{700, 600}, {600, 600}, {199, 199}, {999, 999}}) {
    const auto match = Must(tree_.Find(kSalt, Concat(Tokens(0, parts), Tokens(5000, 5)), kNoLimit));
    EXPECT_EQ(match.tokens, found);
    EXPECT_EQ(match.diverges_at, parts);
    ExpectHolds(match.sequence, Tokens(0, found));
  }
}

// What Find says about the divergence is where the next request wants a state.
TEST_F(PrefixTreeWindowTest, AStateAtTheDivergenceServesTheThirdRequest) {
  Insert(Tokens(0, 1000));
  const std::vector<Token> second = Concat(Tokens(0, 500), Tokens(7000, 100));
  const auto match = Must(tree_.Find(kSalt, second, kNoLimit));
  EXPECT_EQ(match.tokens, 0);
  ASSERT_EQ(match.diverges_at, 500);
  Insert(Tokens(0, match.diverges_at));
  Insert(second);
  EXPECT_EQ(Found(Concat(Tokens(0, 500), Tokens(8000, 20))), 500);
  EXPECT_EQ(Found(Tokens(0, 1000)), 1000);
}

// Of a conversation that goes on the states of earlier turns go first, and its rows stay.
TEST(PrefixTreeRecurrentTest, EarlierStatesAreEvictedBeforeTheEndOfAConversation) {
  KvPool pool(Budget(kAmpleBytes));
  const auto spec = Spec({Recurrent(4096), Layer(RetentionSpec::All())});
  PrefixTree tree(&pool, spec);
  auto tokens = Tokens(0, 400);
  {
    auto sequence = Must(KvSequence::Create(&pool, spec));
    for (const Position end : {100, 200, 300, 400}) {
      MustOk(Append(sequence,
                    std::span(tokens).subspan(static_cast<size_t>(sequence.position()), 100)));
      ASSERT_TRUE(tree.Insert(0, std::span(tokens).first(static_cast<size_t>(end)), sequence));
    }
  }
  const auto found = [&](int64_t limit) { return tree.LookForTokens(0, tokens, limit); };
  EXPECT_EQ(found(400), 400);
  EXPECT_EQ(found(150), 100);
  EXPECT_EQ(tree.Evict(4096), 4096u);
  EXPECT_EQ(found(150), 0);  // the oldest
  EXPECT_EQ(found(250), 200);
  EXPECT_EQ(tree.Evict(2 * 4096), 2 * 4096u);
  EXPECT_EQ(found(399), 0);
  EXPECT_EQ(found(400), 400);
  {
    const auto match = Must(tree.Find(0, tokens, 400));
    ASSERT_EQ(match.tokens, 400);
    ExpectSame(match.sequence, Compute(&pool, spec, tokens));
  }
  EXPECT_GT(tree.Evict(1), 0u);
  EXPECT_EQ(found(400), 0);
  EXPECT_EQ(tree.leaf_count(), 0);
}

TEST(PrefixTreeRecurrentTest, StatesOfEarlierTurnsPushNobodyOut) {
  KvPool pool(Budget(kAmpleBytes));
  const auto spec = Spec({Recurrent(4096), Layer(RetentionSpec::All())});
  PrefixTree tree(&pool, spec);
  const auto insert = [&](std::span<const Token> tokens) {
    EXPECT_TRUE(tree.Insert(kSalt, tokens, Compute(&pool, spec, {tokens.begin(), tokens.end()})));
  };
  const std::vector<Token> other = Tokens(5000, 300);
  insert(other);
  const std::vector<Token> chat = Tokens(0, 1000);
  for (size_t end = 100; end <= 1000; end += 100) insert(std::span(chat).first(end));
  for (int turn = 0; turn < 9; ++turn) EXPECT_GT(tree.Evict(1), 0u);
  EXPECT_EQ(tree.LookForTokens(kSalt, other, kNoLimit), 300);
  EXPECT_EQ(tree.LookForTokens(kSalt, chat, kNoLimit), 1000);
  EXPECT_EQ(tree.LookForTokens(kSalt, chat, 999), 0);
  EXPECT_GT(tree.Evict(1), 0u);
  EXPECT_EQ(tree.LookForTokens(kSalt, other, kNoLimit), 0);  // used least recently
  EXPECT_EQ(tree.LookForTokens(kSalt, chat, kNoLimit), 1000);
}

TEST(PrefixTreeRecurrentTest, CheckpointsAreRestorePoints) {
  KvPool pool(Budget(kAmpleBytes));
  const auto spec = Spec({Recurrent(64), Layer(RetentionSpec::All())});
  PrefixTree tree(&pool, spec);
  const std::vector<Token> tokens = Tokens(0, 300);
  KvSequence sequence = Must(KvSequence::Create(&pool, spec));
  for (size_t chunk = 0; chunk < 3; ++chunk) {
    MustOk(Append(sequence, std::span(tokens).subspan(chunk * 100, 100)));
    if (chunk < 2) MustOk(sequence.Checkpoint());
  }
  MustOk(sequence.Reserve(1));  // states may be half written: only the checkpoints count
  EXPECT_FALSE(tree.Insert(kSalt, tokens, sequence));
  EXPECT_EQ(Must(tree.Find(kSalt, tokens, kNoLimit)).tokens, 200);
  sequence.Unreserve();
  EXPECT_TRUE(tree.Insert(kSalt, tokens, sequence));
  for (const auto& [limit, found] :
       {std::pair<int64_t, int64_t>{300, 300}, {299, 200}, {150, 100}, {99, 0}}) {
    const auto match = Must(tree.Find(kSalt, tokens, limit));
    ASSERT_EQ(match.tokens, found);
    ExpectSame(match.sequence, Compute(&pool, spec, Tokens(0, found)));
  }
}

// A list of everything inserted, and the rules of retentions, say what must be found.
class NaivePrefixes {
 public:
  NaivePrefixes(KvPool* pool, std::shared_ptr<const KvCacheSpec> spec)
      : plan_(Must(KvPlan::Make(pool, std::move(spec)))) {}

  struct Entry {
    uint64_t salt;
    std::vector<Token> tokens;
  };
  struct Answer {
    int64_t least = 0;  // what the documented rule promises
    int64_t most = 0;   // what any block that is held allows
    int64_t diverges_at = 0;
  };

  void Insert(uint64_t salt, const std::vector<Token>& tokens) {
    entries_.push_back({salt, tokens});
  }
  const std::vector<Entry>& entries() const { return entries_; }

  Answer Find(uint64_t salt, const std::vector<Token>& tokens, int64_t limit) const {
    Answer answer;
    for (const Entry& entry : entries_) {
      if (entry.salt != salt) continue;
      const auto common =
          std::mismatch(entry.tokens.begin(), entry.tokens.end(), tokens.begin(), tokens.end())
              .first -
          entry.tokens.begin();
      answer.diverges_at = std::max<int64_t>(answer.diverges_at, common);
      const int64_t at = std::min<int64_t>(common, limit);
      const auto end = static_cast<int64_t>(entry.tokens.size());
      if (ReachesBack(end, at)) answer.least = std::max(answer.least, at);
      if (IsHeld(end, at)) answer.most = std::max(answer.most, at);
    }
    return answer;
  }

 private:
  template <typename Rule>
  bool ForEveryStore(int64_t end, int64_t at, Rule rule) const {
    if (at == end) return true;
    if (!plan_->states().empty()) return false;
    return std::all_of(plan_->stores().begin(), plan_->stores().end(), [&](const KvStore& store) {
      return rule(store.retention().FirstNeeded(end) / kBlockTokens,
                  store.retention().FirstNeeded(at) / kBlockTokens, store.head_blocks());
    });
  }
  // The state at `end` holds the blocks from first_held on.
  bool ReachesBack(int64_t end, int64_t at) const {
    return ForEveryStore(end, at, [](int64_t first_held, int64_t needed, int64_t head_blocks) {
      return first_held <= head_blocks || needed >= first_held;
    });
  }
  bool IsHeld(int64_t end, int64_t at) const {
    return ForEveryStore(end, at, [&](int64_t first_held, int64_t needed, int64_t head_blocks) {
      for (int64_t block = needed; block < BlocksUpTo(at); ++block) {
        if (block < first_held && block >= head_blocks) return false;
      }
      return true;
    });
  }

  std::shared_ptr<const KvPlan> plan_;
  std::vector<Entry> entries_;
};

enum class Eviction { kNone, kSome };

class Machine {
 public:
  Machine(const std::vector<KvLayerSpec>& layers, uint32_t seed, Eviction eviction)
      : spec_(Spec(layers)),
        tree_(&pool_, spec_),
        naive_(&pool_, spec_),
        random_(seed),
        eviction_(eviction) {}

  void Run() {
    for (int i = 0; i < 60; ++i) {
      Request();
      if (Below(6) == 0) Publish();
      if (Below(5) == 0) Evict();
      if (testing::Test::HasFailure()) return;
    }
    live_.clear();
    EXPECT_EQ(tree_.Stats().bytes, pool_.used_bytes());
    tree_.Clear();
    EXPECT_EQ(pool_.used_bytes(), 0u);
    EXPECT_EQ(tree_.Stats().tokens, 0);
  }

 private:
  int64_t Below(int64_t end) { return std::uniform_int_distribution<int64_t>(0, end - 1)(random_); }

  std::vector<Token> RandomTokens() {
    std::vector<Token> tokens;
    if (!naive_.entries().empty() && Below(5) > 0) {
      const auto& old =
          naive_
              .entries()[static_cast<size_t>(Below(static_cast<int64_t>(naive_.entries().size())))];
      const auto size = static_cast<int64_t>(old.tokens.size());
      tokens.assign(old.tokens.begin(), old.tokens.begin() + Below(size + 1));
    }
    for (int64_t more = Below(3) == 0 ? Below(3) : Below(200); more > 0; --more) {
      tokens.push_back(static_cast<Token>(Below(2)));
    }
    return tokens;
  }

  // As an engine serves one: find, compute the rest in chunks, publish on the way and at the end.
  void Request() {
    const auto salt = static_cast<uint64_t>(Below(2));
    const std::vector<Token> tokens = RandomTokens();
    const auto size = static_cast<int64_t>(tokens.size());
    const int64_t limit = Below(3) == 0 ? Below(size + 2) : size - Below(2);
    auto match = Must(tree_.Find(salt, tokens, limit));
    const auto expected = naive_.Find(salt, tokens, limit);
    if (eviction_ == Eviction::kNone) {
      ASSERT_GE(match.tokens, expected.least);
      ASSERT_EQ(match.diverges_at, expected.diverges_at);
    }
    ASSERT_LE(match.tokens, expected.most);
    ASSERT_LE(match.tokens, match.diverges_at);
    ASSERT_LE(match.diverges_at, expected.diverges_at);
    KvSequence sequence = std::move(match.sequence);
    std::vector<Token> done(tokens.begin(), tokens.begin() + match.tokens);
    ExpectSame(sequence, Compute(&pool_, spec_, done));
    while (static_cast<int64_t>(done.size()) < size) {
      const int64_t chunk = std::min(size - static_cast<int64_t>(done.size()), Below(150) + 1);
      const auto first = tokens.begin() + static_cast<int64_t>(done.size());
      const std::vector<Token> next(first, first + chunk);
      MustOk(Append(sequence, next));
      done.insert(done.end(), next.begin(), next.end());
      if (Below(3) == 0) Insert(salt, done, sequence);
    }
    ExpectSame(sequence, Compute(&pool_, spec_, tokens));
    if (Below(4) > 0) Insert(salt, tokens, sequence);
    live_.push_back({salt, tokens, std::move(sequence)});
    while (live_.size() > 3) live_.erase(live_.begin());
  }

  // Some sequence that is still there, once more.
  void Publish() {
    if (live_.empty()) return;
    const Live& live = live_[static_cast<size_t>(Below(static_cast<int64_t>(live_.size())))];
    Insert(live.salt, live.tokens, live.sequence);
  }

  void Insert(uint64_t salt, const std::vector<Token>& tokens, const KvSequence& sequence) {
    const auto priority = Below(4) == 0 ? PrefixPriority::kSystem : PrefixPriority::kNormal;
    ASSERT_TRUE(tree_.Insert(salt, tokens, sequence, priority));
    if (!tokens.empty()) naive_.Insert(salt, tokens);
  }

  void Evict() {
    if (eviction_ == Eviction::kNone) return;
    if (Below(2) == 0) live_.clear();
    const size_t used = pool_.used_bytes();
    const size_t exclusive = tree_.nbytes_exclusive();
    const auto wanted = static_cast<size_t>(Below(static_cast<int64_t>(exclusive) + 1));
    const size_t freed = tree_.Evict(wanted);
    ASSERT_GE(freed, wanted);
    ASSERT_EQ(pool_.used_bytes(), used - freed);
    ASSERT_EQ(tree_.nbytes_exclusive(), exclusive - freed);
  }

  struct Live {
    uint64_t salt;
    std::vector<Token> tokens;
    KvSequence sequence;
  };

  KvPool pool_{Budget(kAmpleBytes)};
  std::shared_ptr<const KvCacheSpec> spec_;
  PrefixTree tree_;
  NaivePrefixes naive_;
  std::mt19937 random_;
  Eviction eviction_;
  std::vector<Live> live_;
};

struct RandomCase {
  const char* name;
  std::vector<KvLayerSpec> layers;
};

void PrintTo(const RandomCase& c, std::ostream* out) { *out << c.name; }

std::vector<RandomCase> Cases() {
  const KvLayerSpec all = Layer(RetentionSpec::All());
  const KvLayerSpec window = Layer(RetentionSpec::Window(100), F16(), F16());
  const KvLayerSpec chunk = Layer(RetentionSpec::Chunk(90), Bf16(), F32());
  const KvLayerSpec sinks = Layer(RetentionSpec::Window(80, 4));
  KvLayerSpec packed =
      Layer(RetentionSpec::All(), *KvCodec::FromName("affine4:32"), *KvCodec::FromName("turbo3"));
  packed.layout.key_dim = 32;
  packed.layout.value_dim = 64;
  packed.layout.dense_codec = F16();
  KvLayerSpec recent = packed;
  recent.layout.dense_recent = 64;
  recent.layout.dense_start = 64;
  KvLayerSpec packed_window = packed;
  packed_window.retention = RetentionSpec::Window(70);
  KvLayerSpec shared = window;
  shared.shares_layer = 0;
  return {{"all", {all, all}},
          {"window", {window}},
          {"window_of_one", {Layer(RetentionSpec::Window(1))}},
          {"window_of_a_block", {Layer(RetentionSpec::Window(64)), all}},
          {"chunk", {chunk}},
          {"chunk_of_a_block", {Layer(RetentionSpec::Chunk(64))}},
          {"kept_first_rows", {sinks, Layer(RetentionSpec::Window(200, 100))}},
          {"mixed", {window, all, shared, chunk}},
          {"packed", {packed}},
          {"packed_window", {packed, packed_window}},
          {"dense_recent", {recent}},
          {"dense_recent_and_window", {recent, window}},
          {"recurrent", {Recurrent(64), all}},
          {"everything", {recent, Recurrent(64), window, chunk, sinks}}};
}

class PrefixTreeRandomTest : public testing::TestWithParam<RandomCase> {};

TEST_P(PrefixTreeRandomTest, FindsWhatTheNaiveListFinds) {
  uint32_t first = 0;
  uint32_t end = 12;
  if (const char* only = std::getenv("KVASIR_KV_SEED")) {
    first = static_cast<uint32_t>(std::strtoul(only, nullptr, 10));
    end = first + 1;
  }
  for (uint32_t seed = first; seed < end; ++seed) {
    SCOPED_TRACE("KVASIR_KV_SEED=" + std::to_string(seed));
    Machine(GetParam().layers, seed, seed % 2 == 0 ? Eviction::kNone : Eviction::kSome).Run();
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Specs, PrefixTreeRandomTest, testing::ValuesIn(Cases()),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace kvasir
