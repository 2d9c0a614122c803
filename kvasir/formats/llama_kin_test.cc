// Configs of models much like Llama: Ministral 3, SmolLM3, Granite, OLMo 2 and 3, Phi-3 and Phi-4,
// as published (but for sizes), and what their GGUF files may lack or say too much.
#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kvasir/formats/config_test_util.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {
namespace {

constexpr char kSizes[] =
    R"("hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,
       "num_key_value_heads":2,"vocab_size":256)";

std::string WithSizes(const std::string& fields) { return std::string(kSizes) + "," + fields; }

ModelConfig Parsed(const std::string& fields) { return ParsedFields(WithSizes(fields)); }

void ExpectError(const std::string& fields, ErrorCode code, const std::string& part) {
  ExpectFieldsError(WithSizes(fields), code, part);
}

// Ministral-3-3B-Instruct, a wrapper whose text model says itself what it is.
TEST(LlamaKin, Ministral3) {
  const std::string text = R"("text_config":{"model_type":"ministral3","head_dim":24,)" +
                           std::string(kSizes) + R"(,"rms_norm_eps":1e-05,"sliding_window":null,
      "tie_word_embeddings":true,"max_position_embeddings":262144,"rope_parameters":{
      "beta_fast":32.0,"beta_slow":1.0,"factor":16.0,"llama_4_scaling_beta":0.1,"mscale":1.0,
      "mscale_all_dim":1.0,"original_max_position_embeddings":16384,"rope_theta":1000000.0,
      "rope_type":"yarn","type":"yarn"}})";
  const auto model = ModelConfig::Parse(*Json::Parse(
      R"({"architectures":["Mistral3ForConditionalGeneration"],"model_type":"mistral3",)" + text +
      "}"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->family, ModelFamily::kLlama);
  EXPECT_EQ(model->head_dim, 24);
  EXPECT_EQ(Kinds(*model), "FFFF");
  EXPECT_EQ(model->max_position_embeddings, 262144);
  EXPECT_EQ(model->rope_full.type, RopeType::kYarn);
  EXPECT_EQ(model->rope_full.attention_factor, 1.0);
  EXPECT_EQ(model->rope_full.query_scale_beta, 0.1);
  EXPECT_EQ(model->rope_full.original_max_position_embeddings, 16384);
  // Its class has a yarn of its own where a file says nothing, and no window.
  const ModelConfig bare = Parsed(R"("architectures":["Ministral3ForCausalLM"])");
  EXPECT_EQ(bare.rope_full.type, RopeType::kYarn);
  EXPECT_EQ(bare.rope_full.theta, 1e6);
  EXPECT_EQ(bare.rope_full.query_scale_beta, 0.1);
  EXPECT_EQ(bare.rms_norm_eps, 1e-5);
  EXPECT_EQ(Kinds(bare), "FFFF");
}

TEST(LlamaKin, SmolLm3) {
  const std::string published = R"("architectures":["SmolLM3ForCausalLM"],"model_type":"smollm3",
      "layer_types":["full_attention","full_attention","full_attention","full_attention"],
      "max_window_layers":28,"mlp_bias":false,"attention_bias":false,"rope_scaling":null,
      "rope_theta":5000000.0,"sliding_window":null,"use_sliding_window":false,)";
  const ModelConfig model =
      Parsed(published + R"("no_rope_layer_interval":4,"no_rope_layers":[1,1,1,0,1,1])");
  EXPECT_EQ(model.rope_full.theta, 5e6);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_EQ(model.still_layers, (std::vector<bool>{false, false, false, true}));
  EXPECT_EQ(Parsed(published + R"("no_rope_layer_interval":2)").still_layers,
            (std::vector<bool>{false, true, false, true}));
  EXPECT_TRUE(Parsed(published + R"("no_rope_layers":null)").is_still(3));
  ExpectError(published + R"("no_rope_layers":[1,1,0])", ErrorCode::kCorrupt, "no_rope_layers");
  ExpectError(published + R"("no_rope_layers":[1,1,1,2])", ErrorCode::kCorrupt, "no_rope_layers");
  ExpectError(published + R"("no_rope_layers":"1110")", ErrorCode::kCorrupt, "no_rope_layers");
  ExpectError(R"("model_type":"smollm3","use_sliding_window":true,"sliding_window":8)",
              ErrorCode::kUnsupported, "use_sliding_window");
}

TEST(LlamaKin, Granite) {
  const std::string factors = R"("attention_multiplier":0.0078125,"embedding_multiplier":12.0,
      "residual_multiplier":0.22,"logits_scaling":16.0,"rope_scaling":null,
      "rope_theta":10000000.0,"tie_word_embeddings":true)";
  const ModelConfig model = Parsed(R"("architectures":["GraniteForCausalLM"],)" + factors);
  EXPECT_EQ(model.embedding_multiplier, 12.0);
  EXPECT_EQ(model.residual_multiplier, 0.22);
  EXPECT_EQ(model.logits_scaling, 16.0);
  EXPECT_EQ(1 / std::sqrt(model.query_pre_attn_scalar), 0.0078125);
  EXPECT_FALSE(model.has_shared_mlp);
  ExpectError(R"("model_type":"granite","logits_scaling":0.0)", ErrorCode::kCorrupt,
              "logits_scaling");
  // Scores are not scaled by the size of heads where a file says nothing.
  EXPECT_EQ(Parsed(R"("model_type":"granite")").query_pre_attn_scalar, 1.0);

  // Granite 4.0 Micro: its class is that of hybrid models with experts.
  const std::string dense = R"("architectures":["GraniteMoeHybridForCausalLM"],
      "shared_intermediate_size":80,)" +
                            factors;
  const std::string attention =
      R"(,"layer_types":["attention","attention","attention","attention"])";
  const std::string rope = R"(,"position_embedding_type":"rope")";
  const std::string no_experts = R"(,"num_local_experts":0,"num_experts_per_tok":0)";
  const ModelConfig micro = Parsed(dense + attention + rope + no_experts);
  EXPECT_EQ(micro.intermediate_size, 80);
  EXPECT_TRUE(micro.has_shared_mlp);
  EXPECT_FALSE(micro.is_still(0));
  EXPECT_EQ(Kinds(micro), "FFFF");
  EXPECT_TRUE(
      Parsed(dense + attention + no_experts + R"(,"position_embedding_type":"nope")").is_still(0));
  ExpectError(dense + rope + no_experts, ErrorCode::kCorrupt, "layer_types");
}

TEST(LlamaKin, Olmo) {
  const ModelConfig second =
      Parsed(R"("architectures":["Olmo2ForCausalLM"],"rope_theta":500000,"sliding_window":8)");
  EXPECT_EQ(second.family, ModelFamily::kOlmo);
  EXPECT_EQ(Kinds(second), "FFFF");  // its class has no window
  EXPECT_EQ(second.rms_norm_eps, 1e-5);
  EXPECT_FALSE(second.traits().has_pre_norms);
  // OLMo 3 before rope_parameters: what is scaled is full layers.
  const std::string third = R"("architectures":["Olmo3ForCausalLM"],"sliding_window":8,
      "max_position_embeddings":65536,"rope_theta":500000)";
  const ModelConfig model = Parsed(third + R"(,"rope_scaling":{"rope_type":"yarn","factor":8.0,
      "attention_factor":1.2079441541679836,"beta_fast":32,"beta_slow":1,
      "original_max_position_embeddings":8192})");
  EXPECT_EQ(Kinds(model), "SSSF");
  EXPECT_EQ(model.rope_full.type, RopeType::kYarn);
  EXPECT_EQ(model.rope_full.attention_factor, 1.2079441541679836);
  EXPECT_EQ(model.rope_sliding.type, RopeType::kDefault);
  EXPECT_EQ(model.rope_sliding.theta, 500000);
  EXPECT_EQ(Kinds(Parsed(third + R"(,"layer_types":["full_attention","sliding_attention",
      "full_attention","sliding_attention"])")),
            "FSFS");
  // Norms behind attention and MLP, and of queries and keys over all heads.
  const ParameterCounts counts = second.CountParameters();
  EXPECT_EQ(counts.norms, 64 + 4 * (2 * 64 + 64 + 32));
}

TEST(LlamaKin, Phi) {
  // Phi-4; Phi-3-mini-4k, which slides everywhere.
  const ModelConfig phi4 = Parsed(R"("architectures":["Phi3ForCausalLM"],"attention_bias":false,
      "max_position_embeddings":16384,"original_max_position_embeddings":16384,
      "rope_scaling":null,"rope_theta":250000,"sliding_window":null)");
  EXPECT_EQ(phi4.family, ModelFamily::kPhi3);
  EXPECT_EQ(Kinds(phi4), "FFFF");
  EXPECT_EQ(phi4.rope_full.type, RopeType::kDefault);
  EXPECT_EQ(Kinds(Parsed(R"("model_type":"phi3","max_position_embeddings":4096,
                            "sliding_window":2047)")),
            "SSSS");
  // Phi-4-mini: a window as long as the context and more; heads of 16, of which 12 turn.
  const auto mini = [](const std::string& changes) {
    return R"("architectures":["Phi3ForCausalLM"],"original_max_position_embeddings":4096,
      "partial_rotary_factor":0.75,"rope_theta":10000.0,"sliding_window":262144,)" +
           changes;
  };
  const std::string lists = R"("rope_scaling":{"type":"longrope","long_factor":[1,2,3,4,5,6],
      "short_factor":[1,1,1,1,1,1.5]})";
  const ModelConfig model = Parsed(mini(R"("max_position_embeddings":131072,)" + lists));
  EXPECT_EQ(Kinds(model), "FFFF");
  EXPECT_EQ(model.rope_full.type, RopeType::kLong);
  EXPECT_EQ(RotatedElements(model.rope_full, model.head_dim), 12);
  EXPECT_EQ(model.rope_full.frequency_divisors, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_NEAR(model.rope_full.attention_factor, std::sqrt(1 + std::log(32.0) / std::log(4096.0)),
              1e-12);
  // A copy whose context is cut down to the short one.
  const ModelConfig cut = Parsed(mini(R"("max_position_embeddings":4096,)" + lists));
  EXPECT_EQ(cut.rope_full.frequency_divisors, (std::vector<float>{1, 1, 1, 1, 1, 1.5}));
  EXPECT_EQ(cut.rope_full.other_divisors, (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(cut.rope_full.attention_factor, 1.0);
  for (const char* const list : {"[1,2,3]", "[1,2,3,4,5,6,7]"}) {
    ExpectError(mini(R"("max_position_embeddings":131072,"rope_scaling":{"type":"longrope",
                 "short_factor":[1,1,1,1,1,1],"long_factor":)" +
                     std::string(list) + "}"),
                ErrorCode::kCorrupt, "long_factor");
    ExpectError(mini(R"("max_position_embeddings":131072,"rope_scaling":{"type":"longrope",
                 "long_factor":[1,1,1,1,1,1],"short_factor":)" +
                     std::string(list) + "}"),
                ErrorCode::kCorrupt, "short_factor");
  }
  // Its class knows what Phi-3 was trained with.
  EXPECT_TRUE(Parsed(R"("model_type":"phi3","max_position_embeddings":131072,)"
                     R"("partial_rotary_factor":0.75,)" +
                     lists)
                  .rope_full.takes_long);
  // Heads of full layers have pairs of their own number.
  const auto gemma = ModelConfig::Parse(*Json::Parse(
      R"({"model_type":"gemma4_text","head_dim":2,"global_head_dim":64,"rope_parameters":{
          "full_attention":{"rope_type":"longrope","short_factor":[1],"long_factor":[1]}}})"));
  ASSERT_FALSE(gemma.ok());
  EXPECT_NE(gemma.error().message.find("for 64 elements"), std::string::npos)
      << gemma.error().message;
}

// A file of one architecture, whose metadata can be added to.
std::string ErrorOf(const GgufTestFile& content) {
  const auto config = ReadGguf(content);
  EXPECT_FALSE(config.ok());
  return config.ok() ? "" : config.error().message;
}

TEST(LlamaKin, GraniteFilesHaveDefaultsOfTheirReaders) {
  EXPECT_NE(ErrorOf(TinyGguf("granite")).find("granite.logit_scale"), std::string::npos);
  const auto config = ReadGguf(TinyGguf("granite").F32("granite.logit_scale", 8));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->logits_scaling, 8);
  EXPECT_EQ(config->embedding_multiplier, 1);
  EXPECT_EQ(config->residual_multiplier, 1);
  EXPECT_NEAR(config->query_pre_attn_scalar, 16, 1e-9);
}

TEST(LlamaKin, Mistral3FilesWithoutScalingHaveNone) {
  const auto plain = ReadGguf(TinyGguf("mistral3").F32("mistral3.rope.freq_base", 1e9f));
  ASSERT_TRUE(plain.ok()) << plain.error().message;
  EXPECT_EQ(plain->rope_full.type, RopeType::kDefault);
  EXPECT_EQ(plain->rope_full.theta, 1e9);
  EXPECT_EQ(plain->rope_full.query_scale_beta, 0);
  EXPECT_EQ(plain->architecture, "MistralForCausalLM");
  EXPECT_EQ(Kinds(*plain), "FF");
}

// Ollama's names of the same.
TEST(LlamaKin, Mistral3FilesOfOllama) {
  const auto file = [](const char* beta, const char* all, const char* fast) {
    return TinyGguf("mistral3")
        .Text("mistral3.rope.scaling.type", "yarn")
        .F32("mistral3.rope.scaling.factor", 16)
        .U32("mistral3.rope.scaling.original_context_length", 20)
        .F32(std::string("mistral3.") + beta, 0.1f)
        .F32(std::string("mistral3.") + all, 1)
        .F32(std::string("mistral3.rope.scaling.") + fast, 24);
  };
  const auto ours = ReadGguf(
      file("attention.temperature_scale", "rope.scaling.yarn_log_multiplier", "yarn_beta_fast"));
  const auto ollamas =
      ReadGguf(file("rope.scaling_beta", "rope.scaling.mscale_all_dim", "beta_fast"));
  ASSERT_TRUE(ours.ok()) << ours.error().message;
  ASSERT_TRUE(ollamas.ok()) << ollamas.error().message;
  EXPECT_EQ(ours->rope_full.query_scale_beta, 0.1);
  EXPECT_EQ(ours->rope_full.attention_factor, 1.0);
  EXPECT_EQ(ours->rope_full.beta_fast, 24);
  EXPECT_TRUE(ours->rope_full == ollamas->rope_full);
}

TEST(LlamaKin, GraniteFilesMaySayThatNothingTurns) {
  const auto config = ReadGguf(TinyGguf("granite")
                                   .F32("granite.logit_scale", 8)
                                   .Bool("granite.rope.scaling.finetuned", false));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_TRUE(config->is_still(0) && config->is_still(1));
  EXPECT_EQ(config->intermediate_size, 48);
  EXPECT_EQ(config->logits_scaling, 8);
}

TEST(LlamaKin, OlmoFilesWithAWindowAreOfTheThird) {
  const auto config = ReadGguf(TinyGguf("olmo2").U32("olmo2.attention.sliding_window", 16));
  ASSERT_TRUE(config.ok()) << config.error().message;
  EXPECT_EQ(config->architecture, "Olmo3ForCausalLM");
  EXPECT_EQ(config->sliding_window, 16);
  EXPECT_EQ(ReadGguf(TinyGguf("olmo2"))->architecture, "Olmo2ForCausalLM");
  const auto ollamas = ReadGguf(TinyGguf("olmo3")
                                    .U32("olmo3.attention.sliding_window", 16)
                                    .Text("olmo3.rope.scaling.type", "yarn")
                                    .F32("olmo3.rope.scaling.factor", 8)
                                    .F32("olmo3.rope.scaling.attn_factor", 1.25f));
  ASSERT_TRUE(ollamas.ok()) << ollamas.error().message;
  EXPECT_EQ(ollamas->rope_full.attention_factor, 1.25);
  EXPECT_NE(ErrorOf(TinyGguf("olmo2")
                        .U32("olmo2.attention.sliding_window", 16)
                        .F32("olmo2.rope.freq_base_swa", 5e5f))
                .find("rope.freq_base_swa"),
            std::string::npos);
}

TEST(LlamaKin, PhiFilesNeedBothListsOfDivisors) {
  GgufTestFile file = TinyGguf("phi3");
  file.U32("phi3.rope.dimension_count", 12);
  ASSERT_TRUE(ReadGguf(file).ok());
  EXPECT_EQ(ReadGguf(file)->rope_full.rotated_fraction, 0.75);
  file.Tensor({"rope_factors_long.weight", {6}, 0, 1024});
  EXPECT_NE(ErrorOf(file).find("'rope_factors_short.weight' is missing"), std::string::npos);
  file.Tensor({"rope_factors_short.weight", {6}, 0, 1056});
  EXPECT_NE(ErrorOf(file).find("original_context_length"), std::string::npos);
  file.U32("phi3.rope.scaling.original_context_length", 16);
  EXPECT_NE(ErrorOf(file).find("long_factor"), std::string::npos);  // zeros
  EXPECT_NE(ErrorOf(TinyGguf("phi3").U32("phi3.rope.dimension_count", 40)).find("40 of 16"),
            std::string::npos);
}

}  // namespace
}  // namespace kvasir
