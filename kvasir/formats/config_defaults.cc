#include "kvasir/formats/config_defaults.h"

#include <array>
#include <string>

namespace kvasir {
namespace {

constexpr ConfigDefaults Plain(std::string_view architecture, std::string_view model_type,
                               ModelFamily family, int64_t kv_heads, int64_t head_dim,
                               int64_t max_position_embeddings, double rope_theta = 10000.0,
                               double rms_norm_eps = 1e-6) {
  return {architecture,
          model_type,
          family,
          false,
          "hidden_act",
          "silu",
          0,
          0,
          0,
          0,
          0,
          kv_heads,
          head_dim,
          max_position_embeddings,
          rope_theta,
          rms_norm_eps};
}
constexpr ConfigDefaults SmolLm3() {
  ConfigDefaults defaults =
      Plain("SmolLM3ForCausalLM", kSmolLm3, ModelFamily::kLlama, 4, 0, 32768, 2e6);
  defaults.tie_word_embeddings = true;
  return defaults;
}
constexpr ConfigDefaults Lfm2(std::string_view architecture, std::string_view model_type,
                              int64_t hidden_size, int64_t intermediate_size) {
  return {architecture,
          model_type,
          ModelFamily::kLfm2,
          true,
          "hidden_act",
          "silu",
          65536,
          hidden_size,
          intermediate_size,
          32,
          32,
          8,
          0,
          128000,
          1e6,
          1e-5};
}
// What kind of attention and of experts these have, latent_config.cc knows.
constexpr ConfigDefaults DeepSeek(std::string_view architecture, std::string_view model_type,
                                  int64_t max_position_embeddings, double rope_theta,
                                  double rms_norm_eps) {
  return Plain(architecture, model_type, ModelFamily::kDeepSeek, 1, 64, max_position_embeddings,
               rope_theta, rms_norm_eps);
}
constexpr ConfigDefaults Youtu() {
  ConfigDefaults defaults = DeepSeek("YoutuForCausalLM", kYoutu, 131072, 1e4, 1e-6);
  defaults.tie_word_embeddings = true;
  return defaults;
}
// The intermediate size is that of dense layers, which models with experts may not have.
constexpr ConfigDefaults Qwen35(std::string_view architecture, std::string_view model_type,
                                int64_t intermediate_size, int64_t kv_heads) {
  ConfigDefaults defaults =
      Plain(architecture, model_type, ModelFamily::kQwen35, kv_heads, 256, 32768);
  defaults.intermediate_size = intermediate_size;
  return defaults;
}
constexpr ConfigDefaults Gemma(std::string_view architecture, std::string_view model_type,
                               ModelFamily family, int64_t vocab_size, int64_t num_hidden_layers,
                               int64_t max_position_embeddings, double rope_theta) {
  return {architecture,
          model_type,
          family,
          true,
          "hidden_activation",
          "gelu_pytorch_tanh",
          vocab_size,
          2304,
          9216,
          num_hidden_layers,
          8,
          4,
          256,
          max_position_embeddings,
          rope_theta};
}
constexpr ConfigDefaults Gemma3(std::string_view architecture, std::string_view model_type) {
  return Gemma(architecture, model_type, ModelFamily::kGemma3, 262208, 26, 131072, 1e6);
}
constexpr ConfigDefaults Gemma4(std::string_view architecture, std::string_view model_type,
                                int64_t max_position_embeddings) {
  return Gemma(architecture, model_type, ModelFamily::kGemma4, 262144, 30, max_position_embeddings,
               1e6);
}

constexpr std::array<ConfigDefaults, 38> kArchitectures = {
    Plain("LlamaForCausalLM", "llama", ModelFamily::kLlama, 0, 0, 2048),
    Plain("MistralForCausalLM", "mistral", ModelFamily::kLlama, 8, 0, 131072),
    Plain("Mistral3ForConditionalGeneration", kMistral3, ModelFamily::kLlama, 8, 0, 131072),
    Plain("Ministral3ForCausalLM", kMinistral3, ModelFamily::kLlama, 8, 128, 262144, 1e6, 1e-5),
    SmolLm3(),
    Plain("GraniteForCausalLM", kGranite, ModelFamily::kLlama, 0, 0, 2048),
    Plain("GraniteMoeForCausalLM", kGraniteMoe, ModelFamily::kLlama, 0, 0, 2048),
    Plain("GraniteMoeSharedForCausalLM", kGraniteMoeShared, ModelFamily::kLlama, 0, 0, 2048),
    Plain("GraniteMoeHybridForCausalLM", kGraniteHybrid, ModelFamily::kLlama, 0, 0, 2048),
    Plain("Olmo2ForCausalLM", kOlmo2, ModelFamily::kOlmo, 0, 0, 2048, 1e4, 1e-5),
    Plain("Olmo3ForCausalLM", "olmo3", ModelFamily::kOlmo, 0, 0, 2048, 5e5, 1e-5),
    Plain("Phi3ForCausalLM", "phi3", ModelFamily::kPhi3, 0, 0, 4096, 1e4, 1e-5),
    Lfm2("Lfm2ForCausalLM", "lfm2", 2560, 12288),
    Lfm2("LFM2ForCausalLM", "lfm2", 2560, 12288),
    Lfm2("Lfm2VlForConditionalGeneration", kLfm2Vl, 2560, 12288),
    Lfm2("Lfm2MoeForCausalLM", kLfm2Moe, 2048, 7168),
    DeepSeek("DeepseekV2ForCausalLM", kDeepSeekV2, 2048, 1e4, 1e-6),
    DeepSeek("DeepseekV3ForCausalLM", kDeepSeekV3, 4096, 1e4, 1e-6),
    DeepSeek("Glm4MoeLiteForCausalLM", kGlm4MoeLite, 202752, 1e6, 1e-5),
    Youtu(),
    Plain("Glm4ForCausalLM", "glm4", ModelFamily::kGlm4, 2, 128, 131072, 1e4, 1.5625e-7),
    Plain("Glm4MoeForCausalLM", "glm4_moe", ModelFamily::kGlm4Moe, 8, 128, 131072, 1e4, 1e-5),
    Plain("Qwen2ForCausalLM", "qwen2", ModelFamily::kQwen2, 32, 0, 32768),
    Plain("Qwen3ForCausalLM", "qwen3", ModelFamily::kQwen3, 32, 128, 32768),
    Plain("Qwen3MoeForCausalLM", kQwen3Moe, ModelFamily::kQwen3, 4, 0, 32768),
    Qwen35("Qwen3_5ForCausalLM", "qwen3_5_text", 12288, 4),
    Qwen35("Qwen3_5ForConditionalGeneration", "qwen3_5", 12288, 4),
    Qwen35("Qwen3_5MoeForCausalLM", "qwen3_5_moe_text", 5632, 2),
    Qwen35("Qwen3_5MoeForConditionalGeneration", kQwen35Moe, 5632, 2),
    Qwen35("Qwen3NextForCausalLM", kQwen3Next, 5632, 2),
    ConfigDefaults{"GptOssForCausalLM", "gpt_oss", ModelFamily::kGptOss, false, "hidden_act",
                   "silu", 201088, 2880, 2880, 36, 64, 8, 64, 131072, 150000.0, 1e-5},
    Gemma("Gemma2ForCausalLM", "gemma2", ModelFamily::kGemma2, 256000, 26, 8192, 1e4),
    Gemma3("Gemma3ForCausalLM", "gemma3_text"),
    Gemma3("Gemma3ForConditionalGeneration", "gemma3"),
    Gemma4("Gemma4ForCausalLM", "gemma4_text", 131072),
    Gemma4("Gemma4ForConditionalGeneration", "gemma4", 131072),
    Gemma4("Gemma4UnifiedForCausalLM", "gemma4_unified_text", 262144),
    Gemma4("Gemma4UnifiedForConditionalGeneration", kGemma4Unified, 262144),
};

}  // namespace

Result<const ConfigDefaults*> ConfigDefaults::Of(const Json& config) {
  std::string wanted;
  std::string_view ConfigDefaults::*column = &ConfigDefaults::architecture;
  const Json* list = config.Find("architectures");
  if (list != nullptr && list->is_array() && !list->as_array().empty()) {
    if (!list->as_array()[0].is_string()) {
      return {ErrorCode::kCorrupt, "field 'architectures' must be a list of names"};
    }
    wanted = list->as_array()[0].as_string();
  } else {
    KVASIR_TRY(wanted, config.GetString("model_type"));
    column = &ConfigDefaults::model_type;
  }
  std::string supported;
  for (const ConfigDefaults& known : kArchitectures) {
    if (known.*column == wanted) return &known;
    supported += (supported.empty() ? "" : ", ") + std::string(known.*column);
  }
  if (wanted.find("Assistant") != std::string::npos || wanted.ends_with("_assistant")) {
    return {ErrorCode::kUnsupported,
            "architecture '" + wanted.substr(0, 80) +
                "' is an assistant, which only drafts for its model: name that one, and this "
                "folder as its draft"};
  }
  return {ErrorCode::kUnsupported, "architecture '" + wanted.substr(0, 80) +
                                       "' is not supported; supported are " + supported};
}

}  // namespace kvasir
