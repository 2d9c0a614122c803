// What makes keys and values of latents, in one matrix and in two stacks; and what GGUF files of
// such models cannot say.
#include "kvasir/convert/latent_stacks.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>

#include "kvasir/convert/convert_test_util.h"
#include "kvasir/formats/test_files.h"
#include "kvasir/model/model_loader.h"
#include "kvasir/model/tensor_list.h"

namespace kvasir {
namespace {

constexpr uint64_t kShard = uint64_t{1} << 30;

std::string Model(const std::string& name) { return Path("testdata/models/" + name); }

// From a folder to a file and back the matrix is the one that it was.
TEST(LatentStacks, AreTheOneMatrixAgain) {
  for (const char* const name :
       {"transformers_deepseek_v3_bf16", "transformers_deepseek_v2_lite_bf16"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string file = scratch.File("model.gguf");
    const std::string folder = scratch.File("back");
    ASSERT_TRUE(Write(Model(name), "bf16", file).ok());
    const GgufFile written = ValueOrDie(GgufFile::Open(file));
    EXPECT_NE(written.Find("blk.1.attn_k_b.weight"), nullptr);
    EXPECT_NE(written.Find("blk.1.attn_v_b.weight"), nullptr);
    ASSERT_TRUE(Convert(file, "stored", folder).ok());
    const Checkpoint before = ValueOrDie(Checkpoint::Open(Model(name)));
    const Checkpoint after = ValueOrDie(Checkpoint::Open(folder));
    for (const std::string& tensor : before.names()) {
      const TensorView* const then = before.Find(tensor);
      const TensorView* const now = after.Find(tensor);
      ASSERT_NE(now, nullptr) << tensor;
      EXPECT_EQ(now->shape, then->shape) << tensor;
      if (!tensor.ends_with("kv_b_proj.weight")) continue;
      ASSERT_EQ(now->dtype, then->dtype);
      const size_t bytes = static_cast<size_t>(then->elements()) * DTypeBytes(then->dtype);
      EXPECT_EQ(std::memcmp(now->data, then->data, bytes), 0) << tensor;
    }
    for (const std::string& tensor : after.names()) {
      EXPECT_EQ(tensor.find("embed_q"), std::string::npos) << tensor;
    }
  }
}

// Quantized as mlx-lm has them: of V2 one matrix, of others two stacks.
TEST(LatentStacks, AreQuantizedAsMlxHasThem) {
  const ScratchFolder scratch;
  const std::string v2 = scratch.File("v2");
  const std::string flash = scratch.File("flash");
  ASSERT_TRUE(Convert(Model("transformers_deepseek_v2_lite_bf16"), "int8", v2, kShard, 32).ok());
  ASSERT_TRUE(Convert(Model("transformers_glm4_moe_lite_bf16"), "int8", flash, kShard, 32).ok());
  const std::string attention = "model.layers.1.self_attn.";
  const Checkpoint one = ValueOrDie(Checkpoint::Open(v2));
  EXPECT_NE(one.Find(attention + "kv_b_proj.scales"), nullptr);
  const Checkpoint two = ValueOrDie(Checkpoint::Open(flash));
  EXPECT_EQ(two.Find(attention + "kv_b_proj.scales"), nullptr);
  for (const char* const stack : {"embed_q.scales", "unembed_out.scales"}) {
    ASSERT_NE(two.Find(attention + stack), nullptr) << stack;
    EXPECT_EQ(two.Find(attention + stack)->shape.size(), 3u);
  }

  // What makes keys is numbers in memory, though the file has codes, and is counted so.
  const ModelConfig config = ValueOrDie(ModelConfig::Load(v2));
  const TensorList list = ValueOrDie(ListTensors(one, config));
  const auto backend = ValueOrDie(MakeCpuBackend({.threads = 1}));
  const LoadedModel loaded = ValueOrDie(LoadModel(v2, *backend, {}));
  EXPECT_NEAR(static_cast<double>(PackedBytes(list.tensors)),
              static_cast<double>(loaded.model->weight_bytes()),
              0.02 * static_cast<double>(loaded.model->weight_bytes()));
}

// A file says one factor of yarn and no frequencies one by one.
TEST(LatentStacks, PositionsThatFilesCannotSayAreRefused) {
  const Json yarn = *Json::Parse(R"({"type":"yarn","factor":40,
      "original_max_position_embeddings":128})");
  const auto written = [&](const char* name, const Json& scaling) {
    const ScratchFolder scratch;
    const std::string folder = scratch.File("model");
    std::filesystem::copy(Model(name), folder);
    Json config = ValueOrDie(Json::ParseFile(folder + "/config.json"));
    config.Set("rope_scaling", scaling);
    EXPECT_TRUE(WriteFileAtomic(folder + "/config.json", config.Dump()).ok());
    const std::string out = scratch.File("out.gguf");
    const Status done = Write(folder, "bf16", out);
    if (done.ok()) {
      // What is written is what was meant.
      EXPECT_EQ(Logits(out, {}), Logits(folder, {}));
      return std::string();
    }
    return done.error().message;
  };
  const auto with = [&](std::initializer_list<Json::Member> members) {
    Json scaling = yarn;
    for (const auto& [field, value] : members) scaling.Set(field, value);
    return scaling;
  };
  const char* const v3 = "transformers_deepseek_v3_bf16";
  EXPECT_EQ(written(v3, with({{"mscale", 0.7}, {"mscale_all_dim", 0.7}})), "");
  EXPECT_EQ(written(v3, with({{"factor", 1.0}, {"mscale", 1.0}, {"mscale_all_dim", 1.0}})), "");
  EXPECT_NE(written(v3, with({{"mscale_all_dim", 1.0}})).find("mscale"), std::string::npos);
  EXPECT_NE(written(v3, with({{"mscale", 0.5}, {"mscale_all_dim", 1.0}})).find("mscale"),
            std::string::npos);
  EXPECT_NE(written(v3, with({{"attention_factor", 1.0}})).find("attention_factor"),
            std::string::npos);
  const Json llama3 = *Json::Parse(R"({"rope_type":"llama3","factor":8,"low_freq_factor":1,
      "high_freq_factor":4,"original_max_position_embeddings":64})");
  for (const char* const name : {v3, "transformers_glm4_bf16"}) {
    EXPECT_NE(written(name, llama3).find("llama3"), std::string::npos) << name;
  }
}

}  // namespace
}  // namespace kvasir
