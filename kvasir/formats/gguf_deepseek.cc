#include "kvasir/formats/gguf_deepseek.h"

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace kvasir {
namespace {

// Files from before there was a key for it have a softmax, unless they have biases for choosing.
Result<bool> HasSigmoids(const GgufKeys& keys, const GgufFile& file, size_t layers) {
  const std::string key = keys.Key("expert_gating_func");
  const int64_t otherwise =
      AnyGgufLayerHas(file, layers, "exp_probs_b.bias") ? kGgufSigmoidGating : kGgufSoftmaxGating;
  KVASIR_TRY(int64_t kind, keys.metadata.IntOr(key, otherwise));
  if (kind == 0) kind = otherwise;
  if (kind == kGgufSoftmaxGating || kind == kGgufSigmoidGating) {
    return kind == kGgufSigmoidGating;
  }
  return Error{ErrorCode::kUnsupported, "metadata '" + key + "' is " + std::to_string(kind) +
                                            "; supported are 1, softmax, and 2, sigmoid"};
}

Status AddMixture(const GgufKeys& keys, bool has_sigmoids, Json* config) {
  KVASIR_TRY_OK(keys.CopyInt("expert_count", "n_routed_experts", config));
  KVASIR_TRY_OK(keys.CopyInt("expert_used_count", "num_experts_per_tok", config));
  KVASIR_TRY_OK(keys.CopyInt("expert_feed_forward_length", "moe_intermediate_size", config));
  KVASIR_TRY(const int64_t shared, keys.metadata.IntOr(keys.Key("expert_shared_count"), 0));
  config->Set("n_shared_experts", shared);
  KVASIR_TRY_OK(keys.CopyInt("leading_dense_block_count", "first_k_dense_replace", config));
  config->Set("moe_layer_freq", int64_t{1});
  KVASIR_TRY(const double scale, keys.metadata.NumberOr(keys.Key("expert_weights_scale"), 1.0));
  config->Set("routed_scaling_factor", scale == 0 ? 1.0 : scale);
  KVASIR_TRY(const bool normalizes, keys.metadata.FlagOr(keys.Key("expert_weights_norm"), false));
  config->Set("norm_topk_prob", normalizes);
  KVASIR_TRY(const int64_t groups, keys.metadata.IntOr(keys.Key("expert_group_count"), 1));
  KVASIR_TRY(const int64_t chosen,
             keys.metadata.IntOr(keys.Key("expert_group_used_count"), groups));
  config->Set("n_group", groups == 0 ? 1 : groups);
  config->Set("topk_group", groups == 0 ? 1 : chosen);
  config->Set("scoring_func", has_sigmoids ? "sigmoid" : "softmax");
  const char* const of_softmax = groups > 1 ? "group_limited_greedy" : "greedy";
  config->Set("topk_method", has_sigmoids ? "noaux_tc" : of_softmax);
  return {};
}

// Newer files have heads as attention sees them, and beside those what they stand for.
Status AddLatent(const GgufKeys& keys, Json* config) {
  const auto& metadata = keys.metadata;
  KVASIR_TRY_OK(keys.CopyInt("attention.kv_lora_rank", "kv_lora_rank", config));
  KVASIR_TRY(const int64_t query_rank, metadata.IntOr(keys.Key("attention.q_lora_rank"), 0));
  config->Set("q_lora_rank", query_rank == 0 ? Json() : Json(query_rank));
  const bool is_absorbed = metadata.Has(keys.Key("attention.key_length_mla"));
  const std::string key =
      keys.Key(is_absorbed ? "attention.key_length_mla" : "attention.key_length");
  KVASIR_TRY(const int64_t head_dim, metadata.Int(key));
  KVASIR_TRY(const int64_t rotary, metadata.Int(keys.Key("rope.dimension_count")));
  if (rotary >= head_dim) {
    return {ErrorCode::kCorrupt, "metadata '" + key + "' is " + std::to_string(head_dim) +
                                     ", must be more than the " + std::to_string(rotary) +
                                     " that turn"};
  }
  config->Set("qk_nope_head_dim", head_dim - rotary);
  config->Set("qk_rope_head_dim", rotary);
  config->Set("head_dim", rotary);  // as the class calls it
  KVASIR_TRY_OK(keys.CopyInt(is_absorbed ? "attention.value_length_mla" : "attention.value_length",
                             "v_head_dim", config));
  KVASIR_TRY(const int64_t heads, config->GetInt("num_attention_heads"));
  config->Set("num_key_value_heads", heads);
  return {};
}

// What would change what is computed, and is in no model of these.
Status RefuseKeys(const GgufKeys& keys, std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) {
    const std::string key = keys.Key(name);
    if (!keys.metadata.Has(key)) continue;
    return {ErrorCode::kUnsupported, "metadata '" + key + "' is there, which is not supported"};
  }
  return {};
}

Status AddDraftBlocks(const GgufKeys& keys, Json* config) {
  KVASIR_TRY_OK(DropGgufDraftBlocks(keys, config));
  KVASIR_TRY(const int64_t drafting, keys.metadata.IntOr(keys.Key("nextn_predict_layers"), 0));
  config->Set("num_nextn_predict_layers", drafting);
  return {};
}

}  // namespace

Status AddGgufDeepSeek(const GgufKeys& keys, const GgufFile& file, Json* config) {
  KVASIR_TRY_OK(RefuseKeys(keys, {"attention.temperature_scale", "attention.temperature_length"}));
  KVASIR_TRY_OK(AddDraftBlocks(keys, config));
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  KVASIR_TRY_OK(AddLatent(keys, config));
  KVASIR_TRY(const int64_t dense, keys.metadata.IntOr(keys.Key("feed_forward_length"), 0));
  if (dense > 0) config->Set("intermediate_size", dense);
  KVASIR_TRY(const int64_t experts, keys.metadata.IntOr(keys.Key("expert_count"), 0));
  if (experts == 0) {
    config->Set("n_routed_experts", nullptr);
    return {};
  }
  KVASIR_TRY(const bool has_sigmoids, HasSigmoids(keys, file, layers));
  if (!has_sigmoids) {
    config->Set("architectures", Json::Array{Json("DeepseekV2ForCausalLM")});
    config->Set("model_type", "deepseek_v2");
  }
  if (dense == 0)
    KVASIR_TRY_OK(keys.CopyInt("expert_feed_forward_length", "intermediate_size", config));
  return AddMixture(keys, has_sigmoids, config);
}

Status AddGgufGlm4(const GgufKeys& keys, Json* config) {
  // Of models that see, whose queries and keys converters reorder.
  KVASIR_TRY_OK(RefuseKeys(keys, {"rope.dimension_sections"}));
  KVASIR_TRY_OK(AddDraftBlocks(keys, config));
  KVASIR_TRY_OK(keys.CopyInt("attention.head_count_kv", "num_key_value_heads", config));
  KVASIR_TRY(const int64_t head_dim, GgufHeadDim(keys, *config));
  config->Set("head_dim", head_dim);
  KVASIR_TRY_OK(keys.CopyInt("feed_forward_length", "intermediate_size", config));
  return AddGgufRotatedPart(keys, head_dim, config);
}

Status AddGgufGlm4Moe(const GgufKeys& keys, const GgufFile& file, Json* config) {
  KVASIR_TRY_OK(AddGgufGlm4(keys, config));
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  KVASIR_TRY(const bool has_sigmoids, HasSigmoids(keys, file, layers));
  if (!has_sigmoids) {
    return {ErrorCode::kUnsupported, "metadata '" + keys.Key("expert_gating_func") +
                                         "' says a softmax; supported are sigmoids, 2"};
  }
  config->Set("rope_scaling", nullptr);  // mlx-lm asks for it
  config->Set("use_qk_norm", AnyGgufLayerHas(file, layers, "attn_q_norm.weight"));
  return AddMixture(keys, true, config);
}

Status AddGgufYarnScales(const GgufKeys& keys, Json* scaling) {
  const std::string key = keys.Key("rope.scaling.yarn_log_multiplier");
  if (!keys.metadata.Has(key)) return {};
  KVASIR_TRY(const double factor, keys.metadata.Number(key));
  // A tenth of the one, and the other has always been its equal.
  const double scale = ShortestDecimal(static_cast<float>(10 * factor));
  scaling->Set("mscale", scale);
  scaling->Set("mscale_all_dim", scale);
  return {};
}

}  // namespace kvasir
