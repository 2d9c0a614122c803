// config.json of every supported family and generation, and every way to refuse one.
// Deliberately in text: each test shows the file it is about.
#include "kvasir/formats/model_config.h"

#include <gtest/gtest.h>

#include <string>

#include "kvasir/formats/config_test_util.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

constexpr char kLlama[] = R"({
  "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048,
  "intermediate_size": 8192, "num_hidden_layers": 16, "num_attention_heads": 32,
  "num_key_value_heads": 8, "head_dim": 64, "vocab_size": 128256, "rms_norm_eps": 1e-05,
  "max_position_embeddings": 131072, "rope_theta": 500000.0, "tie_word_embeddings": true,
  "rope_scaling": {"factor": 32.0, "high_freq_factor": 4.0, "low_freq_factor": 1.0,
                   "original_max_position_embeddings": 8192, "rope_type": "llama3"},
  "bos_token_id": 128000, "eos_token_id": [128001, 128008, 128009], "torch_dtype": "bfloat16",
  "hidden_act": "silu", "attention_bias": false, "mlp_bias": false})";

constexpr char kSmall[] =
    R"({"hidden_size":64,"intermediate_size":96,"num_hidden_layers":4,"num_attention_heads":4,
        "num_key_value_heads":2,"vocab_size":256})";

// The base object with members replaced or added.
Result<ModelConfig> ParseWith(const std::string& base, const std::string& changes) {
  Json config = *Json::Parse(base);
  const Json parsed = *Json::Parse(changes);
  for (const auto& [key, value] : parsed.as_object()) config.Set(key, value);
  return ModelConfig::Parse(config);
}

ModelConfig Small(const std::string& changes) {
  auto model = ParseWith(kSmall, changes);
  EXPECT_TRUE(model.ok()) << model.error().message;
  return model.ok() ? *std::move(model) : ModelConfig();
}

void ExpectError(const std::string& changes, ErrorCode code, const std::string& part) {
  SCOPED_TRACE(changes);
  ExpectConfigError(ParseWith(kLlama, changes), code, part);
}

TEST(ModelConfig, Llama) {
  const auto model = ParseWith(kLlama, "{}");
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->family, ModelFamily::kLlama);
  EXPECT_EQ(model->architecture, "LlamaForCausalLM");
  EXPECT_EQ(model->hidden_size, 2048);
  EXPECT_EQ(model->num_key_value_heads, 8);
  EXPECT_EQ(model->head_dim, 64);
  EXPECT_EQ(model->query_pre_attn_scalar, 64.0);
  EXPECT_EQ(model->rms_norm_eps, 1e-5);
  EXPECT_EQ(model->activation, Activation::kSilu);
  EXPECT_TRUE(model->tie_word_embeddings);
  EXPECT_FALSE(model->qkv_bias || model->output_bias || model->mlp_bias ||
               model->traits().has_qk_norm);
  EXPECT_EQ(model->rope_full.type, RopeType::kLlama3);
  EXPECT_EQ(model->rope_full.theta, 500000.0);
  EXPECT_EQ(model->eos_token_ids, (std::vector<Token>{128001, 128008, 128009}));
  EXPECT_EQ(model->bos_token_id, 128000);
  EXPECT_FALSE(model->pad_token_id.has_value());
  EXPECT_EQ(model->dtype, DType::kBf16);
  EXPECT_EQ(Kinds(*model), std::string(16, 'F'));
  EXPECT_EQ(model->sliding_window, 0);
  // The published count of Llama 3.2 1B.
  EXPECT_EQ(model->ParameterCount(), 1'235'814'400);
  EXPECT_EQ(model->KvElementsPerToken(), 16 * 2 * 8 * 64);
}

TEST(ModelConfig, LlamaDefaults) {
  const ModelConfig model = Small(R"({"model_type":"llama","num_key_value_heads":null})");
  EXPECT_EQ(model.num_key_value_heads, 4);
  EXPECT_EQ(model.head_dim, 16);
  EXPECT_EQ(model.rope_full.theta, 10000.0);
  EXPECT_EQ(model.max_position_embeddings, 2048);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_FALSE(model.dtype.has_value());
  EXPECT_TRUE(model.eos_token_ids.empty());
  const ModelConfig biased =
      Small(R"({"model_type":"llama","attention_bias":true,"mlp_bias":true,"dtype":"float16"})");
  EXPECT_TRUE(biased.qkv_bias && biased.output_bias && biased.mlp_bias);
  EXPECT_EQ(biased.dtype, DType::kF16);
}

TEST(ModelConfig, MistralSlidesEverywhereWhenItHasAWindow) {
  const std::string mistral = R"({"architectures":["MistralForCausalLM"],"sliding_window":)";
  const ModelConfig sliding = Small(mistral + "128}");
  EXPECT_EQ(sliding.family, ModelFamily::kLlama);
  EXPECT_EQ(Kinds(sliding), "SSSS");
  EXPECT_EQ(sliding.sliding_window, 128);
  EXPECT_EQ(Kinds(Small(mistral + "null}")), "FFFF");
}

TEST(ModelConfig, Qwen2) {
  const ModelConfig model = Small(
      R"({"architectures":["Qwen2ForCausalLM"],"sliding_window":32,"max_window_layers":2,
          "use_sliding_window":false,"rope_theta":1000000.0})");
  EXPECT_EQ(model.family, ModelFamily::kQwen2);
  EXPECT_TRUE(model.qkv_bias);
  EXPECT_FALSE(model.output_bias);
  EXPECT_EQ(Kinds(model), "FFFF");
  EXPECT_EQ(model.sliding_window, 0);
  const ModelConfig sliding = Small(
      R"({"model_type":"qwen2","sliding_window":32,"max_window_layers":2,
          "use_sliding_window":true})");
  EXPECT_EQ(Kinds(sliding), "FFSS");
  EXPECT_EQ(sliding.sliding_window, 32);
}

TEST(ModelConfig, Qwen3HasItsOwnHeadDim) {
  const ModelConfig model = Small(R"({"architectures":["Qwen3ForCausalLM"]})");
  EXPECT_EQ(model.head_dim, 128);
  EXPECT_EQ(model.query_pre_attn_scalar, 128.0);
  EXPECT_TRUE(model.traits().has_qk_norm);
  EXPECT_FALSE(model.qkv_bias);
}

TEST(ModelConfig, PublishedQwenSizes) {
  // Qwen3-0.6B: 0.44B without the embedding, 596,049,920 with it.
  const ModelConfig qwen3 = Small(
      R"({"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,
          "num_attention_heads":16,"num_key_value_heads":8,"vocab_size":151936,
          "tie_word_embeddings":true})");
  EXPECT_EQ(qwen3.ParameterCount(), 596'049'920);
  // Qwen2.5-0.5B.
  const ModelConfig qwen2 = Small(
      R"({"model_type":"qwen2","hidden_size":896,"intermediate_size":4864,"num_hidden_layers":24,
          "num_attention_heads":14,"num_key_value_heads":2,"vocab_size":151936,
          "tie_word_embeddings":true})");
  EXPECT_EQ(qwen2.ParameterCount(), 494'032'768);
}

TEST(ModelConfig, YarnReachesAsFarAsItsFactorSays) {
  const auto positions = [](const std::string& rope) {
    return Small(R"({"model_type":"qwen3","max_position_embeddings":40960,"rope_scaling":)" + rope +
                 "}")
        .max_position_embeddings;
  };
  EXPECT_EQ(positions(R"({"rope_type":"yarn","factor":4.0,
                          "original_max_position_embeddings":32768})"),
            131072);
  EXPECT_EQ(positions(R"({"rope_type":"yarn","factor":1.1,
                          "original_max_position_embeddings":32768})"),
            40960);
  EXPECT_EQ(positions(R"({"rope_type":"yarn","factor":2.0})"), 81920);
  EXPECT_EQ(positions(R"({"rope_type":"linear","factor":4.0})"), 40960);
  EXPECT_EQ(positions(R"({"rope_type":"yarn","factor":1e6})"), int64_t{1} << 30);
}

TEST(ModelConfig, GptOss) {
  const ModelConfig model = Small(R"({"model_type":"gpt_oss","num_hidden_layers":3,
      "hidden_size":64,"num_attention_heads":4,"intermediate_size":32,"num_local_experts":6,
      "experts_per_token":2,"sliding_window":16})");
  EXPECT_EQ(model.family, ModelFamily::kGptOss);
  EXPECT_EQ(Kinds(model), "SFS");
  EXPECT_EQ(model.experts.count, 6);
  EXPECT_EQ(model.experts.per_token, 2);
  EXPECT_EQ(model.experts.intermediate_size, 32);
  EXPECT_TRUE(model.qkv_bias && model.output_bias);
  EXPECT_FALSE(model.tie_word_embeddings);
  EXPECT_EQ(model.rms_norm_eps, 1e-5);
  // What its class says where a file does not.
  EXPECT_EQ(model.rope_full.type, RopeType::kYarn);
  EXPECT_EQ(model.rope_full.factor, 32);
  EXPECT_EQ(model.rope_full.theta, 150000);
  EXPECT_FALSE(model.rope_full.truncates);
  EXPECT_EQ(model.rope_sliding, model.rope_full);
  for (const char* other : {R"("swiglu_limit":10.0)", R"("swiglu_alpha":1.5)"}) {
    const auto refused =
        ModelConfig::Parse(*Json::Parse(std::string(R"({"model_type":"gpt_oss",)") + other + "}"));
    ASSERT_FALSE(refused.ok()) << other;
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find(std::string(other).substr(1, 12)), std::string::npos)
        << refused.error().message;
  }
}

TEST(ModelConfig, Gemma3FromItsPattern) {
  const ModelConfig model = Small(
      R"({"model_type":"gemma3_text","num_hidden_layers":5,"sliding_window_pattern":3,
          "sliding_window":16,"rope_local_base_freq":10000,"rope_theta":1000000,"head_dim":24,
          "query_pre_attn_scalar":24,"rope_scaling":{"rope_type":"linear","factor":8.0},
          "hidden_activation":"gelu_pytorch_tanh","attn_logit_softcapping":null})");
  EXPECT_EQ(model.family, ModelFamily::kGemma3);
  EXPECT_EQ(Kinds(model), "SSFSS");
  EXPECT_EQ(model.activation, Activation::kGeluTanh);
  EXPECT_TRUE(model.tie_word_embeddings);
  EXPECT_EQ(model.query_pre_attn_scalar, 24.0);
  EXPECT_EQ(model.attn_logit_softcapping, 0.0);
  EXPECT_EQ(model.rope(LayerKind::kFull).theta, 1e6);
  EXPECT_EQ(model.rope(LayerKind::kFull).factor, 8.0);
  EXPECT_EQ(model.rope(LayerKind::kSliding).theta, 1e4);
  EXPECT_EQ(model.rope(LayerKind::kSliding).type, RopeType::kDefault);
}

// Gemma 3 4B as published: most keys are left to the class defaults, ids are in the wrapper.
TEST(ModelConfig, Gemma3NestedInAWrapper) {
  const auto model = ModelConfig::Parse(*Json::Parse(
      R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3",
          "eos_token_id":[1,106],"torch_dtype":"bfloat16","vision_config":{"hidden_size":1152},
          "text_config":{"hidden_size":2560,"intermediate_size":10240,"model_type":"gemma3_text",
            "num_hidden_layers":34,"rope_scaling":{"factor":8.0,"rope_type":"linear"},
            "sliding_window":1024}})"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->hidden_size, 2560);
  EXPECT_EQ(model->vocab_size, 262208);
  EXPECT_EQ(model->num_attention_heads, 8);
  EXPECT_EQ(model->num_key_value_heads, 4);
  EXPECT_EQ(model->head_dim, 256);
  EXPECT_EQ(model->eos_token_ids, (std::vector<Token>{1, 106}));
  EXPECT_EQ(model->dtype, DType::kBf16);
  EXPECT_EQ(Kinds(*model).substr(0, 7), "SSSSSFS");
  EXPECT_EQ(model->rope_full.theta, 1e6);
  EXPECT_EQ(model->rope_sliding.theta, 1e4);
}

TEST(ModelConfig, Gemma2) {
  const ModelConfig model = Small(R"({"model_type":"gemma2","query_pre_attn_scalar":24})");
  EXPECT_EQ(model.family, ModelFamily::kGemma2);
  EXPECT_EQ(Kinds(model), "SFSF");
  EXPECT_EQ(model.sliding_window, 4096);
  EXPECT_EQ(model.attn_logit_softcapping, 50.0);
  EXPECT_EQ(model.final_logit_softcapping, 30.0);
  EXPECT_EQ(model.query_pre_attn_scalar, 24.0);
  EXPECT_FALSE(model.traits().has_qk_norm);
  EXPECT_EQ(model.rope_sliding, model.rope_full);
  EXPECT_EQ(
      Small(R"({"model_type":"gemma2","attn_logit_softcapping":null})").attn_logit_softcapping,
      0.0);
}

TEST(ModelConfig, LayerTypesAndRopeParametersPerType) {
  const ModelConfig model = Small(
      R"({"model_type":"gemma3_text","sliding_window":16,"sliding_window_pattern":2,
          "layer_types":["full_attention","sliding_attention","full_attention","full_attention"],
          "rope_parameters":{"full_attention":{"rope_type":"linear","factor":2,"rope_theta":3e6},
                             "sliding_attention":{"rope_type":"default","rope_theta":2e4}}})");
  EXPECT_EQ(Kinds(model), "FSFF");
  EXPECT_EQ(model.rope_full.theta, 3e6);
  EXPECT_EQ(model.rope_full.factor, 2.0);
  EXPECT_EQ(model.rope_sliding.theta, 2e4);
}

TEST(ModelConfig, FlatRopeParametersWinOverOldFields) {
  const std::string yarn = R"("rope_type":"yarn","factor":4.0,
                              "original_max_position_embeddings":32768)";
  const std::string both =
      R"({"model_type":"qwen3","rope_theta":5,"rope_parameters":{"rope_theta":1e6,)" + yarn +
      R"(},"rope_scaling":)";
  for (const std::string& scaling : {std::string("null"), "{" + yarn + "}"}) {
    const ModelConfig model = Small(both + scaling + "}");
    EXPECT_EQ(model.rope_full.type, RopeType::kYarn);
    EXPECT_EQ(model.rope_full.theta, 1e6);
    EXPECT_EQ(model.rope_sliding, model.rope_full);
  }
}

// Readers disagree about which one counts.
TEST(ModelConfig, TwoScalingsThatDifferAreRefused) {
  const std::string linear = R"({"type":"linear","factor":2})";
  for (const char* parameters :
       {R"({"rope_type":"default","rope_theta":1e6})", R"({"rope_type":"linear","factor":4})",
        R"({"full_attention":{"rope_theta":1e6},"sliding_attention":{"rope_theta":1e4}})"}) {
    const auto model =
        ParseWith(kSmall, R"({"model_type":"gemma3_text","sliding_window":16,"rope_scaling":)" +
                              linear + R"(,"rope_parameters":)" + parameters + "}");
    ASSERT_FALSE(model.ok()) << parameters;
    EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(model.error().message.find("'rope_scaling' says something else"), std::string::npos);
  }
}

TEST(ModelConfig, AScalingBesideARopeThatTakesNoneIsRefused) {
  const auto model =
      ParseWith(kSmall, R"({"model_type":"gemma4_text","num_hidden_layers":6,"head_dim":16,
                  "hidden_size_per_layer_input":0,"rope_scaling":{"type":"linear","factor":2}})");
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("'rope_scaling' says something else"), std::string::npos)
      << model.error().message;
}

// transformers 5 writes the text model's default beside what it does.
TEST(ModelConfig, WhereWrapperAndTextDisagreeTheHeadDecides) {
  const auto tied = [](const char* outer, const char* inner) {
    const std::string sizes = std::string(kSmall).substr(1);
    const auto model = ModelConfig::Parse(*Json::Parse(
        R"({"architectures":["Gemma3ForConditionalGeneration"],"model_type":"gemma3",)" +
        std::string(outer) + R"("text_config":{)" + inner + sizes + "}"));
    EXPECT_TRUE(model.ok()) << model.error().message;
    EXPECT_FALSE(model->has_own_head);
    return model->tie_word_embeddings;
  };
  const char* const yes = R"("tie_word_embeddings":true,)";
  const char* const no = R"("tie_word_embeddings":false,)";
  EXPECT_TRUE(tied("", ""));
  EXPECT_TRUE(tied(yes, yes));
  EXPECT_TRUE(tied("", yes));
  EXPECT_TRUE(tied(yes, ""));
  EXPECT_FALSE(tied(no, yes));
  EXPECT_FALSE(tied(yes, no));
  EXPECT_FALSE(tied(no, ""));
}

// Mistral Small 3.1 as published, but for its sizes.
TEST(ModelConfig, Mistral3IsMistralInAWrapper) {
  const std::string text = R"("text_config":{"head_dim":32,"hidden_size":64,"intermediate_size":96,
      "max_position_embeddings":131072,"num_attention_heads":4,"num_hidden_layers":2,
      "num_key_value_heads":2,"rms_norm_eps":1e-05,"rope_theta":1000000000.0,
      "sliding_window":null,"vocab_size":256,"model_type":)";
  const std::string outer =
      R"({"architectures":["Mistral3ForConditionalGeneration"],"model_type":"mistral3",
          "torch_dtype":"bfloat16","vision_config":{"hidden_size":1024},)";
  const auto model = ModelConfig::Parse(*Json::Parse(outer + text + R"("mistral"}})"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->family, ModelFamily::kLlama);
  EXPECT_EQ(model->head_dim, 32);
  EXPECT_EQ(model->rope_full.theta, 1e9);
  EXPECT_EQ(Kinds(*model), "FF");
  EXPECT_FALSE(model->tie_word_embeddings);
  const auto other = ModelConfig::Parse(*Json::Parse(outer + text + R"("mistral4"}})"));
  ASSERT_FALSE(other.ok());
  EXPECT_NE(other.error().message.find("'mistral4'"), std::string::npos);
}

TEST(ModelConfig, QwensExpertsSlideInAllLayersOrNone) {
  const std::string experts = R"("model_type":"qwen3_moe","sliding_window":16,"max_window_layers":2,
      "layer_types":["full_attention","sliding_attention","full_attention","full_attention"],
      "head_dim":16,"moe_intermediate_size":32,"num_experts":4,"num_experts_per_tok":2)";
  EXPECT_EQ(Kinds(Small("{" + experts + "}")), "FFFF");
  EXPECT_EQ(Kinds(Small(R"({"use_sliding_window":true,)" + experts + "}")), "SSSS");
}

TEST(ModelConfig, Qwen35) {
  const ModelConfig model = Small(R"({"architectures":["Qwen3_5ForCausalLM"]})");
  EXPECT_EQ(model.family, ModelFamily::kQwen35);
  EXPECT_EQ(Kinds(model), "RRRF");
  EXPECT_EQ(model.head_dim, 256);
  EXPECT_EQ(model.query_pre_attn_scalar, 256.0);
  EXPECT_EQ(model.rope_full.type, RopeType::kDefault);
  EXPECT_EQ(model.rope_full.rotated_fraction, 0.25);
  EXPECT_EQ(RotatedElements(model.rope_full, model.head_dim), 64);
  EXPECT_TRUE(model.traits().has_qk_norm && model.traits().has_query_gates);
  EXPECT_FALSE(model.qkv_bias || model.tie_word_embeddings || model.norms_hold_offset);
  EXPECT_EQ(model.sliding_window, 0);
  EXPECT_TRUE(model.expert_layers.empty());
  EXPECT_EQ(
      model.delta_net,
      (DeltaNetConfig{
          .key_heads = 16, .value_heads = 32, .key_dim = 128, .value_dim = 128, .conv_width = 4}));
  // The one full layer's.
  EXPECT_EQ(model.KvElementsPerToken(), 2 * 2 * 256);
}

// As published, but for its sizes: in a wrapper with a tower, and with layers that draft.
TEST(ModelConfig, Qwen35InAWrapper) {
  const std::string text = std::string(kSmall).substr(1);
  const auto model = ModelConfig::Parse(*Json::Parse(
      R"({"architectures":["Qwen3_5ForConditionalGeneration"],"model_type":"qwen3_5",
          "tie_word_embeddings":true,"vision_config":{"hidden_size":1024},
          "text_config":{"model_type":"qwen3_5_text","attn_output_gate":true,"eos_token_id":248044,
            "tie_word_embeddings":true,"mtp_num_hidden_layers":1,"head_dim":32,
            "mamba_ssm_dtype":"float32","rope_parameters":{"mrope_interleaved":true,
              "mrope_section":[11,11,10],"partial_rotary_factor":0.5,"rope_theta":10000000,
              "rope_type":"default"},)" +
      text + "}"));
  ASSERT_TRUE(model.ok()) << model.error().message;
  EXPECT_EQ(model->family, ModelFamily::kQwen35);
  EXPECT_EQ(Kinds(*model), "RRRF");
  EXPECT_EQ(model->rope_full.theta, 1e7);
  EXPECT_EQ(RotatedElements(model->rope_full, model->head_dim), 16);
  EXPECT_TRUE(model->tie_word_embeddings);
  EXPECT_EQ(model->eos_token_ids, (std::vector<Token>{248044}));
  EXPECT_EQ(Small(R"({"architectures":["Qwen3_5MoeForConditionalGeneration"],"head_dim":32})")
                .experts.count,
            256);
}

TEST(ModelConfig, Qwen35TurnsTheFirstElementsOfAHead) {
  const auto rotated = [](const std::string& fields) {
    const ModelConfig model = Small(R"({"model_type":"qwen3_next","head_dim":24,)" + fields + "}");
    return RotatedElements(model.rope_full, model.head_dim);
  };
  EXPECT_EQ(rotated(R"("rope_theta":1e7)"), 6);
  EXPECT_EQ(rotated(R"("partial_rotary_factor":0.5,"rope_scaling":null)"), 12);
  EXPECT_EQ(rotated(R"("partial_rotary_factor":0.5,"rope_parameters":{"rope_type":"default"})"),
            12);
  EXPECT_EQ(rotated(R"("rope_parameters":{"rope_type":"default","partial_rotary_factor":1.0})"),
            24);
  EXPECT_EQ(rotated(R"("partial_rotary_factor":0.5,"rope_scaling":{"type":"yarn","factor":4})"),
            12);
  for (const char* odd : {"0.05", "0.21", "0.0"}) {
    const auto model = ParseWith(kSmall, R"({"model_type":"qwen3_5_text","head_dim":24,
                                             "partial_rotary_factor":)" +
                                             std::string(odd) + "}");
    ASSERT_FALSE(model.ok()) << odd;
    EXPECT_EQ(model.error().code, ErrorCode::kCorrupt);
    EXPECT_NE(model.error().message.find("'partial_rotary_factor' leaves "), std::string::npos)
        << model.error().message;
  }
}

// In whatever way it is said.
TEST(ModelConfig, OtherFamiliesTurnWholeHeads) {
  const std::string half = R"("rope_type":"default","partial_rotary_factor":0.5)";
  const std::string whole = R"("rope_type":"default")";
  const std::vector<std::string> said = {
      R"("model_type":"llama","partial_rotary_factor":0.5)",
      R"("model_type":"gemma4_text","num_hidden_layers":6,"partial_rotary_factor":0.5)",
      R"("model_type":"qwen3","rope_parameters":{)" + half + "}",
      R"("model_type":"qwen3","rope_scaling":{"factor":2,"type":"linear",
            "partial_rotary_factor":0.5})",
      R"("model_type":"gemma3_text","rope_parameters":{)" + half + "}",
      R"("model_type":"gemma3_text","rope_parameters":{"full_attention":{)" + half +
          R"(},"sliding_attention":{)" + whole + "}}",
      R"("model_type":"gemma3_text","rope_parameters":{"full_attention":{)" + whole +
          R"(},"sliding_attention":{)" + half + "}}"};
  for (const std::string& fields : said) {
    const auto model = ParseWith(kSmall, "{" + fields + "}");
    ASSERT_FALSE(model.ok()) << fields;
    EXPECT_EQ(model.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(model.error().message.find("partial_rotary_factor"), std::string::npos)
        << model.error().message;
  }
}

TEST(ModelConfig, UnknownArchitecturesListTheKnown) {
  ExpectError(R"({"architectures":["GPT2LMHeadModel"]})", ErrorCode::kUnsupported,
              "'GPT2LMHeadModel' is not supported; supported are LlamaForCausalLM, ");
  ExpectError(R"({"architectures":[],"model_type":"gpt2"})", ErrorCode::kUnsupported,
              "'gpt2' is not supported; supported are llama, ");
  ExpectError(R"({"architectures":null,"model_type":null})", ErrorCode::kCorrupt, "model_type");
  ExpectError(R"({"architectures":[3]})", ErrorCode::kCorrupt, "architectures");
}

TEST(ModelConfig, UnsupportedFeaturesAreNamed) {
  ExpectError(R"({"rope_scaling":{"rope_type":"dynamic","factor":2}})", ErrorCode::kUnsupported,
              "rope_scaling");
  ExpectError(R"({"partial_rotary_factor":0.5})", ErrorCode::kUnsupported, "partial_rotary");
  ExpectError(R"({"quantization":{"bits":7,"group_size":64}})", ErrorCode::kUnsupported,
              "'quantization'");
  ExpectError(R"({"quantization_config":{"quant_method":"bitsandbytes"}})", ErrorCode::kUnsupported,
              "'quantization_config'");
  ExpectError(R"({"hidden_act":"relu"})", ErrorCode::kUnsupported, "'hidden_act' is 'relu'");
  ExpectError(R"({"use_bidirectional_attention":true})", ErrorCode::kUnsupported, "causal");
  ExpectError(R"({"is_causal":false})", ErrorCode::kUnsupported, "is_causal");
  const auto caps =
      ParseWith(kSmall, R"({"model_type":"gemma3_text","attn_logit_softcapping":30.0})");
  ASSERT_FALSE(caps.ok());
  EXPECT_NE(caps.error().message.find("attn_logit_softcapping"), std::string::npos);
  const std::string linear = R"(["linear_attention","full_attention","full_attention","x"])";
  const auto kinds = ParseWith(kSmall, R"({"model_type":"qwen3","layer_types":)" + linear + "}");
  EXPECT_EQ(kinds.error().code, ErrorCode::kUnsupported);
}

TEST(ModelConfig, SizesOutOfRangeNameTheField) {
  for (const char* field :
       {"hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
        "num_key_value_heads", "head_dim", "vocab_size", "max_position_embeddings"}) {
    for (const char* bad : {"0", "-1", "1000000000000", "1099511627776", "9223372036854775807",
                            "1e30", "\"8\"", "1.5", "[]", "true"}) {
      ExpectError("{\"" + std::string(field) + "\":" + bad + "}", ErrorCode::kCorrupt, field);
    }
  }
  for (const char* field : {"hidden_size", "intermediate_size", "num_hidden_layers",
                            "num_attention_heads", "vocab_size"}) {
    ExpectError("{\"" + std::string(field) + "\":null}", ErrorCode::kCorrupt, field);
  }
  ExpectError(R"({"num_key_value_heads":5})", ErrorCode::kCorrupt, "num_key_value_heads");
  ExpectError(R"({"num_key_value_heads":64})", ErrorCode::kCorrupt, "num_key_value_heads");
  ExpectError(R"({"head_dim":63})", ErrorCode::kCorrupt, "head_dim");
  ExpectError(R"({"head_dim":null,"hidden_size":2047})", ErrorCode::kCorrupt, "hidden_size");
  ExpectError(R"({"rms_norm_eps":-1})", ErrorCode::kCorrupt, "rms_norm_eps");
  ExpectError(R"({"rope_theta":0})", ErrorCode::kCorrupt, "rope_theta");
  ExpectError(R"({"tie_word_embeddings":"yes"})", ErrorCode::kCorrupt, "tie_word_embeddings");
  ExpectError(R"({"eos_token_id":-2})", ErrorCode::kCorrupt, "eos_token_id");
  ExpectError(R"({"layer_types":["full_attention"]})", ErrorCode::kCorrupt, "layer_types");
  ExpectError(R"({"text_config":[]})", ErrorCode::kCorrupt, "text_config");
  EXPECT_FALSE(ModelConfig::Parse(Json()).ok());
  EXPECT_FALSE(ModelConfig::Parse(Json(3)).ok());
}

TEST(ModelConfig, SlidingLayersNeedAWindow) {
  const auto model =
      ParseWith(kSmall,
                R"({"model_type":"qwen3","layer_types":["full_attention","sliding_attention",
          "full_attention","full_attention"]})");
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.error().message.find("sliding_window"), std::string::npos);
}

TEST(ModelConfig, LoadLetsGenerationConfigWin) {
  const ScratchFolder folder;
  EXPECT_EQ(ModelConfig::Load(folder.path()).error().code, ErrorCode::kNotFound);
  folder.Write("config.json", kLlama);
  const auto without = ModelConfig::Load(folder.path());
  ASSERT_TRUE(without.ok()) << without.error().message;
  EXPECT_EQ(without->eos_token_ids.size(), 3u);
  EXPECT_FALSE(without->generation.temperature.has_value());

  folder.Write("generation_config.json",
               R"({"eos_token_id":7,"temperature":0.6,"suppress_tokens":[11,12]})");
  const auto with = ModelConfig::Load(folder.path());
  ASSERT_TRUE(with.ok()) << with.error().message;
  EXPECT_EQ(with->eos_token_ids, (std::vector<Token>{7}));
  EXPECT_EQ(with->bos_token_id, 128000);
  EXPECT_EQ(with->suppressed_tokens, (std::vector<Token>{11, 12}));
  EXPECT_EQ(with->generation.temperature, 0.6);

  folder.Write("generation_config.json", R"({"eos_token_id":"x"})");
  const auto broken = ModelConfig::Load(folder.path());
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.error().message.find(folder.File("generation_config.json")), 0u);
  folder.Write("config.json", R"({"model_type":"llama"})");
  const auto bare = ModelConfig::Load(folder.path());
  EXPECT_EQ(bare.error().message.find(folder.File("config.json")), 0u);
}

}  // namespace
}  // namespace kvasir
