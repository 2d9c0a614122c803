#include "kvasir/convert/gguf_shape_pairs.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "kvasir/formats/gguf_layers.h"

namespace kvasir {
namespace {

uint32_t U32(int64_t value) { return static_cast<uint32_t>(value); }

// Adds the pairs of one model under the prefix of its architecture.
class ShapeWriter {
 public:
  ShapeWriter(const ModelConfig& config, const GgufShapeExtras& extras, GgufPairs* pairs)
      : config_(config), extras_(extras), architecture_(Architecture(config)), pairs_(*pairs) {}

  Status Write() {
    if (config_.family == ModelFamily::kGptOss) {
      return {ErrorCode::kUnsupported,
              "gpt-oss is read from GGUF files, but not written to them; its published checkpoints "
              "exist as such"};
    }
    KVASIR_TRY_OK(CheckActivation());
    KVASIR_TRY_OK(CheckStillLayers());
    pairs_.Add("general.architecture", architecture_);
    pairs_.AddU32("general.quantization_version", 2);
    Int("block_count", config_.num_hidden_layers + extras_.draft_layers);
    Int("context_length", config_.max_position_embeddings);
    Int("embedding_length", config_.hidden_size);
    Int("attention.head_count", config_.num_attention_heads);
    Float("attention.layer_norm_rms_epsilon", config_.rms_norm_eps);
    Int("vocab_size", config_.vocab_size);
    // A full layer's heads where the family tells layers apart; else all are alike.
    Int("attention.key_length", config_.global_head_dim);
    Int("attention.value_length", is_latent() ? config_.latent.kv_rank : config_.global_head_dim);
    if (is_latent()) AddLatent();
    const bool may_draft = is_latent() || is_glm();
    if (may_draft && extras_.draft_layers > 0) Int("nextn_predict_layers", extras_.draft_layers);
    AddMlp();
    AddKeyValueHeads();
    if (has_delta_nets()) AddDeltaNets();
    if (architecture_ == "granitehybrid") AddMamba();
    if (is_lfm2()) KVASIR_TRY_OK(AddShortConv());
    if (is_granite()) AddMultipliers();
    KVASIR_TRY_OK(AddExperts());
    KVASIR_TRY_OK(AddRope());
    return AddWindow();
  }

 private:
  std::string Key(const char* name) const { return architecture_ + "." + name; }
  void Int(const char* name, int64_t value) { pairs_.AddU32(Key(name), U32(value)); }
  void Float(const char* name, double value) {
    pairs_.AddF32(Key(name), static_cast<float>(value));
  }
  bool is_gemma4() const { return config_.family == ModelFamily::kGemma4; }
  bool has_delta_nets() const { return config_.family == ModelFamily::kQwen35; }
  bool is_lfm2() const { return config_.family == ModelFamily::kLfm2; }
  bool is_latent() const { return config_.latent.kv_rank > 0; }
  bool is_glm() const { return architecture_.starts_with("glm4"); }
  bool is_granite() const { return architecture_.starts_with("granite"); }
  bool has_recurrent_layers() const {
    return std::ranges::count(config_.layer_kinds, LayerKind::kRecurrent) > 0;
  }

  static std::string Architecture(const ModelConfig& config) {
    const bool has_experts = config.experts.count > 0;
    if (config.family == ModelFamily::kQwen3 && has_experts) return "qwen3moe";
    if (config.family == ModelFamily::kLlama) return LlamaArchitecture(config);
    if (config.family == ModelFamily::kLfm2) return has_experts ? "lfm2moe" : "lfm2";
    if (config.family == ModelFamily::kDeepSeek) return "deepseek2";
    if (config.family == ModelFamily::kGlm4Moe) return "glm4moe";
    if (config.family != ModelFamily::kQwen35) return std::string(ModelFamilyName(config.family));
    if (config.architecture.starts_with("Qwen3Next")) return "qwen3next";
    return has_experts ? "qwen35moe" : "qwen35";
  }

  // Mistral 3's wrapper is also that of models that are llama in a GGUF file.
  static std::string LlamaArchitecture(const ModelConfig& config) {
    if (config.delta_net.is_mamba) return "granitehybrid";
    if (config.architecture.starts_with("Granite")) {
      return config.experts.count > 0 ? "granitemoe" : "granite";
    }
    if (config.architecture.starts_with("SmolLM3")) return "smollm3";
    const bool is_ministral =
        config.rope_full.query_scale_beta > 0 || config.architecture.starts_with("Ministral3");
    return is_ministral ? "mistral3" : "llama";
  }

  // Readers know every fourth of SmolLM3 alone, and of Granite all or none.
  Status CheckStillLayers() const {
    for (int i = 0; i < config_.num_hidden_layers; ++i) {
      const bool is_still =
          is_granite() ? config_.is_still(0) : architecture_ == "smollm3" && (i + 1) % 4 == 0;
      if (config_.is_still(i) == is_still) continue;
      return {ErrorCode::kUnsupported,
              "layer " + std::to_string(i) + " (no_rope_layers, position_embedding_type) turns " +
                  (is_still ? "its keys" : "nothing") + ", which a GGUF file of " + architecture_ +
                  " cannot say"};
    }
    return {};
  }

  void AddMultipliers() {
    Float("embedding_scale", config_.embedding_multiplier);
    Float("residual_scale", config_.residual_multiplier);
    Float("logit_scale", config_.logits_scaling);
    Float("attention.scale", 1.0 / std::sqrt(config_.query_pre_attn_scalar));
    if (config_.is_still(0)) pairs_.AddBool(Key("rope.scaling.finetuned"), false);
  }

  // Readers know a family's own only.
  Status CheckActivation() const {
    const Activation own = config_.traits().is_gemma ? Activation::kGeluTanh : Activation::kSilu;
    if (config_.activation == own) return {};
    return {ErrorCode::kUnsupported,
            "the activation (hidden_act, hidden_activation) is not the one that every GGUF file "
            "of " +
                architecture_ + " has"};
  }

  void AddMlp() {
    if (has_delta_nets()) {
      // Models with experts only have none.
      if (config_.intermediate_size > 0) Int("feed_forward_length", config_.intermediate_size);
      return;
    }
    std::vector<uint32_t> sizes;
    for (int i = 0; i < config_.num_hidden_layers; ++i) {
      sizes.push_back(U32(config_.intermediate_size_of(i)));
    }
    // Of Granite's experts, what has the key is the size of one.
    if (is_granite() && config_.experts.count > 0) {
      return Int("feed_forward_length", config_.experts.intermediate_size);
    }
    if (sizes.front() == sizes.back()) return Int("feed_forward_length", sizes.front());
    pairs_.AddU32s(Key("feed_forward_length"), sizes);
  }

  void AddKeyValueHeads() {
    const bool is_listed =
        (is_lfm2() || architecture_ == "granitehybrid") && has_recurrent_layers();
    if (config_.num_key_value_heads == config_.global_key_value_heads && !is_listed) {
      return Int("attention.head_count_kv", config_.num_key_value_heads);
    }
    std::vector<uint32_t> heads;
    for (int i = 0; i < config_.num_hidden_layers; ++i) {
      const bool has_none = is_listed && config_.is_recurrent(i);
      heads.push_back(has_none ? 0 : U32(config_.key_value_heads_of(i)));
    }
    pairs_.AddU32s(Key("attention.head_count_kv"), heads);
  }

  // Heads as attention sees them, and beside those what they stand for.
  void AddLatent() {
    const LatentConfig& latent = config_.latent;
    if (latent.query_rank > 0) Int("attention.q_lora_rank", latent.query_rank);
    Int("attention.kv_lora_rank", latent.kv_rank);
    Int("attention.key_length_mla", latent.plain_dim + latent.rotary_dim);
    Int("attention.value_length_mla", latent.value_dim);
    if (config_.experts.count > 0) return;
    // Readers want them of models without experts too.
    Int("leading_dense_block_count", config_.num_hidden_layers);
    Int("expert_feed_forward_length", config_.intermediate_size);
    Int("expert_shared_count", 0);
  }

  void AddMamba() {
    const DeltaNetConfig& net = config_.delta_net;
    Int("ssm.conv_kernel", net.conv_width);
    Int("ssm.state_size", net.key_dim);
    Int("ssm.group_count", net.key_heads);
    Int("ssm.time_step_rank", net.value_heads);
    Int("ssm.inner_size", int64_t{net.value_heads} * net.value_dim);
  }

  Status AddShortConv() {
    Int("shortconv.l_cache", config_.short_conv.width);
    if (!config_.short_conv.has_bias) return {};
    return {ErrorCode::kUnsupported,
            "field 'conv_bias' is true, which a GGUF file of " + architecture_ + " cannot say"};
  }

  void AddDeltaNets() {
    const DeltaNetConfig& net = config_.delta_net;
    Int("ssm.conv_kernel", net.conv_width);
    Int("ssm.state_size", net.key_dim);
    Int("ssm.group_count", net.key_heads);
    Int("ssm.time_step_rank", net.value_heads);
    Int("ssm.inner_size", int64_t{net.value_heads} * net.value_dim);
    if (extras_.draft_layers > 0) Int("nextn_predict_layers", extras_.draft_layers);
    if (!extras_.rope_sections.empty()) {
      pairs_.AddI32s(Key("rope.dimension_sections"), extras_.rope_sections);
    }
    // The list says it all; older readers know only how often layers attend.
    std::vector<bool> recurrent;
    for (const LayerKind kind : config_.layer_kinds) {
      recurrent.push_back(kind == LayerKind::kRecurrent);
    }
    const auto full = std::find(recurrent.begin(), recurrent.end(), false);
    Int("full_attention_interval", full - recurrent.begin() + 1);
    recurrent.resize(recurrent.size() + static_cast<size_t>(extras_.draft_layers));
    pairs_.AddBools(Key("attention.recurrent_layers"), recurrent);
  }

  Status AddExperts() {
    const ExpertsConfig& experts = config_.experts;
    if (experts.count == 0) return {};
    Int("expert_count", experts.count);
    Int("expert_used_count", experts.per_token);
    if (!is_granite()) Int("expert_feed_forward_length", experts.intermediate_size);
    if (is_latent() || is_glm()) return AddGroupedExperts();
    if (is_lfm2()) KVASIR_TRY_OK(AddSigmoidExperts());
    if (experts.shared_intermediate_size > 0) {
      Int("expert_shared_feed_forward_length", experts.shared_intermediate_size);
    }
    if (experts.normalizes_weights) return {};
    return {ErrorCode::kUnsupported, "field 'norm_topk_prob' is false, which a GGUF file of " +
                                         architecture_ + " cannot say"};
  }

  Status AddGroupedExperts() {
    const ExpertsConfig& experts = config_.experts;
    const auto first = std::ranges::find(config_.expert_layers, true);
    if (std::find(first, config_.expert_layers.end(), false) != config_.expert_layers.end()) {
      return {ErrorCode::kUnsupported,
              "layers without experts follow such with them (moe_layer_freq, mlp_layer_types), "
              "which a GGUF file of " +
                  architecture_ + " cannot say"};
    }
    Int("leading_dense_block_count", first - config_.expert_layers.begin());
    Int("expert_shared_count", experts.shared_intermediate_size / experts.intermediate_size);
    Int("expert_gating_func", experts.has_sigmoid_scores ? kGgufSigmoidGating : kGgufSoftmaxGating);
    Float("expert_weights_scale", experts.weight_scale);
    if (experts.normalizes_weights) pairs_.AddBool(Key("expert_weights_norm"), true);
    Int("expert_group_count", experts.groups);
    Int("expert_group_used_count", experts.groups_per_token);
    return {};
  }

  Status AddSigmoidExperts() {
    Int("leading_dense_block_count", std::ranges::count(config_.expert_layers, false));
    Int("expert_gating_func", kGgufSigmoidGating);
    const ExpertsConfig& experts = config_.experts;
    if (experts.has_choice_biases && experts.weight_scale == 1) return {};
    return {ErrorCode::kUnsupported,
            std::string("field '") +
                (experts.has_choice_biases ? "routed_scaling_factor' is not 1"
                                           : "use_expert_bias' is false") +
                ", which readers of GGUF files of " + architecture_ + " do not know"};
  }

  Status AddRope() {
    const RopeConfig& rope = config_.rope_full;
    // Only the full layers' have a place.
    if (config_.traits().has_sliding_rope && config_.rope_sliding.type != RopeType::kDefault &&
        config_.sliding_window > 0) {
      return {ErrorCode::kUnsupported, "rope scaling '" +
                                           std::string(RopeTypeName(config_.rope_sliding.type)) +
                                           "' of sliding layers (rope_parameters."
                                           "sliding_attention) has no place in a GGUF file"};
    }
    if (config_.family == ModelFamily::kGemma2 && config_.rope_sliding != rope) {
      return {ErrorCode::kUnsupported,
              "a rope of sliding layers of their own has no place in a GGUF file of gemma2"};
    }
    if (is_gemma4() && rope.type == RopeType::kYarn) {
      return {ErrorCode::kUnsupported,
              "rope scaling 'yarn' has no place in a GGUF file of " + architecture_};
    }
    Float("rope.freq_base", rope.theta);
    const bool has_parts = has_delta_nets() || config_.family == ModelFamily::kPhi3 || is_glm();
    Int("rope.dimension_count", is_latent() ? config_.latent.rotary_dim
                                : has_parts ? RotatedElements(rope, config_.global_head_dim)
                                            : config_.global_head_dim);
    if (rope.type == RopeType::kLlama3 && (is_latent() || is_glm())) {
      return {ErrorCode::kUnsupported,
              "rope scaling 'llama3' is not written to a GGUF file of " + architecture_};
    }
    switch (rope.type) {
      case RopeType::kDefault:
      case RopeType::kLlama3:        // a tensor of divisors says them; of Gemma 4 always
      case RopeType::kProportional:  // likewise
        return {};
      case RopeType::kLinear:
        if (is_gemma4()) return {};
        pairs_.Add(Key("rope.scaling.type"), "linear");
        Float("rope.scaling.factor", rope.factor);
        return {};
      case RopeType::kLong:
        if (config_.family != ModelFamily::kPhi3) {
          return {ErrorCode::kUnsupported,
                  "rope scaling 'longrope' is not written to a GGUF file of " + architecture_};
        }
        Int("rope.scaling.original_context_length", rope.original_max_position_embeddings);
        Float("rope.scaling.attn_factor", rope.attention_factor);
        return {};
      case RopeType::kYarn:
        break;
    }
    pairs_.Add(Key("rope.scaling.type"), "yarn");
    Float("rope.scaling.factor", rope.factor);
    Int("rope.scaling.original_context_length", rope.original_max_position_embeddings);
    Float("rope.scaling.yarn_beta_fast", rope.beta_fast);
    Float("rope.scaling.yarn_beta_slow", rope.beta_slow);
    if (!rope.truncates) {
      return {ErrorCode::kUnsupported,
              "rope scaling 'yarn' with 'truncate' false is not written to GGUF files"};
    }
    if (is_latent() && rope.scale_of_all > 1) {
      if (rope.attention_factor != 1) return UnlikeYarn("an mscale unlike its mscale_all_dim");
      // A tenth of mscale_all_dim, for which readers take mscale too.
      Float("rope.scaling.yarn_log_multiplier", (rope.scale_of_all - 1) / std::log(rope.factor));
      return {};
    }
    if (architecture_ == "mistral3") {
      Float("attention.temperature_scale", rope.query_scale_beta);
      if (rope.attention_factor == 1) {
        Float("rope.scaling.yarn_log_multiplier", 1);
        return {};
      }
    }
    if (std::fabs(rope.attention_factor - (0.1 * std::log(rope.factor) + 1)) < 1e-9) return {};
    return UnlikeYarn("an attention_factor of its own");
  }

  static Error UnlikeYarn(const std::string& with) {
    return {ErrorCode::kUnsupported,
            "rope scaling 'yarn' with " + with + " is not written to GGUF files"};
  }

  Status AddWindow() {
    if (config_.family == ModelFamily::kPhi3) {
      Int("attention.sliding_window", config_.sliding_window);  // 0: none
      return {};
    }
    if (config_.family == ModelFamily::kOlmo) {
      if (config_.sliding_window == 0) return {};
      if (config_.rope_sliding.theta == config_.rope_full.theta) return AddSlidingLayers();
      return {ErrorCode::kUnsupported,
              "a rope_theta of sliding layers of their own (rope_parameters.sliding_attention) is "
              "not written to a GGUF file of olmo2"};
    }
    if (!config_.traits().is_gemma) {
      if (config_.sliding_window == 0) return {};
      return {ErrorCode::kUnsupported,
              "field 'sliding_window' has no place in a GGUF file of " + architecture_};
    }
    KVASIR_TRY_OK(AddSlidingLayers());
    if (config_.family != ModelFamily::kGemma2) {
      Float("rope.freq_base_swa", config_.rope_sliding.theta);
    }
    if (config_.family == ModelFamily::kGemma2 &&
        (config_.final_logit_softcapping == 0 || config_.attn_logit_softcapping == 0)) {
      return {ErrorCode::kUnsupported,
              "a final_logit_softcapping or attn_logit_softcapping of null has no place in a GGUF "
              "file of gemma2: readers divide by it"};
    }
    // Of Gemma 4 also 0: without it readers take 30.
    if (config_.final_logit_softcapping > 0 || is_gemma4()) {
      Float("final_logit_softcapping", config_.final_logit_softcapping);
    }
    if (is_gemma4()) {
      AddGemma4();
      return {};
    }
    if (config_.family == ModelFamily::kGemma2) {
      Float("attn_logit_softcapping", config_.attn_logit_softcapping);
    }
    // Always: what it is without depends on the size of the model.
    Float("attention.scale", 1.0 / std::sqrt(config_.query_pre_attn_scalar));
    return {};
  }

  // Without a window all layers of Gemma 3 are full; the others always have one.
  Status AddSlidingLayers() {
    if (config_.sliding_window == 0) {
      if (config_.family == ModelFamily::kGemma3) return {};
      return {ErrorCode::kUnsupported,
              "no layer slides, which a GGUF file of " + architecture_ + " cannot say"};
    }
    Int("attention.sliding_window", config_.sliding_window);
    std::vector<bool> slides;
    for (const LayerKind kind : config_.layer_kinds) slides.push_back(kind == LayerKind::kSliding);
    pairs_.AddBools(Key("attention.sliding_window_pattern"), slides);
    return {};
  }

  void AddGemma4() {
    Int("attention.key_length_swa", config_.head_dim);
    Int("attention.value_length_swa", config_.head_dim);
    Int("rope.dimension_count_swa", config_.head_dim);
    Int("attention.shared_kv_layers", config_.num_kv_shared_layers);
    Int("embedding_length_per_layer_input", config_.per_layer_embedding_size);
  }

  const ModelConfig& config_;
  const GgufShapeExtras& extras_;
  const std::string architecture_;
  GgufPairs& pairs_;
};

}  // namespace

Status AddGgufShape(const ModelConfig& config, const GgufShapeExtras& extras, GgufPairs* pairs) {
  return ShapeWriter(config, extras, pairs).Write();
}

}  // namespace kvasir
