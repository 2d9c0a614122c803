// What metadata of GGUF files become in a config, and the divisors of rope.
#include "kvasir/formats/gguf_config.h"

#include <gtest/gtest.h>

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
  EXPECT_NE(
      config.error().message.find("'rwkv7'; supported are llama, qwen2, qwen3, qwen3moe, gemma2"),
      std::string::npos)
      << config.error().message;
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
      R"({"rope_type": "proportional", "partial_rotary_factor": 0.3})"};
  for (const char* const text : kRopes) {
    for (const int head_dim : {64, 128, 512}) {
      const Json json = *Json::Parse(text);
      const RopeConfig rope = *RopeConfig::Parse(json, "rope", 500000.0, 4096);
      const std::vector<float> divisors = GgufRopeDivisors(rope, head_dim);
      ASSERT_EQ(divisors.size(), static_cast<size_t>(head_dim / 2));
      const Json found = RopeParametersOf(divisors, 500000.0);
      ASSERT_FALSE(found.is_null()) << text << " " << head_dim;
      const auto again = RopeConfig::Parse(found, "rope", 500000.0, 4096);
      ASSERT_TRUE(again.ok());
      EXPECT_EQ(again->type, rope.type);
      EXPECT_EQ(GgufRopeDivisors(*again, head_dim), divisors) << text << " " << head_dim;
    }
  }
  EXPECT_TRUE(RopeParametersOf({}, 1e4).is_null());
  EXPECT_TRUE(RopeParametersOf({1, 2, 1.5f, 3}, 1e4).is_null());
  EXPECT_TRUE(RopeParametersOf({1, 1, 1, 1}, 1e4).is_null());
}

}  // namespace
}  // namespace kvasir
