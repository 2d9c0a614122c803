#include "kvasir/model/families.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string_view>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// What classes add to the sum of sigmoids, which may be next to 0.
float SigmoidSumEps(ModelFamily family) { return family == ModelFamily::kLfm2 ? 1e-6f : 1e-20f; }

// Of one sequence and recurrent layer.
size_t StateBytes(const DecoderSpec& spec) {
  // In whole cache lines, so that states are aligned to them.
  constexpr size_t kLine = 64;
  size_t bytes = 0;
  if (spec.short_conv.width > 0) {
    bytes = static_cast<size_t>((spec.short_conv.width - 1) * spec.hidden_size) * sizeof(float);
  } else if (spec.delta_net.value_heads > 0) {
    bytes = spec.delta_net.state_bytes();
  }
  return (bytes + kLine - 1) / kLine * kLine;
}

// What a latent's elements, and those that turn, are multiplied with as keys: yarn's factor is that
// of what turns.
std::vector<float> LatentKeyFactors(const DecoderSpec& spec) {
  const RopeSpec& rope = spec.ropes[0];
  const auto half = static_cast<int64_t>(rope.inverse_frequencies.size());
  std::vector<float> factors(static_cast<size_t>(2 * half), 1.0f);
  for (const int64_t begin : {int64_t{0}, half}) {
    std::fill_n(factors.begin() + begin, rope.rotated / 2, rope.attention_factor);
  }
  return factors;
}

DecoderSpec::Norms NormsOf(const FamilyTraits& traits) {
  using Norms = DecoderSpec::Norms;
  if (!traits.has_post_norms) return Norms::kPre;
  return traits.has_pre_norms ? Norms::kSandwich : Norms::kPost;
}

// The number behind `marker` in a name, 0 where there is none.
size_t NumberBehind(std::string_view marker, const std::string& name) {
  const size_t at = name.find(marker);
  size_t number = 0;
  if (at != std::string::npos) {
    std::from_chars(name.data() + at + marker.size(), name.data() + name.size(), number);
  }
  return number;
}

// Whether a tensor belongs to a layer that drafts, behind all others.
bool IsOfDraftLayer(const DecoderSpec& spec, const std::string& name) {
  const size_t layers = spec.layers.size();
  const bool is_gguf = name.starts_with("blk.");
  if (spec.delta_net.value_heads > 0) return is_gguf && NumberBehind("blk.", name) >= layers;
  const size_t layer = NumberBehind(is_gguf ? "blk." : "layers.", name);
  return layer >= layers && layer < layers + static_cast<size_t>(spec.draft_layers);
}

}  // namespace

DecoderSpec CommonSpec(const ModelConfig& config) {
  DecoderSpec spec;
  spec.hidden_size = config.hidden_size;
  spec.vocab_size = config.vocab_size;
  spec.context_tokens = config.max_position_embeddings;
  spec.query_heads = config.num_attention_heads;
  spec.attention_scale = static_cast<float>(1.0 / std::sqrt(config.query_pre_attn_scalar));
  spec.attention_softcap = static_cast<float>(config.attn_logit_softcapping);
  spec.final_softcap = static_cast<float>(config.final_logit_softcapping);
  spec.norm_eps = static_cast<float>(config.rms_norm_eps);
  spec.has_qkv_bias = config.qkv_bias;
  spec.has_output_bias = config.output_bias;
  spec.has_mlp_bias = config.mlp_bias;
  spec.norms = NormsOf(config.traits());
  spec.has_qk_norm = config.traits().has_qk_norm;
  spec.has_wide_qk_norm = config.traits().has_wide_qk_norm;
  spec.has_query_gates = config.traits().has_query_gates;
  spec.ties_embeddings = config.tie_word_embeddings;
  spec.has_own_head = config.has_own_head;
  spec.activation =
      config.activation == Activation::kSilu ? GateActivation::kSilu : GateActivation::kGeluTanh;
  spec.experts = {
      .count = config.experts.count,
      .per_token = config.experts.per_token,
      .intermediate_size = config.experts.intermediate_size,
      .scores = config.experts.has_sigmoid_scores ? RouteArgs::Scores::kSigmoid
                                                  : RouteArgs::Scores::kSoftmax,
      .normalizes_weights = config.experts.normalizes_weights,
      .weight_sum_eps = config.experts.has_sigmoid_scores ? SigmoidSumEps(config.family) : 0.0f,
      .has_choice_biases = config.experts.has_choice_biases,
      .weight_scale = static_cast<float>(config.experts.weight_scale),
      .groups = config.experts.groups,
      .groups_per_token = config.experts.groups_per_token,
      .has_router_norm = config.experts.beside_dense,
      .shared_intermediate_size = config.experts.shared_intermediate_size,
      .has_shared_gate = config.experts.has_shared_gate};
  for (const Token token : config.suppressed_tokens) {
    if (token >= 0 && token < config.vocab_size) spec.suppressed_tokens.push_back(token);
  }
  const LatentConfig& latent = config.latent;
  spec.latent = {.query_rank = latent.query_rank,
                 .kv_rank = latent.kv_rank,
                 .plain_dim = latent.plain_dim,
                 .rotary_dim = latent.rotary_dim,
                 .value_dim = latent.value_dim};
  // Rope 0 serves full layers, rope 1 sliding ones where the family tells them apart, the last
  // layers that do not turn.
  spec.ropes.push_back(latent.kv_rank > 0
                           ? Widened(MakeRope(config.rope_full, latent.rotary_dim), config.head_dim)
                           : MakeRope(config.rope_full, config.global_head_dim));
  const bool has_own_sliding_rope =
      config.sliding_window > 0 &&
      (!(config.rope_sliding == config.rope_full) || config.head_dim != config.global_head_dim);
  if (has_own_sliding_rope) spec.ropes.push_back(MakeRope(config.rope_sliding, config.head_dim));
  spec.draft_layers = config.draft_layers;
  const auto still_rope = static_cast<int>(spec.ropes.size());
  if (!config.still_layers.empty()) spec.ropes.push_back(StillRope(config.head_dim));
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    const bool slides = config.is_sliding(i);
    const MlpKind experts =
        config.experts.beside_dense ? MlpKind::kDenseAndExperts : MlpKind::kExperts;
    spec.layers.push_back(
        {.retention = slides ? RetentionSpec::Window(config.sliding_window) : RetentionSpec::All(),
         .rope = config.is_still(i)               ? still_rope
                 : slides && has_own_sliding_rope ? 1
                                                  : 0,
         .shares_kv = config.shares_kv(i),
         .kv_heads = config.key_value_heads_of(i),
         .head_dim = config.head_dim_of(i),
         .intermediate_size = config.intermediate_size_of(i),
         .mlp = config.has_experts(i) ? experts : MlpKind::kDense,
         .values_from_keys = config.values_from_keys && !slides,
         .is_recurrent = config.is_recurrent(i)});
  }
  return spec;
}

KvCacheSpec DecoderCacheSpec(const DecoderSpec& spec, KvCodec codec,
                             std::span<const std::vector<float>> key_norms) {
  KvCacheSpec cache;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const DecoderLayerSpec& layer = spec.layers[i];
    if (layer.is_recurrent) {
      KvLayerSpec recurrent;
      recurrent.state_bytes = StateBytes(spec);
      cache.layers.push_back(std::move(recurrent));
      continue;
    }
    const bool is_latent = spec.latent.kv_rank > 0;
    const bool derives = layer.values_from_keys && (spec.has_value_norm || is_latent);
    const size_t owner = layer.shares_kv < 0 ? i : static_cast<size_t>(layer.shares_kv);
    std::vector<float> key_norm;
    if (derives && key_norms.empty()) key_norm.assign(static_cast<size_t>(layer.head_dim), 1.0f);
    if (derives && !key_norms.empty()) key_norm = key_norms[owner];
    if (is_latent) key_norm = LatentKeyFactors(spec);
    cache.layers.push_back(
        {.layout = {.kv_heads = layer.kv_heads,
                    .key_dim = layer.head_dim,
                    .value_dim = layer.head_dim,
                    .key_codec = derives ? KvCodec{KvCodec::Kind::kFromValue} : codec,
                    .value_codec = codec},
         .retention = layer.retention,
         .shares_layer = layer.shares_kv,
         .inv_freq = spec.ropes[static_cast<size_t>(layer.rope)].inverse_frequencies,
         .key_norm = std::move(key_norm),
         .attention_scale = spec.attention_scale});
  }
  return cache;
}

DecoderSpec MakeDecoderSpec(const ModelConfig& config) {
  switch (config.family) {
    case ModelFamily::kLlama:
      return LlamaSpec(config);
    case ModelFamily::kQwen2:
    case ModelFamily::kQwen3:
      return QwenSpec(config);
    case ModelFamily::kQwen35:
      return Qwen35Spec(config);
    case ModelFamily::kGemma2:
      return Gemma2Spec(config);
    case ModelFamily::kGemma3:
      return Gemma3Spec(config);
    case ModelFamily::kGemma4:
      return Gemma4Spec(config);
    case ModelFamily::kGptOss:
      return GptOssSpec(config);
    case ModelFamily::kOlmo:
      return OlmoSpec(config);
    case ModelFamily::kPhi3:
      return Phi3Spec(config);
    case ModelFamily::kLfm2:
      return Lfm2Spec(config);
    case ModelFamily::kDeepSeek:
      return DeepSeekSpec(config);
    case ModelFamily::kGlm4:
    case ModelFamily::kGlm4Moe:
      return Glm4Spec(config);
  }
  KVASIR_CHECK(false);
}

bool HoldsNormOffset(const ModelConfig& config, const Checkpoint& checkpoint) {
  if (config.family != ModelFamily::kQwen35) return false;
  for (const std::string& name : checkpoint.names()) {
    if (!name.ends_with(".linear_attn.conv1d.weight")) continue;
    const std::vector<int64_t>& shape = checkpoint.Find(name)->shape;
    return shape.size() == 3 && shape[2] == 1 && shape[1] != 1;
  }
  return false;
}

bool IsKnownUnused(const DecoderSpec& spec, const std::string& name) {
  for (const std::string_view part :
       {"rotary_emb.inv_freq", "vision_tower.", "multi_modal_projector.", "embed_vision.",
        "audio_tower.", "embed_audio.", "visual.", "vision_embedder.", ".input_min", ".input_max",
        ".output_min", ".output_max", ".input_scale", ".activation_scale"}) {
    if (name.find(part) != std::string::npos) return true;
  }
  // Of layers that draft tokens.
  if (name.starts_with("mtp.") || name.starts_with("language_model.mtp.")) return true;
  if (IsOfDraftLayer(spec, name)) return true;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    if (spec.layers[i].shares_kv < 0) continue;
    const std::string prefix = "layers." + std::to_string(i) + ".self_attn.";
    for (const char* part : {"k_proj.", "v_proj.", "k_norm.", "v_norm."}) {
      if (name.find(prefix + part) != std::string::npos) return true;
    }
    const std::string in_gguf = "blk." + std::to_string(i) + ".attn_";
    for (const char* part : {"k.", "v.", "k_norm."}) {
      if (name.starts_with(in_gguf + part)) return true;
    }
  }
  return false;
}

}  // namespace kvasir
