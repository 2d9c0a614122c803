// ConfigDefaults: the architectures that are read, and what their config.json may leave out.
// Deliberately a table: what the fields mean is model_config.cc's business.
#ifndef KVASIR_FORMATS_CONFIG_DEFAULTS_H_
#define KVASIR_FORMATS_CONFIG_DEFAULTS_H_

#include <cstdint>
#include <string_view>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/model_config.h"

namespace kvasir {

inline constexpr std::string_view kMistral3 = "mistral3";
inline constexpr std::string_view kQwen3Moe = "qwen3_moe";
inline constexpr std::string_view kQwen35Moe = "qwen3_5_moe";
inline constexpr std::string_view kQwen3Next = "qwen3_next";
inline constexpr std::string_view kGemma4Unified = "gemma4_unified";
inline constexpr std::string_view kMinistral3 = "ministral3";
inline constexpr std::string_view kSmolLm3 = "smollm3";
inline constexpr std::string_view kGranite = "granite";
inline constexpr std::string_view kGraniteHybrid = "granitemoehybrid";
inline constexpr std::string_view kOlmo2 = "olmo2";
inline constexpr std::string_view kGraniteMoe = "granitemoe";
inline constexpr std::string_view kGraniteMoeShared = "granitemoeshared";
inline constexpr std::string_view kLfm2Moe = "lfm2_moe";
inline constexpr std::string_view kLfm2Vl = "lfm2_vl";
inline constexpr std::string_view kDeepSeekV2 = "deepseek_v2";
inline constexpr std::string_view kDeepSeekV3 = "deepseek_v3";
inline constexpr std::string_view kGlm4MoeLite = "glm4_moe_lite";
inline constexpr std::string_view kYoutu = "youtu";

// What the Hugging Face configuration classes fill in for absent fields. 0: the field is required,
// or derived (heads, head_dim).
struct ConfigDefaults {
  std::string_view architecture;
  std::string_view model_type;
  ModelFamily family;
  bool tie_word_embeddings;
  std::string_view activation_field;
  std::string_view activation;
  int64_t vocab_size;
  int64_t hidden_size;
  int64_t intermediate_size;
  int64_t num_hidden_layers;
  int64_t num_attention_heads;
  int64_t num_key_value_heads;
  int64_t head_dim;
  int64_t max_position_embeddings;
  double rope_theta;
  double rms_norm_eps = 1e-6;

  // "architectures" of a config decides; "model_type" where there is none. ERRORS: kUnsupported,
  // listing those that exist; kCorrupt.
  static Result<const ConfigDefaults*> Of(const Json& config);
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_CONFIG_DEFAULTS_H_
