// Configs of models in the manner of DeepSeek, and of GLM; as published (but for sizes), and what
// their GGUF files may lack or say too much.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kvasir/formats/config_test_util.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {
namespace {

constexpr char kSizes[] = R"("hidden_size":60,"num_hidden_layers":4,"num_attention_heads":4,
    "num_key_value_heads":4,"vocab_size":256,"intermediate_size":96,"kv_lora_rank":32,
    "qk_nope_head_dim":16,"qk_rope_head_dim":8,"v_head_dim":12)";
constexpr char kExperts[] = R"("n_routed_experts":8,"num_experts_per_tok":3,"n_shared_experts":2,
    "moe_intermediate_size":24)";

std::string WithSizes(const std::string& fields) {
  return std::string(kSizes) + "," + kExperts + "," + fields;
}

ModelConfig Parsed(const std::string& fields) { return ParsedFields(WithSizes(fields)); }

void ExpectError(const std::string& fields, ErrorCode code, const std::string& part) {
  ExpectFieldsError(WithSizes(fields), code, part);
}

std::string Sparse(const ModelConfig& model) {
  std::string text;
  for (int i = 0; i < model.num_hidden_layers; ++i) text += model.has_experts(i) ? 'E' : 'D';
  return text;
}

constexpr char kV2[] = R"("architectures":["DeepseekV2ForCausalLM"],"model_type":"deepseek_v2",
    "q_lora_rank":null,"first_k_dense_replace":1,"moe_layer_freq":1,"scoring_func":"softmax",
    "topk_method":"greedy","n_group":1,"topk_group":1,"norm_topk_prob":false,"rope_scaling":
    {"type":"yarn","factor":40,"mscale":0.707,"mscale_all_dim":0.707,
     "original_max_position_embeddings":4096})";

TEST(LatentConfig, DeepSeekV2Lite) {
  const ModelConfig model = Parsed(kV2);
  EXPECT_EQ(model.family, ModelFamily::kDeepSeek);
  EXPECT_EQ(model.latent, (LatentConfig{0, 32, 16, 8, 12}));
  // What is cached: one head, the latent and what turns, which is keys and values.
  EXPECT_EQ(model.head_dim, 40);
  EXPECT_EQ(model.num_key_value_heads, 1);
  EXPECT_TRUE(model.values_from_keys);
  EXPECT_EQ(Sparse(model), "DEEE");
  EXPECT_EQ(model.experts.shared_intermediate_size, 2 * 24);
  EXPECT_FALSE(model.experts.has_sigmoid_scores);
  EXPECT_FALSE(model.experts.normalizes_weights);
  EXPECT_EQ(model.experts.groups, 1);
  // Both factors of yarn are one number, and scores are multiplied by its square.
  const double scale = 0.1 * 0.707 * std::log(40) + 1;
  EXPECT_EQ(model.rope_full.attention_factor, 1);
  EXPECT_NEAR(1 / std::sqrt(model.query_pre_attn_scalar), scale * scale / std::sqrt(24), 1e-12);
  EXPECT_EQ(model.CountParameters().attention,
            4 * (60 * 4 * 24 + 60 * 40 + 32 * 4 * (16 + 12) + 4 * 12 * 60));

  const ModelConfig grouped =
      Parsed(std::string(kV2) + R"(,"q_lora_rank":20,"topk_method":"group_limited_greedy",
             "n_group":4,"topk_group":2,"routed_scaling_factor":16)");
  EXPECT_EQ(grouped.latent.query_rank, 20);
  EXPECT_EQ(grouped.experts.groups, 4);
  EXPECT_EQ(grouped.experts.groups_per_token, 2);
  EXPECT_EQ(grouped.experts.weight_scale, 16);
}

constexpr char kV3[] = R"("architectures":["DeepseekV3ForCausalLM"],"model_type":"deepseek_v3",
    "q_lora_rank":20,"n_group":4,"topk_group":2,"num_nextn_predict_layers":1)";

TEST(LatentConfig, DeepSeekV3) {
  const ModelConfig model = Parsed(std::string(kV3) + R"(,"rope_scaling":{"type":"yarn",
      "factor":40,"mscale":1.0,"mscale_all_dim":1.0,"original_max_position_embeddings":4096})");
  EXPECT_EQ(Sparse(model), "DDDE");  // the class's three
  EXPECT_TRUE(model.experts.has_sigmoid_scores);
  EXPECT_TRUE(model.experts.has_choice_biases);
  EXPECT_TRUE(model.experts.normalizes_weights);
  EXPECT_EQ(model.experts.weight_scale, 2.5);
  EXPECT_EQ(model.draft_layers, 1);
  const double scale = 0.1 * std::log(40) + 1;
  EXPECT_NEAR(1 / std::sqrt(model.query_pre_attn_scalar), scale * scale / std::sqrt(24), 1e-12);
  // As many groups as there are hide nothing.
  EXPECT_EQ(Parsed(std::string(kV3) + R"(,"topk_group":4)").experts.groups, 1);
  // Every other layer, from the first that may.
  EXPECT_EQ(Sparse(Parsed(std::string(kV3) + R"(,"first_k_dense_replace":1,"moe_layer_freq":2)")),
            "DDED");
  EXPECT_EQ(Sparse(Parsed(std::string(kV3) + R"(,"n_routed_experts":null)")), "DDDD");
}

TEST(LatentConfig, Glm) {
  const ModelConfig flash = Parsed(R"("architectures":["Glm4MoeLiteForCausalLM"],
      "model_type":"glm4_moe_lite","q_lora_rank":20,"rope_scaling":null,"partial_rotary_factor":1.0)");
  EXPECT_EQ(flash.family, ModelFamily::kDeepSeek);
  EXPECT_EQ(Sparse(flash), "DEEE");
  EXPECT_EQ(flash.experts.weight_scale, 1.8);
  EXPECT_EQ(flash.query_pre_attn_scalar, 24);
  EXPECT_EQ(flash.rms_norm_eps, 1e-5);
  EXPECT_EQ(flash.rope_full.theta, 1e6);
  const std::string typed = R"("model_type":"glm4_moe_lite","mlp_layer_types":)";
  EXPECT_EQ(Sparse(Parsed(typed + R"(["dense","sparse","dense","sparse"])")), "DEDE");
  ExpectError(typed + R"(["dense"])", ErrorCode::kCorrupt, "mlp_layer_types");
  ExpectError(typed + R"(["dense","sparse","dense","moe"])", ErrorCode::kCorrupt,
              "mlp_layer_types");

  const ModelConfig dense = Parsed(R"("model_type":"glm4","head_dim":16)");
  EXPECT_TRUE(dense.traits().has_post_norms);
  EXPECT_TRUE(dense.qkv_bias);
  EXPECT_FALSE(dense.output_bias);
  EXPECT_EQ(dense.rope_full.rotated_fraction, 0.5);
  EXPECT_EQ(Sparse(dense), "DDDD");

  const ModelConfig moe =
      Parsed(R"("model_type":"glm4_moe","head_dim":16,"attention_bias":true,"use_qk_norm":true)");
  EXPECT_EQ(Sparse(moe), "DEEE");
  EXPECT_TRUE(moe.traits().has_qk_norm);
  EXPECT_FALSE(Parsed(R"("model_type":"glm4_moe","head_dim":16)").traits().has_qk_norm);
}

TEST(LatentConfig, Youtu) {
  const ModelConfig model = Parsed(R"("model_type":"youtu","q_lora_rank":20)");
  EXPECT_EQ(Sparse(model), "DDDD");
  EXPECT_TRUE(model.tie_word_embeddings);
}

TEST(LatentConfig, Errors) {
  const auto v3 = [](const std::string& fields) { return std::string(kV3) + "," + fields; };
  const auto v2 = [](const std::string& fields) { return std::string(kV2) + "," + fields; };
  ExpectError(v3(R"("qk_rope_head_dim":7)"), ErrorCode::kCorrupt, "qk_rope_head_dim");
  ExpectError(v3(R"("kv_lora_rank":31)"), ErrorCode::kCorrupt, "kv_lora_rank");
  ExpectError(v3(R"("kv_lora_rank":1024)"), ErrorCode::kCorrupt, "kv_lora_rank");
  ExpectError(v3(R"("kv_lora_rank":0)"), ErrorCode::kCorrupt, "kv_lora_rank");
  ExpectError(v3(R"("rope_interleave":false)"), ErrorCode::kUnsupported, "rope_interleave");
  ExpectError(v3(R"("attention_bias":true)"), ErrorCode::kUnsupported, "attention_bias");
  ExpectError(v3(R"("scoring_func":"softmax")"), ErrorCode::kUnsupported, "scoring_func");
  ExpectError(v3(R"("topk_method":"greedy")"), ErrorCode::kUnsupported, "topk_method");
  ExpectError(v3(R"("n_group":3)"), ErrorCode::kCorrupt, "n_group");
  ExpectError(v3(R"("n_group":8)"), ErrorCode::kCorrupt, "topk_group");
  ExpectError(v3(R"("n_group":8,"topk_group":4)"), ErrorCode::kCorrupt, "n_group");
  ExpectError(v3(R"("topk_group":1)"), ErrorCode::kCorrupt, "topk_group");
  ExpectError(v3(R"("num_experts_per_tok":9)"), ErrorCode::kCorrupt, "num_experts_per_tok");
  ExpectError(v2(R"("norm_topk_prob":true)"), ErrorCode::kUnsupported, "norm_topk_prob");
  ExpectError(v2(R"("topk_method":"noaux_tc")"), ErrorCode::kUnsupported, "topk_method");
  ExpectError(v2(R"("scoring_func":"sigmoid")"), ErrorCode::kUnsupported, "scoring_func");
}

// As llama.cpp's converter writes it, or, `is_old`, wrote it before it made keys and values apart.
GgufTestFile DeepSeekFile(bool is_old) {
  GgufTestFile file = TinyGguf("deepseek2");
  const auto set = [&](const std::string& name, uint32_t value) {
    file.U32("deepseek2." + name, value);
  };
  set("attention.kv_lora_rank", 32);
  set("rope.dimension_count", 8);
  set("attention.key_length", is_old ? 24 : 40);
  set("attention.value_length", is_old ? 12 : 32);
  if (!is_old) {
    set("attention.key_length_mla", 24);
    set("attention.value_length_mla", 12);
    set("attention.q_lora_rank", 20);
  }
  set("leading_dense_block_count", 1);
  set("expert_count", 8);
  set("expert_used_count", 2);
  set("expert_shared_count", 2);
  set("expert_feed_forward_length", 24);
  return file;
}

TEST(LatentConfig, GgufDeepSeek) {
  const auto old = ReadGguf(DeepSeekFile(true));
  ASSERT_TRUE(old.ok()) << old.error().message;
  EXPECT_EQ(old->latent, (LatentConfig{0, 32, 16, 8, 12}));
  EXPECT_FALSE(old->experts.has_sigmoid_scores);
  EXPECT_EQ(Sparse(*old), "DE");

  GgufTestFile file = DeepSeekFile(false);
  file.U32("deepseek2.expert_gating_func", 2).F32("deepseek2.expert_weights_scale", 2.5f);
  file.U32("deepseek2.expert_group_count", 4).U32("deepseek2.expert_group_used_count", 2);
  file.Text("deepseek2.rope.scaling.type", "yarn").F32("deepseek2.rope.scaling.factor", 40);
  file.U32("deepseek2.rope.scaling.original_context_length", 4096);
  file.F32("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707f);
  const auto model = ReadGguf(file);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->latent, (LatentConfig{20, 32, 16, 8, 12}));
  EXPECT_TRUE(model->experts.has_sigmoid_scores);
  EXPECT_FALSE(model->experts.normalizes_weights);
  EXPECT_EQ(model->experts.weight_scale, 2.5);
  EXPECT_EQ(model->experts.groups, 4);
  EXPECT_EQ(model->rope_full.attention_factor, 1);
  EXPECT_NEAR(model->rope_full.scale_of_all, 0.0707 * std::log(40) + 1, 1e-12);

  // A block that drafts counts as one; biases for choosing say that scores are sigmoids.
  GgufTestFile drafting = DeepSeekFile(false);
  drafting.U32("deepseek2.nextn_predict_layers", 1);
  drafting.Tensor({"blk.0.exp_probs_b.bias", {8}, 0, 1024});
  const auto with_draft = ReadGguf(drafting);
  ASSERT_TRUE(with_draft.ok()) << with_draft.error().message;
  EXPECT_EQ(with_draft->num_hidden_layers, 1);
  EXPECT_EQ(with_draft->draft_layers, 1);
  EXPECT_TRUE(with_draft->experts.has_sigmoid_scores);

  GgufTestFile other = DeepSeekFile(false);
  other.U32("deepseek2.expert_gating_func", 3);
  ExpectConfigError(ReadGguf(other), ErrorCode::kUnsupported, "expert_gating_func");
  GgufTestFile tempered = DeepSeekFile(false);
  tempered.F32("deepseek2.attention.temperature_scale", 0.1f);
  ExpectConfigError(ReadGguf(tempered), ErrorCode::kUnsupported, "temperature_scale");
  GgufTestFile turning = TinyGguf("deepseek2");
  turning.U32("deepseek2.attention.kv_lora_rank", 32).U32("deepseek2.rope.dimension_count", 8);
  turning.U32("deepseek2.attention.key_length", 8);
  ExpectConfigError(ReadGguf(turning), ErrorCode::kCorrupt, "attention.key_length");
}

TEST(LatentConfig, GgufGlm) {
  const auto file = [](const char* architecture) {
    GgufTestFile glm = TinyGguf(architecture);
    const std::string prefix = std::string(architecture) + ".";
    glm.U32(prefix + "attention.head_count_kv", 1).U32(prefix + "attention.key_length", 16);
    glm.U32(prefix + "rope.dimension_count", 8);
    return glm;
  };
  const auto dense = ReadGguf(file("glm4"));
  ASSERT_TRUE(dense.ok()) << dense.error().message;
  EXPECT_EQ(dense->rope_full.rotated_fraction, 0.5);
  GgufTestFile seeing = file("glm4");
  seeing.U32("glm4.rope.dimension_sections", 8);
  ExpectConfigError(ReadGguf(seeing), ErrorCode::kUnsupported, "rope.dimension_sections");
  GgufTestFile divided = file("glm4");
  divided.Tensor({"rope_freqs.weight", {4}, 0, 1024});
  ExpectConfigError(ReadGguf(divided), ErrorCode::kUnsupported, "rope_freqs.weight");

  GgufTestFile moe = file("glm4moe");
  moe.U32("glm4moe.expert_count", 8).U32("glm4moe.expert_used_count", 2);
  moe.U32("glm4moe.expert_feed_forward_length", 24).U32("glm4moe.leading_dense_block_count", 1);
  GgufTestFile soft = moe;
  moe.U32("glm4moe.expert_gating_func", 2);
  const auto model = ReadGguf(moe);
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_TRUE(model->experts.has_sigmoid_scores);
  EXPECT_FALSE(model->traits().has_qk_norm);
  soft.U32("glm4moe.expert_gating_func", 1);
  ExpectConfigError(ReadGguf(soft), ErrorCode::kUnsupported, "expert_gating_func");
}

}  // namespace
}  // namespace kvasir
