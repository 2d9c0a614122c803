#include "kvasir/kv/snapshot_file.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "kvasir/base/checksum.h"
#include "kvasir/base/file.h"
#include "kvasir/kv/block_map_svg.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_test_util.h"
#include "kvasir/kv/snapshot_file_blocks.h"
#include "kvasir/kv/snapshot_file_index.h"

namespace kvasir {
namespace {

using namespace kv_testing;

std::string Scratch(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          ("kvasir_snapshot_" + std::to_string(getpid()) + "_" + name))
      .string();
}

std::string Bytes(const KvSnapshotFile& file) {
  std::string out;
  MustOk(WriteSnapshots(file, [&out](std::span<const std::byte> bytes) {
    out.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    return Status();
  }));
  NumberedBlocks numbered = Must(NumberBlocks(file.sequences));
  numbered.map.metadata = file.metadata;
  EXPECT_EQ(Must(SnapshotFileBytes(numbered.map)), out.size());
  return out;
}

std::span<const std::byte> AsBytes(const std::string& text) {
  return std::as_bytes(std::span(text));
}

KvSnapshotFile One(const KvSequence& sequence) { return {{{"one", sequence.Snapshot(), {}}}, {}}; }

// What an engine leaves beside the rows of a layer's observed block, of the next `run` tokens.
void WriteQueries(KvSequence& sequence, int layer, int64_t run) {
  const KvLayerSpec& spec = sequence.spec().layers[static_cast<size_t>(layer)];
  if (!spec.owns_rows() || spec.layout.query_floats == 0) return;
  const size_t bytes = static_cast<size_t>(spec.layout.query_floats) * sizeof(float);
  const int64_t first = sequence.RowOf(layer, sequence.position());
  for (int64_t row = first; row < first + run; ++row) {
    if (row / kBlockTokens != spec.layout.observed_block) continue;
    const std::vector<float> query(bytes / sizeof(float), static_cast<float>(row % 7) / 8);
    std::byte* block = sequence.Blocks(layer).block_of(row);
    const KvBlockLayout layout = spec.layout.BlockAt(row / kBlockTokens);
    std::memcpy(block + layout.QueriesOffset() + static_cast<size_t>(row % kBlockTokens) * bytes,
                query.data(), bytes);
  }
}

// Appends tokens in runs as budgets allow; states are functions of their position.
void Grow(KvSequence& sequence, Token first, int64_t count) {
  for (int64_t done = 0; done < count;) {
    const int64_t run = std::min({count - done, sequence.RunLimit(), int64_t{50}});
    MustOk(sequence.Reserve(run));
    for (size_t i = 0; i < sequence.spec().layers.size(); ++i) {
      const KvLayerSpec& layer = sequence.spec().layers[i];
      if (!layer.is_recurrent()) continue;
      std::memset(sequence.MutableState(static_cast<int>(i)),
                  static_cast<int>((sequence.position() + run) % 251), layer.state_bytes);
    }
    for (size_t i = 0; i < sequence.spec().layers.size(); ++i) {
      WriteQueries(sequence, static_cast<int>(i), run);
    }
    WriteReserved(sequence, Tokens(first + static_cast<Token>(done), run));
    done += run;
  }
}

// Everything one can see of both, bit for bit.
void ExpectAlike(const KvSequence& a, const KvSequence& b) {
  ASSERT_EQ(a.spec(), b.spec());
  ASSERT_EQ(a.position(), b.position());
  EXPECT_EQ(a.MaxTrim(), b.MaxTrim());
  EXPECT_EQ(a.RunLimit(), b.RunLimit());
  EXPECT_EQ(a.evicted(), b.evicted());
  EXPECT_EQ(a.Checkpoints(), b.Checkpoints());
  EXPECT_EQ(a.nbytes(), b.nbytes());
  for (int layer = 0; layer < static_cast<int>(a.spec().layers.size()); ++layer) {
    const KvLayerSpec& spec = a.spec().layers[static_cast<size_t>(layer)];
    if (spec.is_recurrent()) {
      ASSERT_EQ(a.State(layer) == nullptr, b.State(layer) == nullptr);
      if (a.State(layer) == nullptr) continue;
      EXPECT_EQ(std::memcmp(a.State(layer), b.State(layer), spec.state_bytes), 0);
      continue;
    }
    EXPECT_EQ(a.RowPositions(layer), b.RowPositions(layer));
    EXPECT_EQ(a.Visible(layer, a.position()), b.Visible(layer, b.position()));
    const KvBlocksView blocks = a.Blocks(layer);
    ASSERT_EQ(blocks.first_block, b.Blocks(layer).first_block);
    ASSERT_EQ(blocks.head.size(), b.Blocks(layer).head.size());
    const int64_t end = a.StoredRows(layer);
    const auto expect_rows = [&](int64_t first, int64_t last) {
      const KvRows left = a.ReadRows(layer, first, last);
      const KvRows right = b.ReadRows(layer, first, last);
      EXPECT_EQ(left.keys, right.keys) << "layer " << layer;
      EXPECT_EQ(left.values, right.values) << "layer " << layer;
    };
    expect_rows(std::min(blocks.first_row(), end), end);
    expect_rows(0, static_cast<int64_t>(blocks.head.size()) * kBlockTokens);
    const KvBlocksView recent = a.RecentBlocks(layer);
    ASSERT_EQ(recent.blocks.size(), b.RecentBlocks(layer).blocks.size());
    if (recent.blocks.empty()) continue;
    const KvRows left = a.ReadRecentRows(layer, recent.first_row(), end);
    const KvRows right = b.ReadRecentRows(layer, recent.first_row(), end);
    EXPECT_EQ(left.keys, right.keys);
    EXPECT_EQ(left.values, right.values);
  }
}

// Codec pair, retention and what else a layout may have.
struct Combination {
  const char* keys;
  const char* values;
  const char* retention;
  int64_t dense_start;
  int64_t dense_recent;
};

std::vector<Combination> AllCombinations() {
  const std::pair<const char*, const char*> codecs[] = {{"f32", "f32"},
                                                        {"f16", "f16"},
                                                        {"bf16", "bf16"},
                                                        {"affine2:32", "affine2:32"},
                                                        {"affine3:32", "affine3:32"},
                                                        {"affine4:64", "affine4:64"},
                                                        {"affine5:32", "affine5:32"},
                                                        {"affine6:32", "affine6:32"},
                                                        {"affine8:64", "affine8:64"},
                                                        {"affine4:32+f32", "affine8:32+rot"},
                                                        {"turbo2", "turbo2"},
                                                        {"turbo3", "turbo4"},
                                                        {"f16", "affine4:32"},
                                                        {"turbo4", "bf16"}};
  const char* retentions[] = {"all",
                              "window:100",
                              "window:100,keep=4",
                              "chunk:96",
                              "budget:128,keep=4,recent=64,interval=64,score=knorm",
                              "budget:128,keep=2,recent=64,interval=128,score=random,per-layer",
                              "budget:128,recent=64"};
  std::vector<Combination> all;
  for (const auto& [keys, values] : codecs) {
    for (const char* retention : retentions) {
      for (const auto& [start, recent] : {std::pair<int64_t, int64_t>{0, 0}, {64, 0}, {0, 64}}) {
        all.push_back({keys, values, retention, start, recent});
      }
    }
  }
  return all;
}

std::shared_ptr<const KvCacheSpec> SpecOf(const Combination& combination) {
  KvLayerSpec tested;
  tested.layout = {.kv_heads = 2,
                   .key_dim = 64,
                   .value_dim = 64,
                   .key_codec = *KvCodec::FromName(combination.keys),
                   .value_codec = *KvCodec::FromName(combination.values),
                   .dense_start = combination.dense_start,
                   .dense_recent = combination.dense_recent,
                   .key_norms = true};
  tested.retention = Must(RetentionSpec::FromName(combination.retention));
  tested.attention_scale = 0.3f;
  KvLayerSpec sharing = tested;
  sharing.shares_layer = 0;
  KvLayerSpec recurrent;
  recurrent.state_bytes = 100;
  return Spec(
      {tested, Layer(RetentionSpec::All(), Bf16(), F16()), sharing, recurrent, tested, recurrent});
}

void ExpectRoundTrips(std::shared_ptr<const KvCacheSpec> spec) {
  KvPool pool(Budget(kAmpleBytes));
  KvPool other_pool(Budget(kAmpleBytes));
  KvSequence sequence = Must(KvSequence::Create(&pool, std::move(spec)));
  for (const int64_t more : {int64_t{70}, int64_t{150}, int64_t{183}}) {
    Grow(sequence, static_cast<Token>(sequence.position()) + 1, more - 20);
    MustOk(sequence.Checkpoint());
    Grow(sequence, static_cast<Token>(sequence.position()) + 1, 20);
    const std::string bytes = Bytes(One(sequence));
    KvSnapshotFile loaded = Must(ReadSnapshots(&other_pool, AsBytes(bytes)));
    ASSERT_EQ(loaded.sequences.size(), 1u);
    EXPECT_EQ(Bytes(loaded), bytes);
    KvSequence copy = Must(KvSequence::Restore(&other_pool, loaded.sequences[0].snapshot));
    loaded.sequences.clear();
    ExpectAlike(sequence, copy);
    // Both go on, over evictions and borders of windows and chunks.
    KvSequence fork = sequence.Fork();
    Grow(fork, 5000, 140);
    Grow(copy, 5000, 140);
    ExpectAlike(fork, copy);
    // What was written depends on rows only, not on where the blocks came from.
    EXPECT_TRUE(Bytes(One(fork)) == Bytes(One(copy)));
  }
}

class RoundTripTest : public testing::TestWithParam<Combination> {};

TEST_P(RoundTripTest, ComesBackToTheSameBitsAndGoesOnTheSame) {
  ExpectRoundTrips(SpecOf(GetParam()));
}

TEST(RoundTripOfLayoutsTest, ObservedQueries) {
  for (const char* score : {"tova", "expected-attention"}) {
    KvLayerSpec layer = Layer(RetentionSpec::All(), F16(), F16());
    layer.retention = Must(RetentionSpec::FromName(
        std::string("budget:128,keep=4,recent=64,interval=64,score=") + score));
    layer.layout.query_floats = 4 * layer.layout.key_dim;
    layer.layout.observed_block = 2;
    layer.inv_freq = {1.0f, 0.1f};
    ExpectRoundTrips(Spec({layer, layer}));
  }
}

TEST(RoundTripOfLayoutsTest, KeysDerivedFromValues) {
  for (const char* values : {"f16", "affine4:64", "turbo3"}) {
    KvLayerSpec layer;
    layer.layout = {.kv_heads = 2,
                    .key_dim = 64,
                    .value_dim = 64,
                    .key_codec = {KvCodec::Kind::kFromValue},
                    .value_codec = *KvCodec::FromName(values)};
    for (int i = 0; i < 32; ++i) layer.inv_freq.push_back(1.0f / static_cast<float>(i + 3));
    layer.key_norm.assign(64, 1.0f / 3);
    ExpectRoundTrips(Spec({layer}));
  }
}

std::string CombinationName(const testing::TestParamInfo<Combination>& info) {
  const Combination& c = info.param;
  std::string name = std::string(c.keys) + "_" + c.values + "_" + c.retention + "_start" +
                     std::to_string(c.dense_start) + "_recent" + std::to_string(c.dense_recent);
  for (char& letter : name) {
    if (!std::isalnum(static_cast<unsigned char>(letter))) letter = '_';
  }
  return name;
}

INSTANTIATE_TEST_SUITE_P(Every, RoundTripTest, testing::ValuesIn(AllCombinations()),
                         CombinationName);

// A small file whose every kind of part is there.
struct Small {
  KvPool pool{Budget(kAmpleBytes)};
  KvSnapshotFile file;

  Small() {
    KvLayerSpec window = Layer(RetentionSpec::Window(20, 2));
    KvLayerSpec recurrent;
    recurrent.state_bytes = 24;
    KvLayerSpec budget = Layer(RetentionSpec::All());
    budget.retention = *RetentionSpec::FromName("budget:64,recent=8,interval=64,score=streaming");
    KvSequence sequence = Must(KvSequence::Create(&pool, Spec({window, recurrent, budget})));
    Grow(sequence, 1, 150);
    MustOk(sequence.Checkpoint());
    KvSequence fork = sequence.Fork();
    Grow(fork, 7000, 20);
    Grow(sequence, 300, 3);
    file = {{{"first", sequence.Snapshot(), Tokens(1, 153)}, {"second", fork.Snapshot(), {}}},
            {{"model", "made up"}, {"ünïcode", "\"quoted\""}}};
  }
};

TEST(SnapshotFileTest, NamesTokensAndMetadataComeBack) {
  Small small;
  const std::string path = Scratch("names.kv");
  MustOk(SaveSnapshots(small.file, path));
  KvPool pool(Budget(kAmpleBytes));
  {
    const KvSnapshotFile loaded = Must(LoadSnapshots(&pool, path));
    ASSERT_EQ(loaded.sequences.size(), 2u);
    EXPECT_EQ(loaded.sequences[0].name, "first");
    EXPECT_EQ(loaded.sequences[0].tokens, Tokens(1, 153));
    EXPECT_TRUE(loaded.sequences[1].tokens.empty());
    EXPECT_EQ(loaded.metadata, small.file.metadata);
    // The shared blocks are one again.
    EXPECT_EQ(pool.used_bytes(), small.pool.used_bytes());
  }
  EXPECT_EQ(pool.used_bytes(), 0u);
  const auto one = LoadSnapshot(&pool, path);
  ASSERT_FALSE(one.ok());
  EXPECT_NE(one.error().message.find("2 sequences"), std::string::npos);

  MustOk(SaveSnapshot(small.file.sequences[0].snapshot, path, {{{"a", "b"}}, Tokens(5, 153)}));
  const auto loaded = LoadSnapshot(&pool, path);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(loaded->meta.values.at("a"), "b");
  EXPECT_EQ(loaded->meta.tokens, Tokens(5, 153));
  std::filesystem::remove(path);
}

TEST(SnapshotFileTest, AForkedBatchIsSharedAgain) {
  KvPool pool(Budget(kAmpleBytes));
  KvSequence trunk = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::All())})));
  Grow(trunk, 1, 200);
  KvBatch batch;
  for (SequenceId id = 1; id <= 3; ++id) {
    KvSequence fork = trunk.Fork();
    Grow(fork, static_cast<Token>(id) * 1000, static_cast<int64_t>(id) * 30);
    MustOk(batch.Add(id, std::move(fork)));
  }
  const std::vector<NamedSnapshot> snapshots = SnapshotsOf(batch);
  const std::string bytes = Bytes({snapshots, {}});
  // Three whole blocks of the trunk are stored once.
  const auto index = KvSnapshotIndex::Parse(AsBytes(bytes));
  ASSERT_TRUE(index.ok()) << index.error().message;
  const NumberedBlocks numbered = Must(NumberBlocks(snapshots));
  EXPECT_EQ(index->places.size(), numbered.blocks.size());
  EXPECT_EQ(numbered.blocks.size(), 3u + 1 + 2 + 2);

  KvPool other(Budget(kAmpleBytes));
  KvSnapshotFile loaded = Must(ReadSnapshots(&other, AsBytes(bytes)));
  std::vector<KvSequence> restored;
  for (const NamedSnapshot& named : loaded.sequences) {
    restored.push_back(Must(KvSequence::Restore(&other, named.snapshot)));
  }
  loaded.sequences.clear();
  EXPECT_EQ(other.used_bytes(), numbered.blocks.size() * index->places[0].bytes);
  // One goes on; the others do not see it, and all are what they were.
  Grow(restored[1], 9000, 10);
  for (SequenceId id = 1; id <= 3; ++id) {
    const KvSequence& original = *batch.Find(id);
    if (id != 2) ExpectAlike(original, restored[id - 1]);
  }
  // They join a batch of a spec of equal value.
  KvBatch joined;
  KvSequence fresh = Must(KvSequence::Create(&other, Spec({Layer(RetentionSpec::All())})));
  MustOk(joined.Add(9, std::move(fresh)));
  MustOk(joined.Add(10, std::move(restored[0])));
}

TEST(SnapshotFileTest, SlicesCanBeSavedAndMergedAgain) {
  KvPool pool(Budget(kAmpleBytes));
  KvSequence sequence = Must(KvSequence::Create(
      &pool, Spec({Layer(RetentionSpec::All()), Layer(RetentionSpec::Window(30))})));
  Grow(sequence, 1, 300);
  const auto [left, right] = Must(sequence.Snapshot().Split(130));
  KvPool other(Budget(kAmpleBytes));
  const std::string bytes = Bytes({{{"left", left, {}}, {"right", right, {}}}, {}});
  const KvSnapshotFile loaded = Must(ReadSnapshots(&other, AsBytes(bytes)));
  EXPECT_FALSE(loaded.sequences[1].snapshot.Restorable().ok());
  const KvSnapshot whole =
      Must(KvSnapshot::Merge(loaded.sequences[0].snapshot, loaded.sequences[1].snapshot));
  const KvSequence restored = Must(KvSequence::Restore(&other, whole));
  ExpectHolds(restored, Tokens(1, 300));
}

TEST(SnapshotFileTest, AnEmptySequenceIsAFileToo) {
  KvPool pool(Budget(kAmpleBytes));
  const KvSequence sequence = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::All())})));
  const std::string bytes = Bytes(One(sequence));
  const KvSnapshotFile loaded = Must(ReadSnapshots(&pool, AsBytes(bytes)));
  EXPECT_EQ(loaded.sequences[0].snapshot.end(), 0);
  EXPECT_TRUE(KvSequence::Restore(&pool, loaded.sequences[0].snapshot).ok());
}

TEST(SnapshotFileTest, OverTheBudgetNothingIsTaken) {
  Small small;
  const std::string bytes = Bytes(small.file);
  KvPool pool(Budget(1000));
  const auto loaded = ReadSnapshots(&pool, AsBytes(bytes));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

TEST(SnapshotFileTest, ErrorsOfTheSinkEndTheWriting) {
  Small small;
  int calls = 0;
  const Status status = WriteSnapshots(small.file, [&calls](std::span<const std::byte>) {
    return ++calls < 3 ? Status() : Status(ErrorCode::kIo, "the disk is full");
  });
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().message, "the disk is full");
  EXPECT_EQ(calls, 3);
}

TEST(SnapshotFileTest, RefusesWhatTheFormatCannotHold) {
  Small small;
  const std::string path = Scratch("refused.kv");
  small.file.metadata["broken"] = "\xff\xfe";
  EXPECT_FALSE(SaveSnapshots(small.file, path).ok());
  small.file.metadata.clear();
  small.file.sequences[0].tokens.pop_back();
  EXPECT_FALSE(SaveSnapshots(small.file, path).ok());
  small.file.sequences.clear();
  EXPECT_FALSE(SaveSnapshots(small.file, path).ok());
  EXPECT_FALSE(FileExists(path));
  EXPECT_EQ(LoadSnapshots(&small.pool, path).error().code, ErrorCode::kNotFound);
}

// Files of version 2 are read, and written, as they were when the version was made.
TEST(SnapshotFileTest, VersionTwoStaysAsItIs) {
  Small small;
  const std::string golden = KVASIR_SOURCE_DIR "/testdata/kv_snapshots/version_2.kv";
  const std::string written = Scratch("version_2.kv");
  MustOk(SaveSnapshots(small.file, written));
  const KvSnapshotFile loaded = Must(LoadSnapshots(&small.pool, golden));
  ASSERT_EQ(loaded.sequences.size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    const KvSequence a = Must(KvSequence::Restore(&small.pool, loaded.sequences[i].snapshot));
    const KvSequence b = Must(KvSequence::Restore(&small.pool, small.file.sequences[i].snapshot));
    ExpectAlike(a, b);
  }
  EXPECT_TRUE(Must(ReadFile(golden)) == Must(ReadFile(written)))
      << "a change of the format needs a new version; what is written now: " << written;
  if (!testing::Test::HasFailure()) std::filesystem::remove(written);
}

// As from memory, from a file that is read in pieces.
Status LoadFrom(KvPool* pool, const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  const auto loaded = LoadSnapshots(pool, path);
  return loaded.ok() ? Status() : loaded.error();
}

// Every byte of a file is under a checksum or known.
TEST(SnapshotFileTest, EveryChangedByteIsFound) {
  Small small;
  std::string bytes = Bytes(small.file);
  KvPool pool(Budget(kAmpleBytes));
  const std::string path = Scratch("changed.kv");
  ASSERT_TRUE(ReadSnapshots(&pool, AsBytes(bytes)).ok());
  ASSERT_TRUE(LoadFrom(&pool, path, bytes).ok());
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
    const auto loaded = ReadSnapshots(&pool, AsBytes(bytes));
    ASSERT_FALSE(loaded.ok()) << "byte " << i;
    if (i % 17 == 0) {
      const Status from_file = LoadFrom(&pool, path, bytes);
      ASSERT_FALSE(from_file.ok()) << "byte " << i;
      EXPECT_EQ(from_file.error().message, path + ": " + loaded.error().message);
    }
    ASSERT_EQ(pool.used_bytes(), 0u);
    bytes[i] = static_cast<char>(bytes[i] ^ (1 << (i % 8)));
  }
}

TEST(SnapshotFileTest, EveryTruncationIsFound) {
  Small small;
  const std::string bytes = Bytes(small.file);
  const std::string path = Scratch("cut.kv");
  KvPool pool(Budget(kAmpleBytes));
  for (size_t size = 0; size < bytes.size(); ++size) {
    ASSERT_FALSE(ReadSnapshots(&pool, AsBytes(bytes).first(size)).ok()) << size << " bytes";
    if (size % 17 == 0) {
      ASSERT_FALSE(LoadFrom(&pool, path, bytes.substr(0, size)).ok()) << size << " bytes";
    }
  }
  EXPECT_FALSE(ReadSnapshots(&pool, AsBytes(bytes + std::string(1, '\0'))).ok());
}

// A sparse file costs nothing, so what it claims must not either.
TEST(SnapshotFileTest, HugeSectionsAreRefusedBeforeTheyAreRead) {
  Small small;
  const std::string path = Scratch("sparse.kv");
  constexpr uint64_t kHuge = uint64_t{1} << 43;
  for (const size_t field : {40, 56}) {  // sequences_bytes, block_count
    std::string bytes = Bytes(small.file);
    const uint64_t claimed = field == 40 ? kHuge / 2 : kHuge / 48;
    std::memcpy(bytes.data() + 16, &kHuge, sizeof(kHuge));  // file_bytes
    std::memcpy(bytes.data() + field, &claimed, sizeof(claimed));
    const uint64_t checksum = Checksum64(AsBytes(bytes).first(72));
    std::memcpy(bytes.data() + 72, &checksum, sizeof(checksum));
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    std::error_code error;
    std::filesystem::resize_file(path, kHuge, error);
    if (error) GTEST_SKIP() << "no sparse files here: " << error.message();
    KvPool pool(Budget(kAmpleBytes));
    const auto loaded = LoadSnapshots(&pool, path);
    std::filesystem::remove(path);
    ASSERT_FALSE(loaded.ok());
    EXPECT_EQ(loaded.error().code, ErrorCode::kResourceExhausted) << loaded.error().message;
  }
}

// Cut by somebody between two reads: a map would end the program.
TEST(SnapshotFileTest, WhatIsCutWhileItIsReadIsAnError) {
  Small small;
  const std::string path = Scratch("cut_later.kv");
  MustOk(SaveSnapshots(small.file, path));
  const FileReader file = Must(FileReader::Open(path));
  const KvSnapshotIndex index = Must(KvSnapshotIndex::Read(file));
  const size_t last = index.places.size() - 1;
  std::vector<std::byte> block(index.places[last].bytes);
  MustOk(index.ReadBlock(file, last, block));
  std::filesystem::resize_file(path, index.places[last].offset + 1);
  const Status cut = index.ReadBlock(file, last, block);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::kIo);
  EXPECT_EQ(cut.error().message, path + ": was cut short while it was read");
}

TEST(SnapshotFileTest, ANewerVersionIsRefusedWithASentence) {
  Small small;
  std::string bytes = Bytes(small.file);
  bytes[8] = 3;
  const auto loaded = ReadSnapshots(&small.pool, AsBytes(bytes));
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(loaded.error().message.find("version is 3"), std::string::npos);
}

// A file with right checksums and a wrong map: only CheckBlockMap stands before the cache.
TEST(SnapshotFileTest, MapsThatCannotBeAreRefused) {
  Small small;
  const std::string good = Bytes(small.file);
  const KvSnapshotIndex index = Must(KvSnapshotIndex::Parse(AsBytes(good)));
  std::vector<uint64_t> checksums;
  for (const KvBlockPlace& place : index.places) checksums.push_back(place.checksum);
  using Change = std::function<void(KvBlockMap&)>;
  const std::vector<std::pair<Change, const char*>> changes = {
      {[](KvBlockMap& m) { m.sequences[0].begin = -1; }, "not one of positions"},
      {[](KvBlockMap& m) { m.sequences[0].end = int64_t{1} << 50; }, "not one of positions"},
      {[](KvBlockMap& m) { m.sequences[0].end += 64; }, "tokens"},
      {[](KvBlockMap& m) { m.sequences[1].end += 64; }, "ever stores"},
      {[](KvBlockMap& m) { m.sequences[0].floor = kMaxPosition + 1; }, "floor"},
      {[](KvBlockMap& m) { m.sequences[0].lists[0].blocks[0] = 1000; }, "names block 1000"},
      {[](KvBlockMap& m) { m.sequences[0].lists[0].first_block = -1; }, "do not end at block"},
      {[](KvBlockMap& m) { m.sequences[0].lists[0].blocks.push_back(0); }, "do not end at block"},
      {[](KvBlockMap& m) { m.sequences[0].lists[0].blocks.clear(); }, "belongs to no sequence"},
      {[](KvBlockMap& m) {
         m.sequences[0].lists[0].head = {0, 0, 0};
       },
       "head blocks"},
      {[](KvBlockMap& m) { m.sequences[0].lists[0].head_first = -5; }, "head blocks"},
      {[](KvBlockMap& m) { m.sequences[0].lists[1].positions[0] = 200; }, "out of order"},
      {[](KvBlockMap& m) { m.sequences[0].lists[1].positions.clear(); }, "states"},
      {[](KvBlockMap& m) { m.sequences[0].lists[1].blocks[0] = 0; }, "bytes, its layout"},
      {[](KvBlockMap& m) { m.sequences[0].budgets[0].positions[3] = 500; }, "positions kept"},
      {[](KvBlockMap& m) {
         m.sequences[0].budgets[0].positions[3] = m.sequences[0].budgets[0].positions[4];
       },
       "positions kept"},
      {[](KvBlockMap& m) {
         auto& positions = m.sequences[0].budgets[0].positions;
         std::swap(positions.front(), positions.back());
       },
       "must come last"},
      {[](KvBlockMap& m) {
         auto& positions = m.sequences[0].budgets[0].positions;
         std::swap(positions.back(), positions[positions.size() - 2]);
       },
       "must come last"},
      {[](KvBlockMap& m) { m.sequences[0].budgets[0].positions.clear(); }, "cannot be kept"},
      {[](KvBlockMap& m) { m.sequences[0].budgets[0].until = -1; }, "cannot be kept"},
      {[](KvBlockMap& m) {
         m.sequences[0].budgets[0] = {2, 0, {}};
       },
       "ever stores"},
      {[](KvBlockMap& m) { m.sequences.clear(); }, "holds no sequence"},
      {[](KvBlockMap& m) { m.spec.layers[0].retention.size = 0; }, "layer 0"},
      {[](KvBlockMap& m) { m.spec.layers[0].layout.key_dim = 5; }, "bytes, its layout"},
      {[](KvBlockMap& m) { m.spec.layers[0].layout.key_dim = -5; }, "key_dim"},
  };
  for (const auto& [change, named] : changes) {
    KvBlockMap map = index.map;
    change(map);
    const std::string front = Must(SnapshotFileFront(map, checksums));
    std::string bytes = front + good.substr(index.front_bytes);
    // A longer or shorter front moves the blocks; where they are is not what is tested here.
    const auto parsed = KvSnapshotIndex::Parse(AsBytes(bytes));
    if (front.size() != index.front_bytes) {
      const size_t first = (front.size() + 63) / 64 * 64;
      bytes = front + std::string(first - front.size(), '\0') + good.substr(index.places[0].offset);
    }
    const auto loaded = ReadSnapshots(&small.pool, AsBytes(bytes));
    ASSERT_FALSE(loaded.ok()) << named;
    EXPECT_EQ(loaded.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(loaded.error().message.find(named), std::string::npos)
        << named << ": " << loaded.error().message;
  }
  // Without blocks, too, where nothing else could be missed.
  const KvBlockMap empty = {.spec = index.map.spec};
  const auto loaded = ReadSnapshots(&small.pool, AsBytes(Must(SnapshotFileFront(empty, {}))));
  ASSERT_FALSE(loaded.ok());
  EXPECT_NE(loaded.error().message.find("holds no sequence"), std::string::npos);
}

TEST(BlockMapSvgTest, DrawsASquarePerBlockAndEscapesNames) {
  Small small;
  small.file.sequences[0].name = "<a & \"b\">";
  NumberedBlocks numbered = Must(NumberBlocks(small.file.sequences));
  const std::string svg = BlockMapSvg(numbered.map);
  EXPECT_EQ(svg.find("<a &"), std::string::npos);
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt;"), std::string::npos);
  size_t squares = 0;
  for (const KvBlockMap::Sequence& sequence : numbered.map.sequences) {
    for (const KvBlockMap::List& list : sequence.lists) {
      squares += list.head.size() + list.blocks.size();
    }
  }
  size_t rects = 0;
  for (size_t at = svg.find("<rect x="); at != std::string::npos;
       at = svg.find("<rect x=", at + 1)) {
    ++rects;
  }
  // The legend has one for each of two codecs (f32 and states) and three shades.
  EXPECT_EQ(rects, squares + 2 + 3);
}

TEST(BlockMapTest, CountsSharedBytesOnce) {
  KvPool pool(Budget(kAmpleBytes));
  KvSequence a = Must(KvSequence::Create(&pool, Spec({Layer(RetentionSpec::All())})));
  Grow(a, 1, 128);
  KvSequence b = a.Fork();
  Grow(b, 500, 10);
  const std::vector<NamedSnapshot> snapshots = {{"a", a.Snapshot(), {}}, {"b", b.Snapshot(), {}}};
  const NumberedBlocks numbered = Must(NumberBlocks(snapshots));
  const std::vector<int> references = numbered.map.References();
  EXPECT_EQ(references, (std::vector<int>{2, 2, 1}));
  const auto bytes = numbered.map.BytesOf(numbered.map.sequences[1], references);
  EXPECT_EQ(bytes.all, 3 * numbered.map.block_bytes[0]);
  EXPECT_EQ(bytes.exclusive, numbered.map.block_bytes[0]);
  EXPECT_EQ(LayersText({0, 1, 2, 5, 7, 8}), "layers 0-2, 5, 7-8");
}

}  // namespace
}  // namespace kvasir
