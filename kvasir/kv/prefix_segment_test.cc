#include "kvasir/kv/prefix_segment.h"

#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/kv_test_util.h"

namespace kvasir {
namespace {

using namespace kv_testing;

constexpr int64_t kPiece = 2 * kBlockTokens;

// A layer of each kind; the window is longer than a piece.
std::shared_ptr<const KvCacheSpec> AllKinds() {
  KvLayerSpec recent = Layer(RetentionSpec::All());
  recent.layout.dense_recent = 64;
  recent.layout.dense_codec = F32();
  recent.layout.key_codec = recent.layout.value_codec = F16();
  return Spec({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(200)),
               Layer(RetentionSpec::Window(32, 4)), Layer(RetentionSpec::Chunk(96)), recent});
}

// A segment as a file would have it.
struct Piece {
  KvSnapshot snapshot;
  NumberedBlocks numbered;
};

Piece PieceOf(const KvSequence& sequence, Position begin) {
  auto segment = SegmentOf(sequence.Snapshot(), begin, begin + kPiece);
  EXPECT_TRUE(segment.has_value());
  const NamedSnapshot named = {"", *segment, {}};
  return {*std::move(segment), Must(NumberBlocks(std::span(&named, 1)))};
}

class PrefixSegmentTest : public testing::Test {
 protected:
  // Grows to `end` in runs that stop where pieces end, and takes them.
  std::vector<Piece> Pieces(KvSequence& sequence, int64_t count) {
    std::vector<Piece> pieces;
    for (int64_t i = 0; i < count; ++i) {
      MustOk(Append(sequence, Tokens(static_cast<Token>(i * kPiece), kPiece)));
      pieces.push_back(PieceOf(sequence, i * kPiece));
    }
    return pieces;
  }
  static std::vector<KvBlockMap> MapsOf(const std::vector<Piece>& pieces, size_t from = 0) {
    std::vector<KvBlockMap> maps;
    for (size_t i = from; i < pieces.size(); ++i) maps.push_back(pieces[i].numbered.map);
    return maps;
  }
  // The joined segments in blocks of their own.
  KvSnapshot Load(const JoinedSegments& joined, const std::vector<Piece>& pieces, size_t from) {
    std::vector<BlockRef> blocks = Must(TakeBlocks(&pool_, joined.map));
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto& source = joined.sources[i];
      std::memcpy(blocks[i].data(),
                  pieces[from + source.segment].numbered.blocks[source.block]->data,
                  joined.map.block_bytes[i]);
    }
    return Must(MakeSnapshots(&pool_, joined.map, blocks))[0].snapshot;
  }

  KvPool pool_{Budget(kAmpleBytes)};
  const std::shared_ptr<const KvCacheSpec> spec_ = AllKinds();
  KvSequence sequence_ = Must(KvSequence::Create(&pool_, spec_));
};

TEST_F(PrefixSegmentTest, JoinedTheyAreTheCacheAtTheirEnd) {
  const std::vector<Piece> pieces = Pieces(sequence_, 4);
  const auto joined = Must(JoinSegments(*spec_, 0, MapsOf(pieces)));
  KvSequence loaded = Must(KvSequence::Restore(&pool_, Load(joined, pieces, 0)));
  ExpectHolds(loaded, Tokens(0, 4 * kPiece));
  MustOk(Append(loaded, Tokens(4 * kPiece, 100)));
  ExpectHolds(loaded, Tokens(0, 4 * kPiece + 100));
}

TEST_F(PrefixSegmentTest, RecurrentLayersComeAlong) {
  const auto spec = Spec({Recurrent(16), Layer(RetentionSpec::All())});
  KvSequence sequence = Must(KvSequence::Create(&pool_, spec));
  const std::vector<Piece> pieces = Pieces(sequence, 3);
  const auto joined = Must(JoinSegments(*spec, 0, MapsOf(pieces)));
  KvSequence loaded = Must(KvSequence::Restore(&pool_, Load(joined, pieces, 0)));
  EXPECT_EQ(LoadState(loaded.State(0)), LoadState(sequence.State(0)));
  for (KvSequence* each : {&loaded, &sequence}) MustOk(Append(*each, Tokens(3 * kPiece, 100)));
  EXPECT_EQ(LoadState(loaded.State(0)), LoadState(sequence.State(0)));
  // Between the ends of pieces there is no state.
  EXPECT_FALSE(SegmentOf(sequence.Snapshot(), 0, kPiece));
}

TEST_F(PrefixSegmentTest, OfWhatOnlyTheEndNeedsTheLastOneCounts) {
  const std::vector<Piece> pieces = Pieces(sequence_, 3);
  const auto joined = Must(JoinSegments(*spec_, 0, MapsOf(pieces)));
  EXPECT_EQ(joined.map.sequences[0].end, 3 * kPiece);
  uint64_t bytes = 0;
  for (const uint64_t block : joined.map.block_bytes) bytes += block;
  EXPECT_EQ(bytes, SegmentOf(sequence_.Snapshot(), 0, 3 * kPiece)->nbytes());
}

TEST_F(PrefixSegmentTest, TheyContinueWhatIsThere) {
  const std::vector<Piece> pieces = Pieces(sequence_, 4);
  const auto joined = Must(JoinSegments(*spec_, kPiece, MapsOf(pieces, 1)));
  const KvSnapshot rest = Load(joined, pieces, 1);
  EXPECT_EQ(rest.begin(), kPiece);
  const KvSnapshot whole = Must(KvSnapshot::Merge(pieces[0].snapshot, rest));
  ExpectHolds(Must(KvSequence::Restore(&pool_, whole)), Tokens(0, 4 * kPiece));
}

TEST_F(PrefixSegmentTest, AStateThatIsGoneIsNone) {
  (void)Pieces(sequence_, 2);
  MustOk(Append(sequence_, Tokens(2 * kPiece, 300)));
  const KvSnapshot snapshot = sequence_.Snapshot();
  EXPECT_FALSE(SegmentOf(snapshot, 0, kPiece));               // windows have moved on
  EXPECT_FALSE(SegmentOf(snapshot, 4 * kPiece, 5 * kPiece));  // it does not reach so far
  // Where every row stays any will do.
  KvSequence all = Must(KvSequence::Create(&pool_, Spec({Layer(RetentionSpec::All())})));
  MustOk(Append(all, Tokens(0, 1000)));
  EXPECT_TRUE(SegmentOf(all.Snapshot(), kPiece, 2 * kPiece));
  // What rows were evicted of is no cache of its tokens.
  KvSequence budget = Must(KvSequence::Create(
      &pool_, Spec({Layer(Must(RetentionSpec::FromName("budget:128,interval=64,score=knorm")))})));
  MustOk(Append(budget, Tokens(0, 128)));
  EXPECT_TRUE(SegmentOf(budget.Snapshot(), 0, kPiece));
  while (!budget.evicted()) {
    MustOk(Append(budget, Tokens(static_cast<Token>(budget.position()), budget.RunLimit())));
  }
  EXPECT_FALSE(SegmentOf(budget.Snapshot(), 0, kPiece));
}

TEST_F(PrefixSegmentTest, WhatDoesNotFitTogetherIsCorrupt) {
  const std::vector<Piece> pieces = Pieces(sequence_, 3);
  const auto message = [&](const std::function<void(std::vector<KvBlockMap>&)>& change,
                           Position begin = 0) -> std::string {
    std::vector<KvBlockMap> maps = MapsOf(pieces);
    change(maps);
    const auto joined = JoinSegments(*spec_, begin, maps);
    if (joined.ok()) return "";
    EXPECT_EQ(joined.error().code, ErrorCode::kCorrupt);
    return joined.error().message;
  };
  EXPECT_EQ(message([](auto&) {}), "");
  EXPECT_EQ(message([](auto&) {}, kPiece), "segment 0 holds the positions [0, 128) behind 128");
  EXPECT_EQ(message([](auto& maps) { maps.erase(maps.begin() + 1); }),
            "segment 1 holds the positions [256, 384) behind 128");
  EXPECT_EQ(message([](auto& maps) { maps[1].sequences.push_back(maps[1].sequences[0]); }),
            "segment 1 holds several sequences");
  EXPECT_EQ(message([](auto& maps) { maps[2].spec.layers[1].retention.size = 64; }),
            "segment 2 stores rows in another way");
  EXPECT_EQ(message([](auto& maps) { maps[1].sequences[0].lists[0].blocks.pop_back(); }),
            "segment 1 does not hold the rows of layer 0");
  EXPECT_EQ(message([](auto& maps) { maps[0].sequences[0].lists[0].first_block = 1; }),
            "segment 0 does not hold the rows of layer 0");
  // Blocks of another size under a number that is there.
  EXPECT_NE(message([](auto& maps) {
              maps[1].sequences[0].lists[0].blocks[0] = maps[1].sequences[0].lists[4].blocks[0];
            }),
            "");
}

}  // namespace
}  // namespace kvasir
