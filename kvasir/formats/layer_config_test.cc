// Experts, heads of full-attention layers and shared keys and values, as config.json says them.
// Deliberately in text: each test shows the file it is about.
#include "kvasir/formats/layer_config.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

constexpr char kGemma4[] =
    R"({"model_type":"gemma4_text","hidden_size":64,"intermediate_size":96,"num_hidden_layers":6,
        "num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,"vocab_size":256,
        "sliding_window":32,"hidden_size_per_layer_input":0,
        "layer_types":["sliding_attention","full_attention","sliding_attention","full_attention",
                       "sliding_attention","full_attention"]})";
constexpr char kQwenMoe[] =
    R"({"architectures":["Qwen3MoeForCausalLM"],"hidden_size":64,"intermediate_size":96,
        "num_hidden_layers":4,"num_attention_heads":4,"num_key_value_heads":2,"vocab_size":256})";

Result<ModelConfig> ParseWith(const std::string& base, const std::string& changes) {
  Json config = *Json::Parse(base);
  const Json parsed = *Json::Parse(changes);
  for (const auto& [key, value] : parsed.as_object()) config.Set(key, value);
  return ModelConfig::Parse(config);
}

ModelConfig Parsed(const std::string& base, const std::string& changes) {
  auto model = ParseWith(base, changes);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *std::move(model) : ModelConfig();
}

void ExpectError(const std::string& base, const std::string& changes, ErrorCode code,
                 const std::string& part) {
  const auto model = ParseWith(base, changes);
  ASSERT_FALSE(model.ok()) << changes;
  EXPECT_EQ(model.error().code, code) << model.error().message;
  EXPECT_NE(model.error().message.find(part), std::string::npos) << model.error().message;
}

TEST(LayerConfig, QwenExpertsTakeTheClassDefaults) {
  const ModelConfig model = Parsed(kQwenMoe, "{}");
  EXPECT_EQ(model.family, ModelFamily::kQwen3);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.experts.count, 128);
  EXPECT_EQ(model.experts.per_token, 8);
  EXPECT_EQ(model.experts.intermediate_size, 768);
  EXPECT_FALSE(model.experts.normalizes_weights);
  EXPECT_FALSE(model.experts.beside_dense);
  EXPECT_EQ(model.expert_layers, std::vector<bool>(4, true));
}

TEST(LayerConfig, QwenLayersWithoutExperts) {
  const ModelConfig model =
      Parsed(kQwenMoe, R"({"num_local_experts":6,"num_experts_per_tok":2,"norm_topk_prob":true,
                           "decoder_sparse_step":2,"mlp_only_layers":[3]})");
  EXPECT_EQ(model.experts.count, 6);
  EXPECT_TRUE(model.experts.normalizes_weights);
  EXPECT_EQ(model.expert_layers, (std::vector<bool>{false, true, false, false}));
  ExpectError(kQwenMoe, R"({"mlp_only_layers":[4]})", ErrorCode::kCorrupt, "mlp_only_layers");
  ExpectError(kQwenMoe, R"({"mlp_only_layers":3})", ErrorCode::kCorrupt, "mlp_only_layers");
  ExpectError(kQwenMoe, R"({"decoder_sparse_step":0})", ErrorCode::kCorrupt, "decoder_sparse_step");
  ExpectError(kQwenMoe, R"({"num_experts":4})", ErrorCode::kCorrupt,
              "'num_experts_per_tok' 8 is more than the 4");
  ExpectError(kQwenMoe, R"({"num_experts":1099511627776})", ErrorCode::kCorrupt, "num_experts");
  ExpectError(kQwenMoe, R"({"moe_intermediate_size":-1})", ErrorCode::kCorrupt,
              "moe_intermediate_size");
}

TEST(LayerConfig, Gemma4FullLayersHaveHeadsOfTheirOwn) {
  const ModelConfig plain = Parsed(kGemma4, "{}");
  EXPECT_EQ(plain.family, ModelFamily::kGemma4);
  EXPECT_EQ(plain.global_head_dim, 512);
  EXPECT_EQ(plain.global_key_value_heads, 2);
  EXPECT_EQ(plain.head_dim_of(0), 16);
  EXPECT_EQ(plain.head_dim_of(1), 512);
  EXPECT_EQ(plain.rope_full.type, RopeType::kProportional);
  EXPECT_EQ(plain.rope_full.theta, 1e6);
  EXPECT_EQ(plain.rope_full.rotated_fraction, 0.25);
  EXPECT_EQ(plain.rope_sliding.theta, 1e4);
  EXPECT_EQ(plain.query_pre_attn_scalar, 1.0);
  EXPECT_EQ(plain.final_logit_softcapping, 0.0);
  EXPECT_FALSE(plain.values_from_keys);

  const std::string heads = R"("global_head_dim":32,"num_global_key_value_heads":1)";
  const ModelConfig one = Parsed(kGemma4, "{" + heads + R"(,"attention_k_eq_v":true})");
  EXPECT_TRUE(one.values_from_keys);
  EXPECT_EQ(one.global_key_value_heads, 1);
  EXPECT_EQ(one.KvElementsPerToken(), 3 * 2 * (2 * 16 + 1 * 32));
  // Without one projection for both, the number of global heads says nothing.
  EXPECT_EQ(Parsed(kGemma4, "{" + heads + "}").global_key_value_heads, 2);

  ExpectError(kGemma4, R"({"global_head_dim":33})", ErrorCode::kCorrupt, "global_head_dim");
  ExpectError(kGemma4, R"({"num_global_key_value_heads":3,"attention_k_eq_v":true})",
              ErrorCode::kCorrupt, "num_global_key_value_heads");
}

// Newer writers list the layers that are unlike the others.
TEST(LayerConfig, Gemma4HeadsListedPerLayer) {
  const std::string layer = R"({"head_dim":32,"num_key_value_heads":1})";
  const std::string three = R"("1":)" + layer + R"(,"3":)" + layer + R"(,"5":)" + layer;
  const ModelConfig model = Parsed(kGemma4, R"({"per_layer_config":{)" + three + "}}");
  EXPECT_EQ(model.global_head_dim, 32);
  EXPECT_EQ(model.global_key_value_heads, 1);
  // All with as many digits, where there are more than ten layers.
  const std::string padded = R"("01":)" + layer + R"(,"03":)" + layer + R"(,"05":)" + layer;
  EXPECT_EQ(Parsed(kGemma4, R"({"per_layer_config":{)" + padded + "}}").global_head_dim, 32);
  for (const std::string& name :
       {R"("01":{},"1":)" + layer, R"("-1":)" + layer, R"("1x":)" + layer, R"("":)" + layer}) {
    ExpectError(kGemma4, R"({"per_layer_config":{)" + name + "}}", ErrorCode::kCorrupt,
                "layers by their numbers");
  }
  ExpectError(kGemma4, R"({"per_layer_config":{"1":)" + layer + "}}", ErrorCode::kUnsupported,
              "layer 3");
  ExpectError(kGemma4, R"({"per_layer_config":{"0":)" + layer + "," + three + "}}",
              ErrorCode::kUnsupported, "layer 0");
  ExpectError(kGemma4, R"({"per_layer_config":[]})", ErrorCode::kCorrupt, "per_layer_config");
  ExpectError(kGemma4, R"({"per_layer_config":{"1":{"head_dim":"x"}}})", ErrorCode::kCorrupt,
              "head_dim");
  ExpectError(kGemma4, R"({"per_layer_config":{"1":3}})", ErrorCode::kCorrupt, "per_layer_config");
}

TEST(LayerConfig, Gemma4LastLayersShareKeysAndValues) {
  const ModelConfig model =
      Parsed(kGemma4, R"({"num_kv_shared_layers":3,"use_double_wide_mlp":true})");
  EXPECT_EQ(model.shares_kv(2), -1);
  EXPECT_EQ(model.shares_kv(3), 1);
  EXPECT_EQ(model.shares_kv(4), 2);
  EXPECT_EQ(model.shares_kv(5), 1);
  EXPECT_EQ(model.intermediate_size_of(2), 96);
  EXPECT_EQ(model.intermediate_size_of(3), 192);
  // Layer 1, the first full one, would have nobody to share with.
  ExpectError(kGemma4, R"({"num_kv_shared_layers":5})", ErrorCode::kCorrupt,
              "num_kv_shared_layers");
  ExpectError(kGemma4, R"({"num_kv_shared_layers":7})", ErrorCode::kCorrupt,
              "num_kv_shared_layers");
}

TEST(LayerConfig, Gemma4LastLayerIsFullWhateverTheFileSays) {
  const ModelConfig model = Parsed(kGemma4, R"({"layer_types":null})");
  EXPECT_TRUE(model.is_full(5));
  EXPECT_FALSE(model.is_full(4));
  EXPECT_TRUE(Parsed(kGemma4, R"({"layer_types":null,"num_hidden_layers":4})").is_full(3));
}

TEST(LayerConfig, Gemma4ExpertsAndPerLayerEmbeddings) {
  const ModelConfig model =
      Parsed(kGemma4, R"({"enable_moe_block":true,"num_experts":8,"top_k_experts":2,
                          "expert_intermediate_size":24,"hidden_size_per_layer_input":null})");
  EXPECT_EQ(model.experts.intermediate_size, 24);
  EXPECT_TRUE(model.experts.beside_dense);
  EXPECT_TRUE(model.experts.normalizes_weights);
  EXPECT_TRUE(model.has_experts(0));
  EXPECT_EQ(model.per_layer_embedding_size, 256);
  ExpectError(kGemma4, R"({"enable_moe_block":true})", ErrorCode::kCorrupt, "num_experts");
  ExpectError(kGemma4, R"({"hidden_size_per_layer_input":8,"vocab_size_per_layer_input":9})",
              ErrorCode::kUnsupported, "vocab_size_per_layer_input");
}

TEST(LayerConfig, BidirectionalAttentionIsForImagesAlone) {
  EXPECT_TRUE(ParseWith(kGemma4, R"({"use_bidirectional_attention":"vision"})").ok());
  ExpectError(kGemma4, R"({"use_bidirectional_attention":"all"})", ErrorCode::kUnsupported,
              "causal");
}

}  // namespace
}  // namespace kvasir
