// What metadata of GGUF files become in a config, and the divisors of rope.
#include "kvasir/formats/gguf_config.h"
#include "kvasir/formats/config_test_util.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "kvasir/formats/gguf_rope.h"
#include "kvasir/formats/gguf_test_bytes.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

std::string Testdata(const std::string& name) {
  return std::string(KVASIR_SOURCE_DIR) + "/testdata/gguf/" + name;
}

TEST(GgufConfig, UnknownArchitecturesListTheKnown) {
  const ScratchFolder folder;
  GgufTestFile content;
  content.Text("general.architecture", "rwkv7");
  const auto file = GgufFile::Open(folder.Write("m.gguf", content.Bytes(0)));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto config = GgufModelConfig(*file);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(config.error().message.find(
                "'rwkv7'; supported are llama, mistral3, smollm3, "
                "granite, granitemoe, granitehybrid, lfm2, lfm2moe, olmo2, olmo3, "
                "phi3, deepseek2, glm4, glm4moe, qwen2, qwen3, qwen3moe, qwen35, "
                "qwen35moe, qwen3next, gpt-oss,"),
            std::string::npos)
      << config.error().message;
}

// Whose tokens see what comes behind them is another model.
TEST(GgufConfig, OnlyCausalAttention) {
  const ScratchFolder folder;
  GgufTestFile content;
  content.Text("general.architecture", "llama").Bool("llama.attention.causal", false);
  const auto file = GgufFile::Open(folder.Write("m.gguf", content.Bytes(0)));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto config = GgufModelConfig(*file);
  ASSERT_FALSE(config.ok());
  EXPECT_EQ(config.error().code, ErrorCode::kUnsupported);
  EXPECT_NE(config.error().message.find("causal"), std::string::npos) << config.error().message;
}

// Queries, keys and values in one tensor are three; rows that do not add up are named.
TEST(GgufConfig, FusedProjectionsAreThreeTensors) {
  const ScratchFolder folder;
  const auto open = [&](const char* architecture, uint64_t rows, uint32_t key_length) {
    GgufTestFile content;
    content.Text("general.architecture", architecture);
    const std::string prefix = std::string(architecture) + ".";
    content.U32(prefix + "embedding_length", 8);
    content.U32(prefix + "attention.head_count", 4);
    content.U32(prefix + "attention.head_count_kv", 2);
    if (key_length > 0) content.U32(prefix + "attention.key_length", key_length);
    content.Tensor({"blk.0.attn_qkv.weight", {8, rows}, 0, 0});
    return GgufFile::Open(folder.Write("m.gguf", content.Bytes(rows * 8 * sizeof(float))));
  };
  const auto file = open("llama", 16, 0);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->names(), (std::vector<std::string>{"blk.0.attn_k.weight", "blk.0.attn_q.weight",
                                                     "blk.0.attn_v.weight"}));
  const GgufEntry& q = *file->Find("blk.0.attn_q.weight");
  const GgufEntry& k = *file->Find("blk.0.attn_k.weight");
  const GgufEntry& v = *file->Find("blk.0.attn_v.weight");
  EXPECT_EQ(q.shape, (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(k.shape, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(v.shape, (std::vector<int64_t>{4, 8}));
  EXPECT_EQ(k.begin, q.begin + q.size_bytes);
  EXPECT_EQ(v.begin, k.begin + k.size_bytes);
  EXPECT_EQ(file->total_bytes(), 16 * 8 * sizeof(float));
  EXPECT_NE(open("llama", 17, 0).error().message.find("'blk.0.attn_qkv.weight' has 17 rows"),
            std::string::npos);
  EXPECT_EQ(open("qwen2", 16, 0x7fffffff).error().code, ErrorCode::kCorrupt);
  // Where it is the architecture's own name it stays.
  EXPECT_EQ(open("gpt2", 17, 0)->names(), std::vector<std::string>{"blk.0.attn_qkv.weight"});
}

TEST(GgufConfig, ReadsATinyGemma) {
  const auto file = GgufFile::Open(Testdata("gemma3_bf16-00001-of-00002.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto config = GgufModelConfig(*file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->family, ModelFamily::kGemma3);
  EXPECT_EQ(config->head_dim, 32);
  EXPECT_EQ(config->sliding_window, 12);
  EXPECT_EQ(config->layer_kinds[5], LayerKind::kFull);
  EXPECT_EQ(config->layer_kinds[4], LayerKind::kSliding);
  EXPECT_NEAR(config->query_pre_attn_scalar, 20.0, 1e-5);  // through a float's square root
  EXPECT_EQ(config->rope_full.theta, 1e6);
  EXPECT_EQ(config->rope_sliding.theta, 1e4);
  EXPECT_TRUE(config->tie_word_embeddings);
  EXPECT_TRUE(config->norms_hold_offset);
}

TEST(GgufConfig, ReadsExpertsOfGemma4) {
  const auto file = GgufFile::Open(Testdata("gemma4_experts_bf16.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto config = GgufModelConfig(*file);
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->head_dim, 16);
  EXPECT_EQ(config->global_head_dim, 32);
  EXPECT_EQ(config->num_key_value_heads, 2);
  EXPECT_EQ(config->global_key_value_heads, 1);
  EXPECT_TRUE(config->values_from_keys);
  EXPECT_EQ(config->experts.count, 5);
  EXPECT_EQ(config->experts.per_token, 2);
  EXPECT_EQ(config->rope_full.type, RopeType::kProportional);
  EXPECT_EQ(config->rope_full.rotated_fraction, 0.25);
}

// A Gemma 4 of two layers, whose metadata can be changed.
GgufTestFile TinyGemma4() {
  GgufTestFile file;
  file.Text("general.architecture", "gemma4").U32("gemma4.block_count", 2);
  file.U32("gemma4.embedding_length", 32).U32("gemma4.context_length", 64);
  file.U32("gemma4.attention.head_count", 2).U32("gemma4.attention.key_length", 8);
  file.U32("gemma4.attention.sliding_window", 16);
  file.Tensor({"token_embd.weight", {32, 8}, 0, 0});
  file.Tensor({"rope_freqs.weight", {4}, 0, 32 * 8 * 4});
  return file;
}

std::string ErrorOf(const GgufTestFile& content) {
  const ScratchFolder folder;
  std::string bytes = content.Bytes(32 * 8 * 4 + 16);
  const float ones[] = {1, 1, 1, 1};
  bytes.replace(bytes.size() - sizeof(ones), sizeof(ones), reinterpret_cast<const char*>(ones),
                sizeof(ones));
  const auto file = GgufFile::Open(folder.Write("m.gguf", bytes));
  if (!file.ok()) return file.error().message;
  const auto config = GgufModelConfig(*file);
  return config.ok() ? "no error" : config.error().message;
}

TEST(GgufConfig, LayersOfGemma4AreChecked) {
  const auto sound = [] {
    GgufTestFile file = TinyGemma4();
    file.U32("gemma4.feed_forward_length", 32).U32("gemma4.attention.head_count_kv", 1);
    return file;
  };
  EXPECT_EQ(ErrorOf(sound()), "no error");
  GgufTestFile file = sound().U32("gemma4.rope.dimension_count", 4);
  EXPECT_NE(ErrorOf(file).find("'gemma4.rope.dimension_count' is 4, must be the head size 8"),
            std::string::npos);
  file = sound().U32("gemma4.expert_count", 4);
  EXPECT_NE(ErrorOf(file).find("'gemma4.expert_used_count' is missing"), std::string::npos);
  file = sound().U32("gemma4.attention.sliding_window_pattern", 0);
  EXPECT_NE(ErrorOf(file).find("must be at least 1"), std::string::npos);
  file = TinyGemma4().I32s("gemma4.feed_forward_length", {32, 64});
  file.U32("gemma4.attention.head_count_kv", 1);
  EXPECT_NE(ErrorOf(file).find("'gemma4.feed_forward_length' makes layer 1 unlike"),
            std::string::npos)
      << ErrorOf(file);
  file = TinyGemma4().U32("gemma4.feed_forward_length", 32);
  file.I32s("gemma4.attention.head_count_kv", {1, 1, 1});
  EXPECT_NE(ErrorOf(file).find("has 3 elements for 2 layers"), std::string::npos);
}

// A model whose metadata can be changed, of an architecture that needs little.
GgufTestFile TinyWithoutEpsilon(const std::string& architecture, uint32_t layers) {
  GgufTestFile file;
  file.Text("general.architecture", architecture);
  file.U32(architecture + ".block_count", layers).U32(architecture + ".embedding_length", 32);
  file.U32(architecture + ".context_length", 64).U32(architecture + ".attention.head_count", 2);
  file.U32(architecture + ".feed_forward_length", 64);
  file.Tensor({"token_embd.weight", {32, 8}, 0, 0});
  return file;
}

GgufTestFile Tiny(const std::string& architecture, uint32_t layers) {
  return TinyWithoutEpsilon(architecture, layers)
      .F32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
}

constexpr uint64_t kEmbeddingBytes = 32 * 8 * 4;

ModelConfig ConfigOf(const GgufTestFile& content, uint64_t bytes_behind_embedding = 0) {
  const ScratchFolder folder;
  const auto file = GgufFile::Open(
      folder.Write("m.gguf", content.Bytes(kEmbeddingBytes + bytes_behind_embedding)));
  if (!file.ok()) {
    ADD_FAILURE() << file.error().message;
    return {};
  }
  auto config = GgufModelConfig(*file);
  if (config.ok()) return *std::move(config);
  ADD_FAILURE() << config.error().message;
  return {};
}

TEST(GgufConfig, Gemma3WithoutWordsAboutRopeHasThoseOfItsRelease) {
  const auto with_window = [](uint32_t layers) {
    return Tiny("gemma3", layers).U32("gemma3.attention.sliding_window", 16);
  };
  ModelConfig model = ConfigOf(with_window(34));
  EXPECT_EQ(model.rope_full.theta, 1e6);
  EXPECT_EQ(model.rope_full.type, RopeType::kLinear);
  EXPECT_EQ(model.rope_full.factor, 8.0);
  EXPECT_EQ(model.rope_sliding.theta, 1e4);
  EXPECT_EQ(model.rope_sliding.type, RopeType::kDefault);
  model = ConfigOf(with_window(26));
  EXPECT_EQ(model.rope_full.theta, 1e6);
  EXPECT_EQ(model.rope_full.type, RopeType::kDefault);
  model = ConfigOf(with_window(34).F32("gemma3.rope.freq_base", 500000.0f));
  EXPECT_EQ(model.rope_full.theta, 500000.0);
  EXPECT_EQ(model.rope_full.type, RopeType::kDefault);
  model = ConfigOf(with_window(6)
                       .F32("gemma3.rope.global.freq_base", 2e6f)
                       .F32("gemma3.rope.local.freq_base", 3e4f));
  EXPECT_EQ(model.rope_full.theta, 2e6);
  EXPECT_EQ(model.rope_sliding.theta, 3e4);
}

TEST(GgufConfig, WindowsThatAreNotNamed) {
  ModelConfig model = ConfigOf(Tiny("gemma2", 4));
  EXPECT_EQ(model.sliding_window, 4096);
  EXPECT_EQ(model.layer_kinds[0], LayerKind::kSliding);
  model = ConfigOf(Tiny("gemma3", 4));
  EXPECT_EQ(model.sliding_window, 0);
  EXPECT_EQ(model.layer_kinds[0], LayerKind::kFull);
}

TEST(GgufConfig, FactorsOfRopeThatChangeSomethingAreRefused) {
  const auto yarn = [] {
    GgufTestFile file = Tiny("llama", 2);
    file.Text("llama.rope.scaling.type", "yarn").F32("llama.rope.scaling.factor", 4.0f);
    return file.U32("llama.rope.scaling.original_context_length", 64);
  };
  ModelConfig model = ConfigOf(yarn()
                                   .F32("llama.rope.scaling.attn_factor", 1.0f)
                                   .F32("llama.rope.scaling.yarn_ext_factor", -1.0f));
  EXPECT_EQ(model.rope_full.type, RopeType::kYarn);
  EXPECT_EQ(model.max_position_embeddings, 256);
  for (const std::string name :
       {"attn_factor", "yarn_attn_factor", "yarn_ext_factor", "yarn_log_multiplier"}) {
    const std::string key = "llama.rope.scaling." + name;
    for (GgufTestFile file : {yarn(), Tiny("llama", 2)}) {
      const bool is_yarn =
          name == "yarn_attn_factor" && ConfigOf(file).rope_full.type == RopeType::kYarn;
      if (is_yarn) {
        // DeepSeek-R1-0528-Qwen3-8B's: nobody reads it for these architectures.
        EXPECT_EQ(ConfigOf(file.F32(key, 0.5f)).rope_full.attention_factor,
                  ConfigOf(yarn()).rope_full.attention_factor);
        continue;
      }
      EXPECT_NE(ErrorOf(file.F32(key, 0.5f)).find("'" + key + "' is set"), std::string::npos);
    }
  }
}

TEST(GgufConfig, SamplingIsRecommended) {
  EXPECT_FALSE(ConfigOf(Tiny("llama", 2)).generation.temperature.has_value());
  GgufTestFile file = Tiny("llama", 2);
  file.F32("general.sampling.temp", 0.6f).F32("general.sampling.top_p", 0.75f);
  file.F32("general.sampling.penalty_repeat", 1.25f)
      .Raw("general.sampling.top_k", 5, "\xFF\xFF\xFF\xFF");
  const GenerationConfig generation = ConfigOf(file).generation;
  EXPECT_EQ(generation.temperature, 0.6);  // as in the generation_config.json it is from
  EXPECT_EQ(generation.top_p, 0.75);
  EXPECT_EQ(generation.repetition_penalty, 1.25);
  EXPECT_EQ(generation.top_k, 0);
  EXPECT_FALSE(generation.min_p.has_value());
  EXPECT_NE(ErrorOf(file.F32("general.sampling.min_p", 7.0f)).find("min_p"), std::string::npos);
}

TEST(GgufConfig, OnlyGemmasNormsAreKnownWithoutTheirEpsilon) {
  const auto without = [](const char* name) { return TinyWithoutEpsilon(name, 2); };
  EXPECT_EQ(ConfigOf(without("gemma3")).rms_norm_eps, 1e-6);
  EXPECT_EQ(ErrorOf(without("llama").F32("llama.attention.layer_norm_rms_epsilon", 1e-5f)),
            "no error");
  EXPECT_NE(ErrorOf(without("llama")).find("'llama.attention.layer_norm_rms_epsilon'"),
            std::string::npos);
}

// A model with delta nets, but for a key that a test has or lacks itself.
GgufTestFile TinyDeltaNets(const std::string& architecture, uint32_t blocks,
                           const std::string& without = "") {
  GgufTestFile file = Tiny(architecture, blocks);
  const std::pair<std::string, uint32_t> kNumbers[] = {
      {"attention.head_count_kv", 1}, {"attention.key_length", 16}, {"ssm.conv_kernel", 3},
      {"ssm.state_size", 8},          {"ssm.group_count", 2},       {"ssm.time_step_rank", 4},
      {"ssm.inner_size", 48},         {"rope.dimension_count", 6}};
  for (const auto& [name, value] : kNumbers) {
    if (name != without) file.U32(architecture + "." + name, value);
  }
  return file;
}

GgufTestFile TinyQwen35(const std::string& without = "") {
  return TinyDeltaNets("qwen35", 5, without);
}

TEST(GgufConfig, DeltaNetsOfQwen35) {
  const ModelConfig model = ConfigOf(TinyQwen35().F32("qwen35.rope.freq_base", 1e7f));
  EXPECT_EQ(model.family, ModelFamily::kQwen35);
  EXPECT_EQ(model.architecture, "Qwen3_5ForCausalLM");
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.num_key_value_heads, 1);
  EXPECT_EQ(model.intermediate_size, 64);
  const DeltaNetConfig net = {
      .key_heads = 2, .value_heads = 4, .key_dim = 8, .value_dim = 12, .conv_width = 3};
  EXPECT_EQ(model.delta_net, net);
  EXPECT_EQ(Kinds(model), "RRRFR");
  EXPECT_EQ(model.rope_full.theta, 1e7);
  EXPECT_EQ(RotatedElements(model.rope_full, 16), 6);
  EXPECT_TRUE(model.norms_hold_offset);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_TRUE(model.expert_layers.empty());
  // As llama.cpp reads files without the key.
  EXPECT_EQ(RotatedElements(ConfigOf(TinyQwen35("rope.dimension_count")).rope_full, 16), 16);
  // Older files of Ollama: no keys and values in linear layers.
  EXPECT_EQ(ConfigOf(TinyQwen35("attention.head_count_kv")
                         .I32s("qwen35.attention.head_count_kv", {0, 0, 0, 2, 0}))
                .num_key_value_heads,
            2);
  EXPECT_EQ(ConfigOf(TinyQwen35("attention.head_count_kv")).num_key_value_heads, 2);
}

TEST(GgufConfig, WhichLayersHaveDeltaNets) {
  EXPECT_EQ(Kinds(ConfigOf(TinyQwen35().U32("qwen35.full_attention_interval", 2))), "RFRFR");
  // The list says more than the interval, which a converter may have made up.
  const auto listed = [] {
    GgufTestFile file = TinyQwen35().U32("qwen35.full_attention_interval", 4);
    return file.I32s("qwen35.attention.recurrent_layers", {1, 0, 0, 1, 0});
  };
  EXPECT_EQ(Kinds(ConfigOf(listed())), "RFFRF");
  // The last block drafts.
  EXPECT_EQ(Kinds(ConfigOf(listed().U32("qwen35.nextn_predict_layers", 1))), "RFFR");
  EXPECT_EQ(ConfigOf(TinyQwen35().U32("qwen35.nextn_predict_layers", 1)).num_hidden_layers, 4);
}

// Whatever the architecture is called: Ollama writes Qwen3-Next as qwen35moe.
TEST(GgufConfig, ValueHeadsAreInRoundsWhereStepsAndDecaysAreApart) {
  GgufTestFile apart = TinyQwen35();
  apart.Tensor({"blk.0.ssm_alpha.weight", {32, 4}, 0, kEmbeddingBytes});
  EXPECT_TRUE(ConfigOf(apart, 32 * 4 * 4).delta_net.is_tiled);
  GgufTestFile joined = TinyQwen35();
  joined.Tensor({"blk.0.ssm_ba.weight", {32, 8}, 0, kEmbeddingBytes});
  EXPECT_FALSE(ConfigOf(joined, 32 * 8 * 4).delta_net.is_tiled);
}

TEST(GgufConfig, DeltaNetsThatDoNotAddUpAreRefused) {
  EXPECT_EQ(ErrorOf(TinyQwen35()), "no error");
  const auto expect = [](const GgufTestFile& file, const std::string& part) {
    EXPECT_NE(ErrorOf(file).find(part), std::string::npos) << part << "; " << ErrorOf(file);
  };
  expect(TinyQwen35("ssm.inner_size"), "'qwen35.ssm.inner_size' is missing");
  expect(TinyQwen35("ssm.inner_size").U32("qwen35.ssm.inner_size", 50),
         "'qwen35.ssm.inner_size' is 50, no multiple of the 4 value heads");
  expect(TinyQwen35("ssm.time_step_rank").U32("qwen35.ssm.time_step_rank", 0),
         "no multiple of the 0 value heads");
  expect(TinyQwen35("ssm.group_count").U32("qwen35.ssm.group_count", 3), "linear_num_value_heads");
  for (const uint32_t drafting : {5u, 6u}) {
    expect(TinyQwen35().U32("qwen35.nextn_predict_layers", drafting),
           "'qwen35.nextn_predict_layers' is " + std::to_string(drafting) + " of 5 blocks");
  }
  for (const uint32_t rotated : {0u, 17u}) {
    expect(TinyQwen35("rope.dimension_count").U32("qwen35.rope.dimension_count", rotated),
           "'qwen35.rope.dimension_count' is " + std::to_string(rotated) + " of 16");
  }
  expect(TinyQwen35("rope.dimension_count").U32("qwen35.rope.dimension_count", 5),
         "partial_rotary_factor");
  expect(TinyQwen35().I32s("qwen35.attention.recurrent_layers", {1, 1, 1, 0}),
         "'qwen35.attention.recurrent_layers' has 4 elements for 5 layers");
  expect(
      TinyQwen35("attention.head_count_kv").I32s("qwen35.attention.head_count_kv", {1, 0, 0, 2, 0}),
      "'qwen35.attention.head_count_kv' differs between layers");
  expect(TinyQwen35().U32("qwen35.full_attention_interval", 0), "full_attention_interval");
}

TEST(GgufConfig, ExpertsBesideDeltaNets) {
  const auto with_experts = [](const std::string& architecture) {
    GgufTestFile file = TinyDeltaNets(architecture, 3);
    file.U32(architecture + ".expert_count", 6).U32(architecture + ".expert_used_count", 2);
    return file.U32(architecture + ".expert_feed_forward_length", 24);
  };
  ModelConfig model = ConfigOf(with_experts("qwen35moe"));
  EXPECT_EQ(model.architecture, "Qwen3_5MoeForCausalLM");
  EXPECT_EQ(model.experts.count, 6);
  EXPECT_EQ(model.experts.per_token, 2);
  EXPECT_EQ(model.experts.intermediate_size, 24);
  EXPECT_EQ(model.experts.shared_intermediate_size, 24);
  EXPECT_TRUE(model.experts.normalizes_weights);
  EXPECT_EQ(model.expert_layers, std::vector<bool>(3, true));
  // Which layers of Qwen3-Next have experts, the tensors say.
  GgufTestFile next = with_experts("qwen3next");
  next.U32("qwen3next.expert_shared_feed_forward_length", 40);
  next.Tensor({"blk.1.ffn_gate_inp.weight", {32, 6}, 0, kEmbeddingBytes});
  model = ConfigOf(next, 32 * 6 * 4);
  EXPECT_EQ(model.architecture, "Qwen3NextForCausalLM");
  EXPECT_EQ(model.experts.shared_intermediate_size, 40);
  EXPECT_EQ(model.expert_layers, (std::vector<bool>{false, true, false}));
  EXPECT_EQ(model.intermediate_size, 64);

  for (const std::string architecture : {"qwen35moe", "qwen3next"}) {
    EXPECT_NE(ErrorOf(TinyDeltaNets(architecture, 3)).find("expert_count' is missing"),
              std::string::npos);
  }
  EXPECT_NE(ErrorOf(with_experts("qwen35")).find("'qwen35.expert_count' is 6: experts are read in"),
            std::string::npos);
}

// From files as the converter writes them.
TEST(GgufConfig, ReadsTinyDeltaNets) {
  const auto read = [](const std::string& name) {
    const auto file = GgufFile::Open(Testdata(name));
    auto config = file.ok() ? GgufModelConfig(*file) : Result<ModelConfig>(file.error());
    EXPECT_TRUE(config.ok()) << config.error().message;
    return config.ok() ? *std::move(config) : ModelConfig();
  };
  const ModelConfig dense = read("qwen35_bf16.gguf");
  EXPECT_EQ(Kinds(dense), "RRFRR");
  EXPECT_EQ(dense.delta_net, (DeltaNetConfig{.key_heads = 2,
                                             .value_heads = 4,
                                             .key_dim = 16,
                                             .value_dim = 24,
                                             .conv_width = 4,
                                             .is_tiled = true}));
  EXPECT_FALSE(dense.tie_word_embeddings);
  const ModelConfig experts = read("qwen35moe_bf16.gguf");
  EXPECT_EQ(Kinds(experts), "RFRR");
  EXPECT_TRUE(experts.delta_net.is_tiled);
  EXPECT_EQ(experts.experts.shared_intermediate_size, 24);
  const ModelConfig next = read("qwen3next_bf16.gguf");
  EXPECT_EQ(Kinds(next), "RRFRRF");
  EXPECT_FALSE(next.delta_net.is_tiled);
  EXPECT_EQ(next.expert_layers, (std::vector<bool>{false, true, false, false, false, true}));
}

// Texts of the stops of a vocabulary, in its order.
std::string StopsOf(const std::string& architecture, const std::vector<std::string>& tokens,
                    const std::vector<int32_t>& kinds) {
  GgufTestFile content = Tiny(architecture, 2);
  content.Texts("tokenizer.ggml.tokens", tokens).I32s("tokenizer.ggml.token_type", kinds);
  content.U32("tokenizer.ggml.padding_token_id", 1000);  // outside, and needed by nobody
  std::string stops;
  for (const Token stop : ConfigOf(content).eos_token_ids) {
    stops += tokens[static_cast<size_t>(stop)];
  }
  return stops;
}

TEST(GgufConfig, StopsAreKnownByTheirTexts) {
  const std::vector<std::string> tokens = {"</s>",          "<|im_end|>",       "<eos>",
                                           "<end_of_turn>", "<|tool_response>", "a"};
  const std::vector<int32_t> normal(6, 1), control(6, 3), user_defined(6, 4);
  EXPECT_EQ(StopsOf("llama", tokens, normal), "");
  EXPECT_EQ(StopsOf("gemma3", tokens, normal), "<eos><end_of_turn>");
  EXPECT_EQ(StopsOf("gemma3", tokens, user_defined),
            "<|im_end|><eos><end_of_turn><|tool_response>");
  EXPECT_EQ(StopsOf("llama", tokens, control), "</s><|im_end|><eos><end_of_turn><|tool_response>");
  // Where an answer is a row of messages their ends are none of it.
  const std::vector<int32_t> three(3, 3);
  EXPECT_EQ(StopsOf("llama", {"<|end|>", "<|call|>", "<|return|>"}, three), "<|call|><|return|>");
  EXPECT_EQ(StopsOf("llama", {"<|end|>", "<|call|>", "a"}, three), "<|end|><|call|>");
}

TEST(GgufConfig, ListsOfTokensAreBounded) {
  const std::vector<std::string> many(1025, "</s>");
  GgufTestFile file = Tiny("llama", 2);
  file.Texts("tokenizer.ggml.tokens", many)
      .I32s("tokenizer.ggml.token_type", std::vector<int32_t>(1025, 3));
  EXPECT_NE(ErrorOf(file).find("'tokenizer.ggml.tokens': more than 1024 tokens end an answer"),
            std::string::npos);
  file = Tiny("llama", 2);
  file.I32s("tokenizer.ggml.suppress_tokens", std::vector<int32_t>(1025, 3));
  EXPECT_NE(ErrorOf(file).find("'tokenizer.ggml.suppress_tokens' lists more than 1024"),
            std::string::npos);
}

TEST(GgufRope, WhatIsWrittenIsKnownAgain) {
  const char* const kRopes[] = {
      R"({"rope_type": "llama3", "factor": 32, "low_freq_factor": 1, "high_freq_factor": 4,
          "original_max_position_embeddings": 8192})",
      R"({"rope_type": "llama3", "factor": 8.5, "low_freq_factor": 1, "high_freq_factor": 2.5,
          "original_max_position_embeddings": 300})",
      // The same as the parameters with low 1, high 3 and 2048.
      R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 2, "high_freq_factor": 6,
          "original_max_position_embeddings": 4096})",
      R"({"rope_type": "proportional", "partial_rotary_factor": 0.25})",
      R"({"rope_type": "proportional", "partial_rotary_factor": 0.25, "factor": 2.7})",
      R"({"rope_type": "proportional", "partial_rotary_factor": 0.0})",
      R"({"rope_type": "proportional", "partial_rotary_factor": 0.3})"};
  for (const char* const text : kRopes) {
    for (const int head_dim : {64, 128, 512}) {
      const Json json = *Json::Parse(text);
      const RopeConfig rope = *RopeConfig::Parse(json, "rope", {500000.0, 4096});
      const std::vector<float> divisors = GgufRopeDivisors(rope, head_dim);
      ASSERT_EQ(divisors.size(), static_cast<size_t>(head_dim / 2));
      const Json found = RopeParametersOf(divisors, 500000.0);
      ASSERT_FALSE(found.is_null()) << text << " " << head_dim;
      const auto again = RopeConfig::Parse(found, "rope", {500000.0, 4096});
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->type, rope.type);
      EXPECT_EQ(GgufRopeDivisors(*again, head_dim), divisors) << text << " " << head_dim;
    }
  }
  EXPECT_TRUE(RopeParametersOf({}, 1e4).is_null());
  EXPECT_TRUE(RopeParametersOf({1, 2, 1.5f, 3}, 1e4).is_null());
  EXPECT_EQ(*RopeParametersOf({1, 1, 1, 1}, 1e4).Find("rope_type"), Json("default"));
  const Json linear = RopeParametersOf({2.7f, 2.7f, 2.7f}, 1e4);
  EXPECT_EQ(*linear.Find("rope_type"), Json("linear"));
  EXPECT_EQ(*linear.Find("factor"), Json(2.7));
  EXPECT_TRUE(RopeParametersOf({0.5f, 0.5f}, 1e4).is_null());  // no factor is below 1
}

// As llama.cpp's converter calculates them: all in float.
std::vector<float> ConverterDivisors(const RopeConfig& rope, int head_dim) {
  const auto original = static_cast<float>(rope.original_max_position_embeddings);
  const auto factor = static_cast<float>(rope.factor);
  std::vector<float> divisors;
  for (int i = 0; i < head_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(head_dim);
    const float frequency = 1.0f / std::pow(static_cast<float>(rope.theta), exponent);
    const float wavelength = static_cast<float>(2 * std::numbers::pi) / frequency;
    const float smooth = (original / wavelength - 1.0f) / 3.0f;
    if (wavelength < original / 4) {
      divisors.push_back(1.0f);
    } else if (wavelength > original) {
      divisors.push_back(factor);
    } else {
      divisors.push_back(1.0f / ((1.0f - smooth) / factor + smooth));
    }
  }
  return divisors;
}

TEST(GgufRope, ParametersOfPublishedLlamasAreKnownThroughTheConvertersRounding) {
  bool some_differ = false;
  for (const double factor : {8.0, 32.0}) {      // Llama 3.1 and 3.3; 3.2
    for (const int head_dim : {64, 128}) {       // 3.2 1B; all others
      for (const int64_t length : {8192, 64}) {  // all; of tiny ones
        const Json json = Json::Object{{"rope_type", "llama3"},
                                       {"factor", factor},
                                       {"low_freq_factor", 1.0},
                                       {"high_freq_factor", 4.0},
                                       {"original_max_position_embeddings", length}};
        const RopeConfig rope = *RopeConfig::Parse(json, "rope", {500000.0, 4096});
        const std::vector<float> divisors = ConverterDivisors(rope, head_dim);
        some_differ = some_differ || divisors != GgufRopeDivisors(rope, head_dim);
        const Json found = RopeParametersOf(divisors, 500000.0);
        ASSERT_FALSE(found.is_null()) << factor << " " << head_dim;
        const auto again = RopeConfig::Parse(found, "rope", {500000.0, 4096});
        ASSERT_TRUE(again.ok());
        EXPECT_EQ(*again, rope) << factor << " " << head_dim << " " << length;
      }
    }
  }
  EXPECT_TRUE(some_differ);
}

TEST(GgufRope, DivisorsOfNobodysParametersStayAsTheyAre) {
  const Json json = *Json::Parse(R"({"rope_type": "llama3", "factor": 8, "low_freq_factor": 1,
      "high_freq_factor": 4, "original_max_position_embeddings": 8192})");
  std::vector<float> divisors =
      GgufRopeDivisors(*RopeConfig::Parse(json, "rope", {500000.0, 4096}), 128);
  const auto between =
      std::find_if(divisors.begin(), divisors.end(), [](float divisor) { return divisor > 1.0f; });
  ASSERT_NE(between, divisors.end());
  between[1] *= 1.001f;
  EXPECT_TRUE(RopeParametersOf(divisors, 500000.0).is_null());
}

// Where the numbers are not round or cannot be known, rounded divisors say nothing; exact ones may.
TEST(GgufRope, RoundedDivisorsAreNotGuessedAt) {
  const auto rope = [](double theta, int64_t length, double factor, double high) {
    const Json json = Json::Object{{"rope_type", "llama3"},
                                   {"factor", factor},
                                   {"low_freq_factor", 1.0},
                                   {"high_freq_factor", high},
                                   {"original_max_position_embeddings", length}};
    return *RopeConfig::Parse(json, "rope", {theta, 4096});
  };
  // No pair is as slow as the factor's.
  EXPECT_TRUE(RopeParametersOf(GgufRopeDivisors(rope(1e4, 65536, 4, 4), 128), 1e4).is_null());
  // One pair between, which could be another high's.
  EXPECT_TRUE(RopeParametersOf(GgufRopeDivisors(rope(1e6, 131072, 8, 3), 32), 1e6).is_null());
  EXPECT_TRUE(RopeParametersOf(ConverterDivisors(rope(5e5, 300, 8, 4), 128), 5e5).is_null());
  for (const int64_t length : {131073, 100353}) {
    const Json found = RopeParametersOf(GgufRopeDivisors(rope(5e5, length, 8, 4), 128), 5e5);
    ASSERT_FALSE(found.is_null()) << length;
    EXPECT_EQ(*found.GetInt("original_max_position_embeddings"), length);
  }
}

}  // namespace
}  // namespace kvasir
