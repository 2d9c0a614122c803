// Configs of models most of whose layers have a state: LFM2, and Granite 4's hybrids; as published
// (but for sizes), and what their GGUF files may lack or say too much.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/formats/config_test_util.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {
namespace {

constexpr char kSizes[] = R"("hidden_size":64,"num_hidden_layers":4,"num_attention_heads":4,
    "num_key_value_heads":2,"vocab_size":256)";

std::string WithSizes(const std::string& fields) { return std::string(kSizes) + "," + fields; }

ModelConfig Parsed(const std::string& fields) { return ParsedFields(WithSizes(fields)); }

void ExpectError(const std::string& fields, ErrorCode code, const std::string& part) {
  ExpectFieldsError(WithSizes(fields), code, part);
}

// LFM2-1.2B, with the names of its first release.
constexpr char kLfm2[] = R"("architectures":["Lfm2ForCausalLM"],"block_auto_adjust_ff_dim":true,
    "block_dim":64,"block_ff_dim":140,"block_ffn_dim_multiplier":1.0,"block_multiple_of":8,
    "block_norm_eps":1e-06,"conv_L_cache":3,"conv_bias":false,"conv_dim":64,"norm_eps":2e-05,
    "rope_theta":1000000.0,"model_type":"lfm2")";

TEST(HybridConfig, Lfm2) {
  const std::string listed = std::string(kLfm2) + R"(,"full_attn_idxs":[2])";
  const ModelConfig model = Parsed(listed);
  EXPECT_EQ(model.family, ModelFamily::kLfm2);
  EXPECT_EQ(Kinds(model), "RRFR");
  EXPECT_EQ(model.short_conv, (ShortConvConfig{3, false}));
  EXPECT_EQ(model.intermediate_size, 96);  // two thirds of 140, in eights
  EXPECT_EQ(model.rms_norm_eps, 2e-5);
  EXPECT_EQ(model.max_position_embeddings, 128000);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.KvElementsPerToken(), 2 * 2 * 16);
  // Three projections and the way back, the taps; of attention norms of queries and keys as well.
  const ParameterCounts counts = model.CountParameters();
  EXPECT_EQ(counts.attention, 3 * (4 * 64 * 64 + 3 * 64) + 2 * 64 * 64 + 2 * 32 * 64);
  EXPECT_EQ(counts.norms, 64 + 4 * 2 * 64 + 2 * 16);

  EXPECT_EQ(Kinds(Parsed(kLfm2)), "FFFF");  // as its class has it
  const std::string typed = R"("model_type":"lfm2","layer_types":["conv","full_attention","conv",
      "full_attention"],"full_attn_idxs":null,"tie_embedding":false,"tie_word_embeddings":true,)";
  const ModelConfig newer =
      Parsed(typed + R"("intermediate_size":96,"block_auto_adjust_ff_dim":false)");
  EXPECT_EQ(Kinds(newer), "RFRF");
  EXPECT_EQ(newer.intermediate_size, 96);
  EXPECT_FALSE(newer.tie_word_embeddings);
  // Without a factor nothing is rounded.
  EXPECT_EQ(
      Parsed(typed + R"("intermediate_size":97,"block_ffn_dim_multiplier":null)").intermediate_size,
      64);
  EXPECT_EQ(Parsed(listed + R"(,"conv_bias":true)").CountParameters().attention,
            counts.attention + 3 * 5 * 64);
}

TEST(HybridConfig, Lfm2Errors) {
  const auto with = [](const std::string& fields) {
    return R"("model_type":"lfm2","intermediate_size":96,)" + fields;
  };
  ExpectError(with(R"("full_attn_idxs":[4])"), ErrorCode::kCorrupt, "full_attn_idxs");
  ExpectError(with(R"("full_attn_idxs":3)"), ErrorCode::kCorrupt, "full_attn_idxs");
  ExpectError(with(R"("layer_types":["conv","conv","linear_attention","conv"])"),
              ErrorCode::kUnsupported, "'linear_attention'; supported are full_attention and conv");
  ExpectError(with(R"("conv_L_cache":1)"), ErrorCode::kCorrupt, "conv_L_cache");
  ExpectError(with(R"("block_multiple_of":0)"), ErrorCode::kCorrupt, "block_multiple_of");
  ExpectError(with(R"("block_ffn_dim_multiplier":0.001,"block_ff_dim":1)"), ErrorCode::kCorrupt,
              "block_ff_dim");
  ExpectError(with(R"("block_ffn_dim_multiplier":1000,"block_ff_dim":1048576)"),
              ErrorCode::kCorrupt, "block_ff_dim");
}

TEST(HybridConfig, Lfm2Experts) {
  const std::string fields = R"("architectures":["Lfm2MoeForCausalLM"],"intermediate_size":96,
      "moe_intermediate_size":32,"num_dense_layers":1,"num_experts":6,"num_experts_per_tok":2,
      "norm_topk_prob":true,"use_expert_bias":true,"routed_scaling_factor":1.5,
      "layer_types":["conv","conv","full_attention","conv"])";
  const ModelConfig model = Parsed(fields);
  EXPECT_EQ(Kinds(model), "RRFR");
  EXPECT_EQ(model.intermediate_size, 96);  // of its class nothing is computed
  EXPECT_TRUE(model.experts.has_sigmoid_scores);
  EXPECT_TRUE(model.experts.has_choice_biases);
  EXPECT_EQ(model.experts.weight_scale, 1.5);
  EXPECT_EQ(model.expert_layers, (std::vector<bool>{false, true, true, true}));
  EXPECT_EQ(model.CountParameters().mlp, 3 * 64 * 96 + 3 * (6 * (3 * 64 * 32 + 64) + 6));
  ExpectError(R"("model_type":"lfm2_moe","num_experts":2)", ErrorCode::kCorrupt,
              "num_experts_per_tok");
}

TEST(HybridConfig, Lfm2OldNames) {
  const std::string fields = R"("intermediate_size":96,"tie_embedding":false)";
  const ModelConfig model = Parsed(R"("architectures":["LFM2ForCausalLM"],)" + fields);
  EXPECT_EQ(model.family, ModelFamily::kLfm2);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_TRUE(model.has_own_head);
}

// Text and pictures: the text is a decoder like any other.
TEST(HybridConfig, Lfm2OfAWrapper) {
  const auto model = ModelConfig::Parse(*Json::Parse(
      R"({"architectures":["Lfm2VlForConditionalGeneration"],"model_type":"lfm2_vl","text_config":{)" +
      std::string(kSizes) + "," + kLfm2 + R"(,"full_attn_idxs":[0]}})"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(Kinds(*model), "FRRR");
  EXPECT_EQ(model->architecture, "Lfm2VlForConditionalGeneration");
  const auto of_type = [](const std::string& type) {
    return ModelConfig::Parse(*Json::Parse(
        R"({"architectures":["Lfm2VlForConditionalGeneration"],"text_config":{"model_type":")" +
        type + R"(","intermediate_size":96,)" + kSizes + "}}"));
  };
  const auto experts = of_type("lfm2_moe");
  ASSERT_TRUE(experts.ok()) << experts.error().message;
  EXPECT_EQ(experts->experts.count, 32);
  EXPECT_EQ(experts->intermediate_size, 96);
  ExpectConfigError(of_type("llama"), ErrorCode::kUnsupported, "text_config.model_type");
}

// granite-4.0-h-tiny.
constexpr char kGranite[] = R"("architectures":["GraniteMoeHybridForCausalLM"],
    "attention_multiplier":0.0078125,"embedding_multiplier":12,"residual_multiplier":0.22,
    "logits_scaling":6,"intermediate_size":32,"shared_intermediate_size":80,
    "position_embedding_type":"nope","tie_word_embeddings":true,"mamba_chunk_size":256,
    "mamba_expand":2,"mamba_n_heads":8,"mamba_d_head":16,"mamba_d_state":24,"mamba_n_groups":2)";

TEST(HybridConfig, Granite) {
  const std::string hybrid =
      std::string(kGranite) + R"(,"layer_types":["mamba","mamba","attention","mamba"])";
  const ModelConfig model = Parsed(hybrid + R"(,"num_local_experts":6,"num_experts_per_tok":2)");
  EXPECT_EQ(model.family, ModelFamily::kLlama);
  EXPECT_EQ(Kinds(model), "RRFR");
  EXPECT_TRUE(model.is_still(2));
  const DeltaNetConfig wanted = {.is_mamba = true,
                                 .has_conv_bias = true,
                                 .key_heads = 2,
                                 .value_heads = 8,
                                 .key_dim = 24,
                                 .value_dim = 16,
                                 .conv_width = 4};
  EXPECT_EQ(model.delta_net, wanted);
  EXPECT_EQ(model.experts.intermediate_size, 32);
  EXPECT_EQ(model.experts.shared_intermediate_size, 80);
  EXPECT_FALSE(model.experts.has_shared_gate);
  // 128 of x and z each, twice 48 of B and C, 8 of dt.
  const int64_t mamba = 64 * (256 + 96 + 8) + 224 * 5 + 3 * 8 + 128 * 64;
  const ParameterCounts counts = model.CountParameters();
  EXPECT_EQ(counts.attention, 3 * mamba + 2 * 64 * 64 + 2 * 32 * 64);
  EXPECT_EQ(counts.mlp, 4 * (6 * (3 * 64 * 32 + 64) + 3 * 64 * 80));
  EXPECT_EQ(counts.norms, 64 + 4 * 2 * 64 + 3 * 128);

  const ModelConfig dense = Parsed(hybrid + R"(,"num_local_experts":0,"mamba_conv_bias":false)");
  EXPECT_EQ(dense.experts.count, 0);
  EXPECT_EQ(dense.intermediate_size, 80);
  EXPECT_FALSE(dense.delta_net.has_conv_bias);
  // As transformers 5 writes it.
  EXPECT_EQ(Kinds(Parsed(std::string(kGranite) + R"(,"num_local_experts":0,"layer_types":[
      "linear_attention","full_attention","linear_attention","linear_attention"],
      "time_step_limit":[0.0,null])")),
            "RFRR");
}

// Granite 3's experts, with an MLP beside them and without.
TEST(HybridConfig, GraniteExperts) {
  const std::string fields = R"("intermediate_size":32,"shared_intermediate_size":80,
      "num_local_experts":6,"num_experts_per_tok":2)";
  const ModelConfig alone = Parsed(R"("architectures":["GraniteMoeForCausalLM"],)" + fields);
  EXPECT_EQ(Kinds(alone), "FFFF");
  EXPECT_FALSE(alone.is_still(0));
  EXPECT_EQ(alone.CountParameters().mlp, 4 * 6 * (3 * 64 * 32 + 64));
  const ModelConfig beside = Parsed(R"("model_type":"granitemoeshared",)" + fields);
  EXPECT_EQ(beside.CountParameters().mlp, 4 * (6 * (3 * 64 * 32 + 64) + 3 * 64 * 80));
}

TEST(HybridConfig, GraniteErrors) {
  const auto with = [](const std::string& fields) {
    return std::string(kGranite) +
           R"(,"num_local_experts":0,"layer_types":["mamba","mamba","attention","mamba"],)" +
           fields;
  };
  ExpectError(std::string(kGranite) + R"(,"layer_types":["mamba","mlp","attention","mamba"])",
              ErrorCode::kUnsupported, "'mlp'; supported are attention and mamba");
  ExpectError(std::string(kGranite) + R"(,"layer_types":["mamba"])", ErrorCode::kCorrupt,
              "layer_types");
  ExpectError(with(R"("mamba_proj_bias":true)"), ErrorCode::kUnsupported, "mamba_proj_bias");
  ExpectError(with(R"("hidden_act":"gelu_pytorch_tanh")"), ErrorCode::kUnsupported, "hidden_act");
  ExpectError(with(R"("time_step_limit":[0.0,0.1])"), ErrorCode::kUnsupported, "time_step_limit");
  ExpectError(with(R"("time_step_limit":[0.001,null])"), ErrorCode::kUnsupported,
              "time_step_limit");
}

TEST(HybridConfig, GraniteSizesThatDoNotFit) {
  const auto with = [](const std::string& fields) {
    return R"("model_type":"granitemoehybrid","num_local_experts":0,"intermediate_size":96,
        "layer_types":["mamba","mamba","attention","mamba"],)" +
           fields;
  };
  EXPECT_EQ(Parsed(with(R"("mamba_n_heads":8,"mamba_d_head":"auto")")).delta_net.value_dim, 16);
  ExpectError(with(R"("mamba_n_heads":8,"mamba_d_head":32)"), ErrorCode::kCorrupt, "mamba_n_heads");
  ExpectError(with(R"("mamba_n_heads":7)"), ErrorCode::kCorrupt, "mamba_n_heads");
  ExpectError(with(R"("mamba_n_heads":8,"mamba_n_groups":3)"), ErrorCode::kCorrupt,
              "mamba_n_groups");
  ExpectError(with(R"("mamba_n_heads":8,"mamba_d_conv":1)"), ErrorCode::kCorrupt, "mamba_d_conv");
  ExpectError(with(R"("mamba_n_heads":8,"mamba_d_state":2000)"), ErrorCode::kCorrupt,
              "mamba_d_state");
}

GgufTestFile Tiny(const std::string& architecture, const std::vector<int32_t>& heads) {
  return TinyGguf(architecture).I32s(architecture + ".attention.head_count_kv", heads);
}

void ExpectFileError(const GgufTestFile& content, ErrorCode code, const std::string& part) {
  ExpectConfigError(ReadGguf(content), code, part);
}

TEST(HybridConfig, Lfm2Files) {
  const auto file = [](const std::vector<int32_t>& heads) {
    return Tiny("lfm2", heads).U32("lfm2.shortconv.l_cache", 3);
  };
  const auto model = ReadGguf(file({0, 2}));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(Kinds(*model), "RF");
  EXPECT_EQ(model->intermediate_size, 48);
  // Without attention nobody asks how many heads of keys there are.
  const auto none = ReadGguf(file({0, 0}));
  ASSERT_TRUE(none.ok()) << none.error().message;
  EXPECT_EQ(Kinds(*none), "RR");
  ExpectFileError(Tiny("lfm2", {0, 2}), ErrorCode::kCorrupt, "lfm2.shortconv.l_cache");
  ExpectFileError(file({0, 2, 2}), ErrorCode::kCorrupt, "has 3 elements for 2 layers");
  ExpectFileError(file({1, 2}), ErrorCode::kUnsupported, "head_count_kv' differs");
  ExpectFileError(file({0, -2}), ErrorCode::kCorrupt, "has a negative number");
  ExpectFileError(file({0, 2}).U32("lfm2.attention.sliding_window", 16), ErrorCode::kUnsupported,
                  "lfm2.attention.sliding_window");
  const auto experts = Tiny("lfm2moe", {0, 2})
                           .U32("lfm2moe.shortconv.l_cache", 3)
                           .U32("lfm2moe.expert_count", 4)
                           .U32("lfm2moe.expert_used_count", 2)
                           .U32("lfm2moe.expert_feed_forward_length", 16)
                           .U32("lfm2moe.leading_dense_block_count", 1);
  const auto moe = ReadGguf(experts);
  ASSERT_TRUE(moe.ok()) << moe.error().message;
  EXPECT_FALSE(moe->experts.has_choice_biases);  // no tensor has some
  EXPECT_EQ(moe->expert_layers, (std::vector<bool>{false, true}));
  ExpectFileError(GgufTestFile(experts).U32("lfm2moe.expert_gating_func", 1),
                  ErrorCode::kUnsupported, "expert_gating_func' is 1");
}

TEST(HybridConfig, GraniteFiles) {
  const auto file = [](int64_t inner) {
    return Tiny("granitehybrid", {0, 1})
        .F32("granitehybrid.logit_scale", 8)
        .U32("granitehybrid.ssm.conv_kernel", 4)
        .U32("granitehybrid.ssm.state_size", 16)
        .U32("granitehybrid.ssm.group_count", 1)
        .U32("granitehybrid.ssm.time_step_rank", 4)
        .U32("granitehybrid.ssm.inner_size", static_cast<uint32_t>(inner));
  };
  const auto model = ReadGguf(file(64));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(Kinds(*model), "RF");
  EXPECT_EQ(model->delta_net.value_dim, 16);
  EXPECT_FALSE(model->delta_net.has_conv_bias);
  EXPECT_FALSE(model->is_still(1));
  EXPECT_EQ(model->intermediate_size, 48);
  ExpectFileError(file(65), ErrorCode::kUnsupported, "ssm.inner_size");
  ExpectFileError(file(0), ErrorCode::kCorrupt, "mamba_expand");
  ExpectFileError(Tiny("granitehybrid", {0, 1}), ErrorCode::kCorrupt, "ssm.conv_kernel");
  // Without positions only the hybrid class is known, which has a shared MLP.
  const auto experts = Tiny("granitemoe", {1, 1})
                           .F32("granitemoe.logit_scale", 8)
                           .U32("granitemoe.expert_count", 4)
                           .U32("granitemoe.expert_used_count", 2);
  ASSERT_TRUE(ReadGguf(experts).ok());
  const GgufTestFile still = GgufTestFile(experts).Bool("granitemoe.rope.scaling.finetuned", false);
  ExpectFileError(still, ErrorCode::kUnsupported, "rope.scaling.finetuned");
  const auto shared =
      ReadGguf(GgufTestFile(still).U32("granitemoe.expert_shared_feed_forward_length", 24));
  ASSERT_TRUE(shared.ok()) << shared.error().message;
  EXPECT_TRUE(shared->is_still(0));
  EXPECT_EQ(shared->experts.shared_intermediate_size, 24);
  EXPECT_EQ(shared->experts.intermediate_size, 48);
}

}  // namespace
}  // namespace kvasir
