#include "kvasir/model/families.h"

#include <cmath>
#include <string_view>

#include "kvasir/base/check.h"

namespace kvasir {

DecoderSpec CommonSpec(const ModelConfig& config) {
  DecoderSpec spec;
  spec.hidden_size = config.hidden_size;
  spec.intermediate_size = config.intermediate_size;
  spec.vocab_size = config.vocab_size;
  spec.context_tokens = config.max_position_embeddings;
  spec.query_heads = config.num_attention_heads;
  spec.kv_heads = config.num_key_value_heads;
  spec.head_dim = config.head_dim;
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(config.query_pre_attn_scalar));
  spec.attention_softcap = static_cast<float>(config.attn_logit_softcapping);
  spec.final_softcap = static_cast<float>(config.final_logit_softcapping);
  spec.norm_eps = static_cast<float>(config.rms_norm_eps);
  spec.has_qkv_bias = config.qkv_bias;
  spec.has_output_bias = config.output_bias;
  spec.has_mlp_bias = config.mlp_bias;
  spec.has_qk_norm = config.has_qk_norm();
  spec.ties_embeddings = config.tie_word_embeddings;
  spec.activation =
      config.activation == Activation::kSilu ? GateActivation::kSilu : GateActivation::kGeluTanh;
  // Rope 0 serves full layers, rope 1 sliding ones where the family tells them apart.
  spec.ropes.push_back(MakeRope(config.rope_full, config.head_dim));
  const bool has_own_sliding_rope = !(config.rope_sliding == config.rope_full);
  if (has_own_sliding_rope) spec.ropes.push_back(MakeRope(config.rope_sliding, config.head_dim));
  for (const LayerKind kind : config.layer_kinds) {
    const bool slides = kind == LayerKind::kSliding;
    spec.layers.push_back(
        {.retention = slides ? RetentionSpec::Window(config.sliding_window) : RetentionSpec::All(),
         .rope = slides && has_own_sliding_rope ? 1 : 0,
         .shares_kv = -1});
  }
  return spec;
}

DecoderSpec MakeDecoderSpec(const ModelConfig& config) {
  switch (config.family) {
    case ModelFamily::kLlama:
      return LlamaSpec(config);
    case ModelFamily::kQwen2:
    case ModelFamily::kQwen3:
      return QwenSpec(config);
    case ModelFamily::kGemma3:
      return Gemma3Spec(config);
  }
  KVASIR_CHECK(false);
}

bool IsKnownUnused(const DecoderSpec& spec, const std::string& name) {
  for (const std::string_view part :
       {"rotary_emb.inv_freq", "vision_tower.", "multi_modal_projector.", "embed_vision.",
        "audio_tower.", "embed_audio."}) {
    if (name.find(part) != std::string::npos) return true;
  }
  if (spec.ties_embeddings && name.ends_with("lm_head.weight")) return true;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].shares_kv < 0) continue;
    const std::string prefix = "layers." + std::to_string(i) + ".self_attn.";
    for (const char* part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) {
      if (name.find(prefix + part) != std::string::npos) return true;
    }
  }
  return false;
}

}  // namespace kvasir
