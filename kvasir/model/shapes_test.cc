// What published shapes ask of a cache and how many parameters they have, from config.json alone.
#include <gtest/gtest.h>

#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/model/families.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

constexpr KvCodec kBf16 = {KvCodec::Kind::kBf16};
constexpr int64_t kKiB = 1 << 10;
constexpr int64_t kMiB = 1 << 20;
// The state of a linear layer of all three: 3 inputs of a convolution over 16 heads of queries and
// of keys and 32 of values, and the values' matrices, all of 128, in float32.
constexpr int64_t kDeltaNet = (3 * (16 + 16 + 32) * 128 + 32 * 128 * 128) * 4;

struct Shape {
  const char* folder;
  int64_t parameters;    // as transformers counts them, and the scalars that it keeps as buffers
  int64_t both_stored;   // bytes per token of full-attention layers with keys and values
  int64_t growing;       // the same as stored here: keys that values say are not
  int64_t window_bytes;  // rows within the windows of all sliding layers
  int64_t window_layers;
  int64_t state_bytes = 0;  // of all linear layers
};

class ShapesTest : public testing::TestWithParam<Shape> {
 protected:
  static ModelConfig Config() {
    return ValueOrDie(ModelConfig::Load(std::string(KVASIR_SOURCE_DIR) + "/testdata/shapes/" +
                                        GetParam().folder));
  }
};

TEST_P(ShapesTest, Parameters) { EXPECT_EQ(Config().ParameterCount(), GetParam().parameters); }

TEST_P(ShapesTest, CacheGrowsAndStaysAsPublished) {
  const DecoderSpec spec = MakeDecoderSpec(Config());
  const KvCacheSpec cache = DecoderCacheSpec(spec, kBf16);
  ASSERT_TRUE(cache.Validate().ok()) << cache.Validate().error().message;
  int64_t both_stored = 0;
  int64_t window_bytes = 0;
  int64_t window_layers = 0;
  int64_t state_bytes = 0;
  for (const KvLayerSpec& layer : cache.layers) {
    state_bytes += static_cast<int64_t>(layer.state_bytes);
    if (!layer.owns_rows()) continue;
    const int64_t row = int64_t{2} * layer.layout.kv_heads * layer.layout.key_dim * 2;
    if (layer.retention.kind == RetentionSpec::Kind::kAll) {
      both_stored += row;
    } else {
      window_bytes += row * layer.retention.size;
      ++window_layers;
    }
  }
  EXPECT_EQ(both_stored, GetParam().both_stored);
  EXPECT_EQ(window_bytes, GetParam().window_bytes);
  EXPECT_EQ(window_layers, GetParam().window_layers);
  EXPECT_EQ(state_bytes, GetParam().state_bytes);
  // Far beyond every window, only full-attention layers grow.
  const auto bytes = [&](Position position) {
    return static_cast<int64_t>(cache.BytesAt(position));
  };
  EXPECT_EQ(bytes(65536 + 4096) - bytes(65536), GetParam().growing * 4096);
}

INSTANTIATE_TEST_SUITE_P(
    Published, ShapesTest,
    testing::Values(
        Shape{"gemma-4-e2b", 4'628'569'344 + 35, 6 * kKiB, 6 * kKiB, 6 * kMiB, 12},
        Shape{"gemma-4-e4b", 7'463'013'376 + 42, 16 * kKiB, 16 * kKiB, 20 * kMiB, 20},
        Shape{"gemma-4-12b", 11'907'350'272 + 48, 16 * kKiB, 8 * kKiB, 320 * kMiB, 40},
        Shape{"gemma-4-26b-a4b", 25'233'141'760 + 30, 20 * kKiB, 10 * kKiB, 200 * kMiB, 25},
        Shape{"gemma-4-31b", 30'697'345'280 + 60, 80 * kKiB, 40 * kKiB, 800 * kMiB, 50},
        Shape{"qwen3-30b-a3b", 30'532'122'624, 96 * kKiB, 96 * kKiB, 0, 0},
        Shape{"gpt-oss-20b", 20'914'757'184, 24 * kKiB, 24 * kKiB, 3 * kMiB, 12},
        Shape{"smollm3-3b", 3'075'098'624, 72 * kKiB, 72 * kKiB, 0, 0},
        Shape{"granite-4.0-350m", 352'379'904, 28 * kKiB, 28 * kKiB, 0, 0},
        Shape{"granite-4.0-micro", 3'402'836'480, 80 * kKiB, 80 * kKiB, 0, 0},
        // A layer's state: three inputs of 4,352 (3,328) channels, 64 (48) heads of 128 x 64.
        Shape{"granite-4.0-h-micro", 3'191'396'096, 8 * kKiB, 8 * kKiB, 0, 0,
              36 * (3 * 4352 + 64 * 128 * 64) * 4},
        Shape{"granite-4.0-h-tiny", 6'939'037'248, 8 * kKiB, 8 * kKiB, 0, 0,
              36 * (3 * 3328 + 48 * 128 * 64) * 4},
        Shape{"lfm2-1.2b", 1'170'340'608, 12 * kKiB, 12 * kKiB, 0, 0, 10 * 2 * 2048 * 4},
        // With the biases that choose experts, which are no parameters to transformers.
        Shape{"lfm2-8b-a1b", 8'339'929'856 + 22 * 32, 12 * kKiB, 12 * kKiB, 0, 0,
              18 * 2 * 2048 * 4},
        // A latent and what turns of 576 numbers for each token and layer, which is keys and
        // values.
        Shape{"deepseek-v2-lite", 15'706'484'224, 27 * 4 * 576, 27 * 2 * 576, 0, 0},
        Shape{"deepseek-v3", 671'026'404'352 + 58 * 256, 61 * 4 * 576, 61 * 2 * 576, 0, 0},
        Shape{"glm-4.7-flash", 29'943'390'976 + 46 * 64, 47 * 4 * 576, 47 * 2 * 576, 0, 0},
        Shape{"glm-4-9b", 9'400'279'040, 40 * kKiB, 40 * kKiB, 0, 0},
        Shape{"glm-4.5-air", 106'852'245'504 + 45 * 128, 184 * kKiB, 184 * kKiB, 0, 0},
        Shape{"ministral-3-3b", 3'429'006'336, 104 * kKiB, 104 * kKiB, 0, 0},
        Shape{"olmo-3-7b", 7'298'011'136, 128 * kKiB, 128 * kKiB, 1536 * kMiB, 24},
        Shape{"phi-4-mini", 3'836'021'760, 128 * kKiB, 128 * kKiB, 0, 0},
        Shape{"qwen3.5-0.8b", 752'393'024, 12 * kKiB, 12 * kKiB, 0, 0,
              18 * (73'728 + (size_t{1} << 20))},
        Shape{"qwen3.5-4b", 4'205'751'296, 32 * kKiB, 32 * kKiB, 0, 0, 24 * kDeltaNet},
        Shape{"qwen3.5-35b-a3b", 34'660'610'688, 20 * kKiB, 20 * kKiB, 0, 0, 30 * kDeltaNet},
        Shape{"qwen3-next-80b-a3b", 79'674'391'296, 24 * kKiB, 24 * kKiB, 0, 0, 36 * kDeltaNet}),
    [](const auto& info) {
      std::string name = info.param.folder;
      std::replace(name.begin(), name.end(), '-', '_');
      std::replace(name.begin(), name.end(), '.', '_');
      return name;
    });

struct AssistantShape {
  const char* folder;
  const char* target;
  int64_t parameters;  // as transformers counts them, and the scalars that it keeps as buffers
};

class AssistantShapesTest : public testing::TestWithParam<AssistantShape> {};

TEST_P(AssistantShapesTest, FitsItsTarget) {
  const std::string shapes = std::string(KVASIR_SOURCE_DIR) + "/testdata/shapes/";
  const auto config = ValueOrDie(AssistantConfig::Load(shapes + GetParam().folder));
  EXPECT_EQ(config.ParameterCount(), GetParam().parameters);
  const auto target = ValueOrDie(ModelConfig::Load(shapes + GetParam().target));
  const Status fits = AssistantModel::CheckTarget(config, target);
  EXPECT_TRUE(fits.ok()) << fits.error().message;
  const auto other = ValueOrDie(ModelConfig::Load(shapes + "gemma-4-e4b"));
  EXPECT_FALSE(AssistantModel::CheckTarget(config, other).ok());
}

INSTANTIATE_TEST_SUITE_P(
    Published, AssistantShapesTest,
    testing::Values(AssistantShape{"gemma-4-e2b-assistant", "gemma-4-e2b", 77'731'328 + 4},
                    AssistantShape{"gemma-4-31b-assistant", "gemma-4-31b", 469'518'592 + 4}),
    [](const auto& info) {
      std::string name = info.param.folder;
      std::replace(name.begin(), name.end(), '-', '_');
      return name;
    });

// Where windows are cloned, a restore point costs their rows (here 6 MiB, 800 MiB for 31B). Blocks
// are shared instead: taking one costs no block, keeping it only those that the window left.
TEST(Shapes, RestorePointsCostReferences) {
  const DecoderSpec spec = MakeDecoderSpec(ValueOrDie(
      ModelConfig::Load(std::string(KVASIR_SOURCE_DIR) + "/testdata/shapes/gemma-4-e2b")));
  const auto cache = std::make_shared<const KvCacheSpec>(DecoderCacheSpec(spec, kBf16));
  KvPool pool({.budget_bytes = size_t{64} << 20});
  KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, cache));
  const auto append = [&](int64_t tokens) {
    OrDie(sequence.Reserve(tokens));
    sequence.Advance(tokens);
  };
  append(1024);
  const size_t before = pool.used_bytes();
  std::vector<KvSnapshot> points;
  for (int i = 0; i < 16; ++i) points.push_back(sequence.Snapshot());
  EXPECT_EQ(pool.used_bytes(), before);
  append(64);
  // One block a layer is new; the one that each window has left is what the points keep.
  const size_t block = cache->TokenBytes() * kBlockTokens;
  EXPECT_EQ(pool.used_bytes(), before + block);
}

}  // namespace
}  // namespace kvasir
