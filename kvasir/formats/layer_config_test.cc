// Experts, delta nets, heads of full-attention layers and shared keys and values, as config.json
// says them.
// Deliberately in text: each test shows the file it is about.
#include "kvasir/formats/layer_config.h"
#include "kvasir/formats/config_test_util.h"

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
constexpr char kQwen35[] =
    R"({"architectures":["Qwen3_5ForCausalLM"],"hidden_size":64,"intermediate_size":96,
        "num_hidden_layers":6,"num_attention_heads":4,"num_key_value_heads":2,"head_dim":16,
        "vocab_size":256})";

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

TEST(LayerConfig, DeltaNetsStandBetweenFullLayers) {
  EXPECT_EQ(Kinds(Parsed(kQwen35, "{}")), "RRRFRR");
  EXPECT_EQ(Kinds(Parsed(kQwen35, R"({"full_attention_interval":3})")), "RRFRRF");
  EXPECT_EQ(Kinds(Parsed(kQwen35, R"({"full_attention_interval":1})")), "FFFFFF");
  const ModelConfig listed =
      Parsed(kQwen35, R"({"full_attention_interval":3,"sliding_window":16,"layer_types":
          ["linear_attention","full_attention","full_attention","linear_attention",
           "linear_attention","linear_attention"]})");
  EXPECT_EQ(Kinds(listed), "RFFRRR");
  EXPECT_EQ(listed.sliding_window, 0);
  EXPECT_TRUE(listed.is_recurrent(0) && listed.is_full(1));
  EXPECT_FALSE(listed.is_full(0) || listed.is_recurrent(1) || listed.is_sliding(0));
  EXPECT_EQ(listed.KvElementsPerToken(), 2 * 2 * 2 * 16);

  ExpectError(kQwen35, R"({"full_attention_interval":0})", ErrorCode::kCorrupt,
              "full_attention_interval");
  ExpectError(kQwen35, R"({"layer_types":["linear_attention"]})", ErrorCode::kCorrupt,
              "layer_types");
  ExpectError(kQwen35, R"({"layer_types":["linear_attention","sliding_attention","full_attention",
                           "full_attention","full_attention","full_attention"]})",
              ErrorCode::kUnsupported,
              "'sliding_attention'; supported are full_attention and linear_attention");
  ExpectError(kQwenMoe, R"({"model_type":"qwen3","architectures":["Qwen3ForCausalLM"],
                            "layer_types":["linear_attention","full_attention","full_attention",
                                           "full_attention"]})",
              ErrorCode::kUnsupported,
              "'linear_attention'; supported are full_attention and sliding_attention");
}

TEST(LayerConfig, SizesOfDeltaNets) {
  const std::string sizes = R"("linear_num_key_heads":3,"linear_num_value_heads":6,
      "linear_key_head_dim":8,"linear_value_head_dim":20)";
  const ModelConfig model = Parsed(kQwen35, "{" + sizes + R"(,"linear_conv_kernel_dim":2})");
  EXPECT_EQ(model.delta_net,
            (DeltaNetConfig{
                .key_heads = 3, .value_heads = 6, .key_dim = 8, .value_dim = 20, .conv_width = 2}));
  // q, k, v, z, steps, decays; convolution; rates and biases; norm; the way back.
  const int64_t net = 64 * (2 * 24 + 2 * 120 + 2 * 6) + 2 * (2 * 24 + 120) + 2 * 6 + 20 + 120 * 64;
  // Queries with gates, keys, values, the way back, norms of heads.
  const int64_t attention = 64 * (2 * 64 + 2 * 32) + 64 * 64 + 2 * 16;
  EXPECT_EQ(model.ParameterCount(),
            5 * net + attention + 6 * (3 * 64 * 96 + 2 * 64) + 64 + 2 * 256 * 64);

  ExpectError(kQwen35, R"({"linear_num_key_heads":5})", ErrorCode::kCorrupt,
              "'linear_num_value_heads' 32 must be a multiple of the 5 key heads");
  ExpectError(kQwen35, R"({"linear_num_value_heads":8})", ErrorCode::kCorrupt,
              "'linear_num_value_heads' 8 must be a multiple of the 16 key heads");
  ExpectError(kQwen35, R"({"attn_output_gate":false})", ErrorCode::kUnsupported,
              "attn_output_gate");
  for (const char* field : {"linear_num_key_heads", "linear_num_value_heads", "linear_key_head_dim",
                            "linear_value_head_dim", "linear_conv_kernel_dim"}) {
    for (const char* bad : {"0", "-4", "1099511627776", "1.5", "\"8\""}) {
      ExpectError(kQwen35, "{\"" + std::string(field) + "\":" + bad + "}", ErrorCode::kCorrupt,
                  field);
    }
  }
  for (const char* bad : {"1", "65"}) {
    ExpectError(kQwen35, R"({"linear_conv_kernel_dim":)" + std::string(bad) + "}",
                ErrorCode::kCorrupt, "linear_conv_kernel_dim");
  }
}

TEST(LayerConfig, ExpertsOfQwen35AreInEveryLayer) {
  const std::string moe = R"("architectures":["Qwen3_5MoeForCausalLM"],"intermediate_size":null)";
  const ModelConfig model = Parsed(
      kQwen35,
      "{" + moe + R"(,"norm_topk_prob":false,"mlp_only_layers":[1],"decoder_sparse_step":2})");
  EXPECT_EQ(model.experts.count, 256);
  EXPECT_EQ(model.experts.per_token, 8);
  EXPECT_EQ(model.experts.intermediate_size, 512);
  EXPECT_EQ(model.experts.shared_intermediate_size, 512);
  // Its class knows none of the three fields.
  EXPECT_TRUE(model.experts.normalizes_weights);
  EXPECT_EQ(model.expert_layers, std::vector<bool>(6, true));
  EXPECT_FALSE(model.experts.beside_dense);
  ExpectError(kQwen35, "{" + moe + R"(,"num_experts":4})", ErrorCode::kCorrupt,
              "'num_experts_per_tok' 8 is more than the 4");
  ExpectError(kQwen35, "{" + moe + R"(,"shared_expert_intermediate_size":0})", ErrorCode::kCorrupt,
              "shared_expert_intermediate_size");
  EXPECT_TRUE(Parsed(kQwen35, R"({"num_experts":8})").expert_layers.empty());
}

TEST(LayerConfig, Qwen3NextHasLayersWithoutExperts) {
  const std::string next = R"("architectures":["Qwen3NextForCausalLM"])";
  const ModelConfig plain = Parsed(kQwen35, "{" + next + "}");
  EXPECT_EQ(plain.family, ModelFamily::kQwen35);
  EXPECT_EQ(plain.experts.count, 512);
  EXPECT_EQ(plain.experts.per_token, 10);
  EXPECT_EQ(plain.experts.intermediate_size, 512);
  EXPECT_TRUE(plain.experts.normalizes_weights);
  EXPECT_EQ(plain.expert_layers, std::vector<bool>(6, true));
  const ModelConfig sparse =
      Parsed(kQwen35, "{" + next + R"(,"num_experts":5,"num_experts_per_tok":2,
          "norm_topk_prob":false,"decoder_sparse_step":2,"mlp_only_layers":[3]})");
  EXPECT_FALSE(sparse.experts.normalizes_weights);
  EXPECT_EQ(sparse.expert_layers, (std::vector<bool>{false, true, false, false, false, true}));
  EXPECT_EQ(sparse.intermediate_size_of(0), 96);
  ExpectError(kQwen35, "{" + next + R"(,"mlp_only_layers":[6]})", ErrorCode::kCorrupt,
              "mlp_only_layers");
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
