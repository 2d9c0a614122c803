#include "kvasir/kvio/mlx_prompt_cache.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/formats/safetensors.h"
#include "kvasir/formats/safetensors_writer.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/snapshot_file.h"

namespace kvasir {
namespace {

std::string Golden(const std::string& name) {
  return KVASIR_SOURCE_DIR "/testdata/mlx_prompt_caches/" + name + ".safetensors";
}

std::string Scratch(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          ("kvasir_mlx_" + std::to_string(getpid()) + "_" + name))
      .string();
}

KvPoolOptions Ample() {
  KvPoolOptions options;
  options.budget_bytes = size_t{64} << 20;
  return options;
}

// What tools/goldens/make_mlx_prompt_caches.py puts into the caches.
float Element(int layer, int value, Position position, int head, int dim) {
  return static_cast<float>((layer * 5 + value * 11 + position * 7 + head * 3 + dim * 13) % 127 -
                            64) /
         8;
}

// Rows [begin, end) of a layer as the golden's formula has them.
void ExpectRows(const KvSequence& sequence, int layer, Position begin, Position end) {
  const KvLayout& layout = sequence.spec().layers[static_cast<size_t>(layer)].layout;
  for (Position p = begin; p < end; ++p) {
    const std::vector<float> keys = sequence.ReadKeys(layer, p);
    const std::vector<float> values = sequence.ReadValues(layer, p);
    for (int head = 0; head < layout.kv_heads; ++head) {
      for (int d = 0; d < layout.key_dim; ++d) {
        ASSERT_EQ(keys[static_cast<size_t>(head * layout.key_dim + d)],
                  Element(layer, 0, p, head, d))
            << "layer " << layer << ", position " << p;
        ASSERT_EQ(values[static_cast<size_t>(head * layout.value_dim + d)],
                  Element(layer, 1, p, head, d));
      }
    }
  }
}

struct Imported {
  KvPool pool{Ample()};
  std::optional<MlxPromptCache> cache;
  std::optional<KvSequence> sequence;

  void Load(const std::string& path) {
    auto imported = ImportMlxPromptCache(&pool, path);
    ASSERT_TRUE(imported.ok()) << imported.error().message;
    cache.emplace(*std::move(imported));
    auto restored = KvSequence::Restore(&pool, cache->snapshot);
    ASSERT_TRUE(restored.ok()) << restored.error().message;
    sequence.emplace(*std::move(restored));
  }
};

class MlxGoldenTest : public testing::TestWithParam<const char*> {
 protected:
  std::string Name(const std::string& what) { return std::string(GetParam()) + "_" + what; }
};

INSTANTIATE_TEST_SUITE_P(Versions, MlxGoldenTest, testing::Values("meta", "scalars"));

TEST_P(MlxGoldenTest, MixedListsHaveTheirRowsAndPositions) {
  for (const char* dtype : {"f32", "bf16"}) {
    Imported in;
    in.Load(Golden(Name(std::string("mixed_") + dtype)));
    ASSERT_EQ(in.cache->metadata.at("model"), "made-up");
    ASSERT_EQ(in.sequence->position(), 70);
    const KvCacheSpec& spec = in.sequence->spec();
    ASSERT_EQ(spec.layers.size(), 4u);
    EXPECT_EQ(spec.layers[0].retention.name(), "all");
    EXPECT_EQ(spec.layers[1].retention.name(), "window:24");
    EXPECT_EQ(spec.layers[2].retention.name(), "window:24,keep=4");
    EXPECT_EQ(spec.layers[0].layout.key_codec.name(), dtype);
    ExpectRows(*in.sequence, 0, 0, 70);
    // A query at 70 sees itself and 23 before it.
    ExpectRows(*in.sequence, 1, 47, 70);
    ExpectRows(*in.sequence, 2, 0, 4);
    ExpectRows(*in.sequence, 2, 51, 70);
    ExpectRows(*in.sequence, 3, 47, 70);
    const VisibleRows visible = in.sequence->Visible(2, 70);
    EXPECT_EQ(visible, (VisibleRows{4, 51, 71}));
  }
}

TEST_P(MlxGoldenTest, WindowsThatAreNotFullYet) {
  Imported in;
  in.Load(Golden(Name("young_f16")));
  ASSERT_EQ(in.sequence->position(), 10);
  ExpectRows(*in.sequence, 0, 0, 10);
  ExpectRows(*in.sequence, 1, 0, 10);
  EXPECT_EQ(in.sequence->MaxTrim(), 10);
}

// code * scale + bias, read from MLX's row of bits by the rule alone.
std::vector<float> Dequantized(const SafetensorsFile& file, const std::string& plane, int64_t row,
                               int bits) {
  const TensorView& words = *file.Find(plane + ".0");
  const TensorView& scales = *file.Find(plane + ".1");
  const int64_t groups = scales.shape[3];
  std::vector<float> scale(static_cast<size_t>(groups));
  std::vector<float> bias(static_cast<size_t>(groups));
  ReadFloats(scales, row * groups, groups, scale.data());
  ReadFloats(*file.Find(plane + ".2"), row * groups, groups, bias.data());
  const std::byte* bytes = words.data + row * words.shape[3] * 4;
  std::vector<float> out;
  for (int i = 0; i < 64; ++i) {
    int code = 0;
    for (int bit = i * bits; bit < (i + 1) * bits; ++bit) {
      code |= ((std::to_integer<int>(bytes[bit / 8]) >> (bit % 8)) & 1) << (bit - i * bits);
    }
    const auto group = static_cast<size_t>(i * groups / 64);
    out.push_back(static_cast<float>(code) * scale[group] + bias[group]);
  }
  return out;
}

TEST_P(MlxGoldenTest, QuantizedRowsAreThoseOfMlx) {
  Imported in;
  in.Load(Golden(Name("quantized")));
  const auto file = SafetensorsFile::Open(Golden(Name("quantized")));
  ASSERT_TRUE(file.ok());
  ASSERT_EQ(in.sequence->position(), 22);
  const KvCacheSpec& spec = in.sequence->spec();
  EXPECT_EQ(spec.layers[0].layout.key_codec.name(), "affine4:32");
  EXPECT_EQ(spec.layers[1].layout.key_codec.name(), "affine8:64+f32");
  EXPECT_EQ(spec.layers[2].layout.key_codec.name(), "affine3:32+f32");
  const int bits[] = {4, 8, 3};
  for (int layer = 0; layer < 3; ++layer) {
    const std::string name = std::to_string(layer);
    // MLX makes the end of a group with the larger magnitude exact, which costs the other end up
    // to one step; the rounding of scales to bf16 costs 2^-8 of the span of 16 at most.
    const float tolerance = 16.0f / static_cast<float>((1 << bits[layer]) - 1) + 16.0f / 256;
    for (Position p = 0; p < 22; ++p) {
      const std::vector<float> keys = in.sequence->ReadKeys(layer, p);
      EXPECT_EQ(keys, Dequantized(*file, name + ".0", p, bits[layer]));
      EXPECT_EQ(in.sequence->ReadValues(layer, p), Dequantized(*file, name + ".1", p, bits[layer]));
      for (int d = 0; d < 64; ++d) {
        EXPECT_NEAR(keys[static_cast<size_t>(d)], Element(layer, 0, p, 0, d), tolerance);
      }
    }
  }
}

// Rows that left the file cannot be had back, though the block that held them is there.
TEST_P(MlxGoldenTest, WindowsTrimOnlyWithinTheRowsOfTheFile) {
  Imported in;
  in.Load(Golden(Name("mixed_f32")));
  // Caches 1 and 2 hold the one row that the next token would push out, so one token can go.
  EXPECT_EQ(in.sequence->MaxTrim(), 1);
  EXPECT_FALSE(in.sequence->Trim(2).ok());
  const auto one = in.sequence->Trim(1);
  ASSERT_TRUE(one.ok());
  ExpectRows(*in.sequence, 1, 46, 69);
  // An empty cache needs no rows.
  EXPECT_TRUE(in.sequence->Trim(69).ok());
  EXPECT_EQ(in.sequence->position(), 0);
}

TEST_P(MlxGoldenTest, ImportedSequencesJoinABatchOfTheirSpec) {
  Imported in;
  in.Load(Golden(Name("mixed_bf16")));
  KvBatch batch;
  auto fresh =
      KvSequence::Create(&in.pool, std::make_shared<const KvCacheSpec>(in.sequence->spec()));
  ASSERT_TRUE(fresh.ok());
  ASSERT_TRUE(batch.Add(1, *std::move(fresh)).ok());
  EXPECT_TRUE(batch.Add(2, *std::move(in.sequence)).ok());
  in.sequence.reset();
}

// The rows of both files, tensor by tensor.
void ExpectSameTensors(const std::string& a, const std::string& b) {
  const auto first = SafetensorsFile::Open(a);
  const auto second = SafetensorsFile::Open(b);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_EQ(first->metadata(), second->metadata());
  ASSERT_EQ(first->tensors().size(), second->tensors().size());
  for (const auto& [name, tensor] : first->tensors()) {
    const TensorView* other = second->Find(name);
    ASSERT_NE(other, nullptr) << name;
    ASSERT_EQ(other->dtype, tensor.dtype) << name;
    ASSERT_EQ(other->shape, tensor.shape) << name;
    EXPECT_EQ(std::memcmp(other->data, tensor.data,
                          static_cast<size_t>(tensor.elements()) * DTypeBytes(tensor.dtype)),
              0)
        << name;
  }
}

TEST_P(MlxGoldenTest, ExportAndImportAgainIsTheSame) {
  MlxExportOptions options;
  options.version =
      std::string(GetParam()) == "meta" ? MlxCacheVersion::kMetaState : MlxCacheVersion::kScalars;
  for (const char* name : {"mixed_f32", "mixed_bf16", "young_f16", "quantized"}) {
    Imported in;
    in.Load(Golden(Name(name)));
    const std::string once = Scratch("once.safetensors");
    const std::string twice = Scratch("twice.safetensors");
    const Status status =
        ExportMlxPromptCache(in.sequence->Snapshot(), once, in.cache->metadata, options);
    ASSERT_TRUE(status.ok()) << status.error().message;
    Imported again;
    again.Load(once);
    EXPECT_EQ(again.sequence->spec(), in.sequence->spec());
    ASSERT_TRUE(
        ExportMlxPromptCache(again.sequence->Snapshot(), twice, again.cache->metadata, options)
            .ok());
    ExpectSameTensors(once, twice);
    if (std::string(name) == "mixed_f32") {
      ExpectRows(*again.sequence, 0, 0, 70);
      ExpectRows(*again.sequence, 2, 0, 4);
      ExpectRows(*again.sequence, 2, 51, 70);
    }
    std::filesystem::remove(once);
    std::filesystem::remove(twice);
  }
}

// The first half of what was imported has no whole state but the empty one; a file keeps that.
TEST_P(MlxGoldenTest, HalvesOutliveAFile) {
  Imported in;
  in.Load(Golden(Name("mixed_f32")));
  const auto halves = in.sequence->Snapshot().Split(10);
  ASSERT_TRUE(halves.ok()) << halves.error().message;
  const std::string file = Scratch("left.kv");
  ASSERT_TRUE(SaveSnapshot(halves->first, file).ok());
  const auto loaded = LoadSnapshot(&in.pool, file);
  std::filesystem::remove(file);
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  const auto whole = KvSnapshot::Merge(loaded->snapshot, halves->second);
  ASSERT_TRUE(whole.ok()) << whole.error().message;
  EXPECT_EQ(whole->end(), in.sequence->position());
}

// Arrays cut to their rows are what mlx-lm 0.31 writes: ours is the same file, number by number.
TEST(MlxExportTest, QuantizedAndYoungCachesAreWhatMlxWrote) {
  for (const char* name : {"meta_quantized", "meta_young_f16"}) {
    Imported in;
    in.Load(Golden(name));
    const std::string path = Scratch("same.safetensors");
    MlxExportOptions options;
    options.version = MlxCacheVersion::kMetaState;
    ASSERT_TRUE(
        ExportMlxPromptCache(in.sequence->Snapshot(), path, in.cache->metadata, options).ok());
    if (std::string(name) == "meta_young_f16") {
      ExpectSameTensors(Golden(name), path);
    } else {
      // bf16 scales came in as f32; the other caches are the same.
      const auto ours = SafetensorsFile::Open(path);
      const auto theirs = SafetensorsFile::Open(Golden(name));
      ASSERT_TRUE(ours.ok() && theirs.ok());
      for (const auto& [tensor_name, tensor] : theirs->tensors()) {
        if (tensor.dtype == DType::kBf16) continue;
        const TensorView* other = ours->Find(tensor_name);
        ASSERT_NE(other, nullptr);
        EXPECT_EQ(std::memcmp(other->data, tensor.data,
                              static_cast<size_t>(tensor.elements()) * DTypeBytes(tensor.dtype)),
                  0)
            << tensor_name;
      }
    }
    std::filesystem::remove(path);
  }
}

// A sequence of 100 rows of this spec; what the rows hold does not matter.
Result<KvSequence> Filled(KvPool* pool, const KvLayerSpec& layer) {
  KVASIR_TRY(KvSequence sequence, KvSequence::Create(pool, std::make_shared<const KvCacheSpec>(
                                                               KvCacheSpec::Uniform(2, layer))));
  KVASIR_TRY_OK(sequence.Reserve(100));
  for (int i = 0; i < 2; ++i) {
    if (!layer.owns_rows()) continue;
    const KvLayout& layout = layer.layout;
    KvRows rows;
    for (int n = 0; n < 100 * layout.kv_heads * layout.key_dim; ++n) {
      rows.keys.push_back(static_cast<float>(n % 97) / 16);
    }
    for (int n = 0; n < 100 * layout.kv_heads * layout.value_dim; ++n) {
      rows.values.push_back(static_cast<float>(n % 89) / 16);
    }
    sequence.WriteRows(i, 0, rows);
  }
  sequence.Advance(99);
  sequence.Advance(1);  // a chunk that is done goes with the second run
  return sequence;
}

TEST(MlxExportTest, RefusesByNameOrAcceptsTheLoss) {
  const KvCodec affine = KvCodec::Affine(4, 32);
  const KvLayout dense = {.kv_heads = 1, .key_dim = 32, .value_dim = 32};
  KvLayout turbo = dense;
  turbo.key_codec = turbo.value_codec = KvCodec::Turbo(4);
  KvLayout packed = dense;
  packed.key_codec = packed.value_codec = affine;
  KvLayout half_packed = packed;
  half_packed.value_codec = {KvCodec::Kind::kF16};
  KvLayout started = packed;
  started.dense_start = 64;
  struct Case {
    KvLayerSpec layer;
    const char* named;
    bool can_lose;
  };
  const Case cases[] = {
      {{turbo, RetentionSpec::All()}, "turbo4", true},
      {{packed, RetentionSpec::Window(50)}, "rotating", true},
      {{half_packed, RetentionSpec::All()}, "affine4:32 / f16", true},
      {{started, RetentionSpec::All()}, "in some blocks only", true},
      {{dense, RetentionSpec::Chunk(64)}, "chunk:64", false},
      {{.state_bytes = 64}, "recurrent", false},
  };
  for (const Case& test : cases) {
    KvPool pool(Ample());
    const auto sequence = Filled(&pool, test.layer);
    ASSERT_TRUE(sequence.ok()) << sequence.error().message;
    const std::string path = Scratch("refused.safetensors");
    const Status refused = ExportMlxPromptCache(sequence->Snapshot(), path);
    ASSERT_FALSE(refused.ok()) << test.named;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find(test.named), std::string::npos)
        << refused.error().message;
    EXPECT_FALSE(FileExists(path));
    MlxExportOptions options;
    options.loss = MlxExportOptions::Loss::kAccept;
    const Status accepted = ExportMlxPromptCache(sequence->Snapshot(), path, {}, options);
    ASSERT_EQ(accepted.ok(), test.can_lose) << test.named;
    if (!accepted.ok()) continue;
    Imported again;
    again.Load(path);
    EXPECT_EQ(again.sequence->position(), 100);
    // Decoded and rounded once more to f16, which holds what f32 arithmetic of such codes gives to
    // 2^-11 of its size (below 8).
    for (Position row = 60; row < 100; ++row) {
      const std::vector<float> before = sequence->ReadKeys(1, row);
      const std::vector<float> after = again.sequence->ReadKeys(1, row);
      for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 8.0 / 2048);
    }
    std::filesystem::remove(path);
  }
}

TEST(MlxImportTest, ChecksTheSpecItIsGiven) {
  KvPool pool(Ample());
  const auto file = SafetensorsFile::Open(Golden("meta_mixed_bf16"));
  ASSERT_TRUE(file.ok());
  const auto cache = ParseMlxCache(file->tensors(), file->metadata());
  ASSERT_TRUE(cache.ok());
  KvCacheSpec spec = SpecOfMlxCache(*cache);
  spec.layers[0].inv_freq = {1, 1, 1, 1};
  const auto imported = ImportMlxCache(&pool, *cache, &spec);
  ASSERT_TRUE(imported.ok()) << imported.error().message;
  EXPECT_EQ(imported->snapshot.spec(), spec);

  KvCacheSpec other = spec;
  other.layers[1].retention = RetentionSpec::Window(25);
  const auto refused = ImportMlxCache(&pool, *cache, &other);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("window:25"), std::string::npos);
  other = spec;
  other.layers.pop_back();
  EXPECT_FALSE(ImportMlxCache(&pool, *cache, &other).ok());
  other = spec;
  other.layers.push_back(spec.layers[0]);
  EXPECT_FALSE(ImportMlxCache(&pool, *cache, &other).ok());
}

TEST(MlxImportTest, TooLittleMemoryIsAnErrorThatTakesNothing) {
  KvPoolOptions options;
  options.budget_bytes = 4096;
  KvPool pool(std::move(options));
  const auto imported = ImportMlxPromptCache(&pool, Golden("meta_mixed_f32"));
  ASSERT_FALSE(imported.ok());
  EXPECT_EQ(imported.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(pool.used_bytes(), 0u);
}

// What a change of a golden is called by.
struct Damage {
  const char* golden;
  std::function<void(MlxTensors&, MlxMetadata&)> change;
  const char* named;
};

TEST(MlxImportTest, NamesWhatIsMalformed) {
  static const int32_t kHuge = 1 << 30;
  static const int32_t kNegative = -1;
  const Damage damages[] = {
      {"meta_mixed_f32", [](auto& t, auto&) { t.erase("2.1"); }, "tensor 2.1"},
      {"meta_mixed_f32",
       [](auto& t, auto&) {
         t["1.0"].shape = {1, 2, 192};
       },
       "tensor 1.0"},
      {"meta_mixed_f32",
       [](auto& t, auto&) {
         t["1.0"].shape = {2, 2, 24, 4};
       },
       "tensor 1.0"},
      {"meta_mixed_f32", [](auto& t, auto&) { t["1.0"].dtype = DType::kU32; }, "tensor 1.0"},
      {"meta_mixed_f32",
       [](auto& t, auto&) {
         t["1.0"].shape = {1, 4, 12, 8};
       },
       "cache 1"},
      {"meta_mixed_f32", [](auto&, auto& m) { m["0.1.1"] = "23x"; }, "0.1.1"},
      {"meta_mixed_f32", [](auto&, auto& m) { m.erase("0.1.2"); }, "0.1.2"},
      {"meta_mixed_f32", [](auto&, auto& m) { m["0.2.0"] = "24"; }, "cache 2"},
      {"meta_mixed_f32", [](auto&, auto& m) { m["0.2.3"] = "2"; }, "keep"},
      {"meta_mixed_f32", [](auto&, auto& m) { m["0.1.1"] = "30"; }, "cache 1"},
      {"meta_mixed_f32", [](auto&, auto& m) { m["0.1.2"] = "71"; }, "cache 1"},
      {"meta_mixed_f32", [](auto&, auto& m) { m["2.1"] = "ArraysCache"; }, "ArraysCache"},
      {"meta_mixed_f32", [](auto&, auto& m) { m["2.0"] = "CacheList"; }, "CacheList"},
      {"meta_mixed_f32", [](auto&, auto& m) { m.erase("2.1"); }, "cache 1"},
      {"meta_mixed_f32", [](auto&, auto& m) { m.clear(); }, "no prompt cache"},
      {"meta_quantized", [](auto& t, auto&) { t.erase("1.1.2"); }, "1.1.2"},
      {"meta_quantized", [](auto&, auto& m) { m["0.1.2"] = "7"; }, "1.0.0"},
      {"meta_quantized", [](auto&, auto& m) { m["0.1.1"] = "0"; }, "1.0.0"},
      {"meta_quantized", [](auto&, auto& m) { m["0.1.0"] = "23"; }, "offset"},
      {"scalars_mixed_f32", [](auto& t, auto&) { t.erase("0.2"); }, "0.2"},
      {"scalars_mixed_f32",
       [](auto& t, auto&) { t["0.2"].data = reinterpret_cast<const std::byte*>(&kHuge); },
       "offset"},
      {"scalars_mixed_f32",
       [](auto& t, auto&) { t["1.5"].data = reinterpret_cast<const std::byte*>(&kNegative); },
       "_idx"},
      {"scalars_mixed_f32", [](auto& t, auto&) { t["0.2"].dtype = DType::kF32; }, "0.2"},
  };
  for (const Damage& damage : damages) {
    const auto file = SafetensorsFile::Open(Golden(damage.golden));
    ASSERT_TRUE(file.ok());
    MlxTensors tensors = file->tensors();
    MlxMetadata metadata = file->metadata();
    ASSERT_TRUE(ParseMlxCache(tensors, metadata).ok()) << damage.golden;
    damage.change(tensors, metadata);
    const auto cache = ParseMlxCache(tensors, metadata);
    ASSERT_FALSE(cache.ok()) << damage.golden << ": " << damage.named;
    EXPECT_NE(cache.error().message.find(damage.named), std::string::npos) << cache.error().message;
  }
}

}  // namespace
}  // namespace kvasir
