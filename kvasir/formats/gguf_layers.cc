#include "kvasir/formats/gguf_layers.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "kvasir/formats/config_limits.h"

namespace kvasir {
namespace {

// One integer for each layer, whether the file has one for all or an array.
Result<std::vector<int64_t>> PerLayer(const GgufKeys& keys, std::string_view name, size_t layers) {
  const std::string key = keys.Key(name);
  const GgufValue* value = keys.metadata.Find(key);
  if (value == nullptr || std::holds_alternative<int64_t>(*value)) {
    KVASIR_TRY(const int64_t same, keys.metadata.Int(key));
    return std::vector<int64_t>(layers, same);
  }
  KVASIR_TRY(std::vector<int64_t> list, keys.metadata.Ints(key));
  if (list.size() == layers) return list;
  return {ErrorCode::kCorrupt, "metadata '" + key + "' has " + std::to_string(list.size()) +
                                   " elements for " + std::to_string(layers) + " layers"};
}

std::string LayerTensor(size_t layer, std::string_view part) {
  return "blk." + std::to_string(layer) + "." + std::string(part) + ".weight";
}

Status AddExperts(const GgufKeys& keys, std::string_view chosen, Json* config) {
  KVASIR_TRY_OK(keys.CopyInt("expert_count", "num_experts", config));
  KVASIR_TRY_OK(keys.CopyInt("expert_used_count", chosen, config));
  return keys.CopyInt("expert_feed_forward_length", "moe_intermediate_size", config);
}

// Which layers have experts, the tensors say.
void AddDenseLayers(const GgufFile& file, size_t layers, Json* config) {
  Json dense = Json::Array();
  for (size_t i = 0; i < layers; ++i) {
    if (file.Find(LayerTensor(i, "ffn_gate_inp")) == nullptr) {
      dense.Append(static_cast<int64_t>(i));
    }
  }
  config->Set("decoder_sparse_step", int64_t{1});
  config->Set("mlp_only_layers", std::move(dense));
}

Error Unlike(const std::string& key, size_t layer) {
  return {ErrorCode::kUnsupported, "metadata '" + key + "' makes layer " + std::to_string(layer) +
                                       " unlike others of its kind"};
}

// The last layer is full whatever the pattern says, as in ModelConfig.
std::vector<bool> FullLayers(const Json& config, size_t layers) {
  constexpr size_t kPattern = 6;
  std::vector<bool> full(layers);
  const Json* const types = config.Find("layer_types");
  for (size_t i = 0; i < layers; ++i) {
    const bool is_listed = types != nullptr && i < types->as_array().size();
    full[i] = i + 1 == layers || (is_listed ? types->as_array()[i] == Json("full_attention")
                                            : (i + 1) % kPattern == 0);
  }
  return full;
}

Status AddHeads(const GgufKeys& keys, const std::vector<bool>& full, Json* config) {
  KVASIR_TRY(const int64_t global, keys.metadata.Int(keys.Key("attention.key_length")));
  KVASIR_TRY(const int64_t local,
             keys.metadata.IntOr(keys.Key("attention.key_length_swa"), global));
  config->Set("head_dim", local);
  config->Set("global_head_dim", global);
  KVASIR_TRY(const auto heads, PerLayer(keys, "attention.head_count_kv", full.size()));
  std::optional<int64_t> of_kind[2];
  for (size_t i = 0; i < full.size(); ++i) {
    std::optional<int64_t>& known = of_kind[full[i] ? 1 : 0];
    if (known.value_or(heads[i]) != heads[i]) {
      return Unlike(keys.Key("attention.head_count_kv"), i);
    }
    known = heads[i];
  }
  // There is always a full layer: the last one.
  config->Set("num_key_value_heads", of_kind[0].value_or(*of_kind[1]));
  config->Set("num_global_key_value_heads", *of_kind[1]);
  return {};
}

// Layers that share keys and values may have an MLP of twice the size.
Status AddMlpSizes(const GgufKeys& keys, size_t layers, int64_t shared, Json* config) {
  constexpr std::string_view kName = "feed_forward_length";
  KVASIR_TRY(const auto sizes, PerLayer(keys, kName, layers));
  const bool is_double = sizes.back() / 2 == sizes.front() && sizes.back() % 2 == 0 && shared > 0;
  for (size_t i = 0; i < layers; ++i) {
    const bool shares = static_cast<int64_t>(i) >= static_cast<int64_t>(layers) - shared;
    if (sizes[i] != (is_double && shares ? sizes.back() : sizes.front())) {
      return Unlike(keys.Key(kName), i);
    }
  }
  config->Set("intermediate_size", sizes.front());
  config->Set("use_double_wide_mlp", is_double);
  return {};
}

Status AddDeltaNet(const GgufKeys& keys, Json* config) {
  KVASIR_TRY_OK(keys.CopyInt("ssm.conv_kernel", "linear_conv_kernel_dim", config));
  KVASIR_TRY_OK(keys.CopyInt("ssm.state_size", "linear_key_head_dim", config));
  KVASIR_TRY_OK(keys.CopyInt("ssm.group_count", "linear_num_key_heads", config));
  KVASIR_TRY_OK(keys.CopyInt("ssm.time_step_rank", "linear_num_value_heads", config));
  const std::string key = keys.Key("ssm.inner_size");
  KVASIR_TRY(const int64_t values, keys.metadata.SameInt(key));
  KVASIR_TRY(const int64_t heads, config->GetInt("linear_num_value_heads"));
  if (heads <= 0 || values % heads != 0) {
    return {ErrorCode::kCorrupt, "metadata '" + key + "' is " + std::to_string(values) +
                                     ", no multiple of the " + std::to_string(heads) +
                                     " value heads"};
  }
  config->Set("linear_value_head_dim", values / heads);
  return {};
}

// A bool for each block, where a file has them; else every so many layers one is full.
Status AddLinearLayers(const GgufKeys& keys, size_t layers, Json* config) {
  const std::string key = keys.Key("attention.recurrent_layers");
  if (!keys.metadata.Has(key)) {
    KVASIR_TRY(const int64_t interval, keys.metadata.IntOr(keys.Key("full_attention_interval"), 4));
    config->Set("full_attention_interval", interval);
    return {};
  }
  KVASIR_TRY(const std::vector<int64_t> recurrent, keys.metadata.Ints(key));
  if (recurrent.size() < layers) {
    return {ErrorCode::kCorrupt, "metadata '" + key + "' has " + std::to_string(recurrent.size()) +
                                     " elements for " + std::to_string(layers) + " layers"};
  }
  Json::Array types;
  for (size_t i = 0; i < layers; ++i) {
    types.push_back(Json(recurrent[i] != 0 ? "linear_attention" : "full_attention"));
  }
  config->Set("layer_types", std::move(types));
  return {};
}

// One number for all, or one for each block, which is 0 where there is no attention.
Result<int64_t> KeyValueHeads(const GgufKeys& keys) {
  const std::string key = keys.Key("attention.head_count_kv");
  const GgufValue* const value = keys.metadata.Find(key);
  if (value == nullptr) return keys.metadata.Int(keys.Key("attention.head_count"));
  if (std::holds_alternative<int64_t>(*value)) return keys.metadata.Int(key);
  KVASIR_TRY(const std::vector<int64_t> list, keys.metadata.Ints(key));
  int64_t heads = 0;
  for (const int64_t here : list) {
    if (here < 0) return {ErrorCode::kCorrupt, "metadata '" + key + "' has a negative number"};
    if (heads != 0 && here != 0 && here != heads) {
      return {ErrorCode::kUnsupported, "metadata '" + key + "' differs between layers"};
    }
    heads = std::max(heads, here);
  }
  return heads;
}

// Heads of keys and values; and what layers are: `recurrent` those that have none.
Status AddHybridHeads(const GgufKeys& keys, const char* attention, const char* recurrent,
                      Json* config) {
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  KVASIR_TRY(int64_t heads, KeyValueHeads(keys));
  // Where no layer has any there are as many as queries, of which nobody asks.
  if (heads == 0) {
    KVASIR_TRY(heads, keys.metadata.Int(keys.Key("attention.head_count")));
  }
  config->Set("num_key_value_heads", heads);
  KVASIR_TRY(const auto of_layers, PerLayer(keys, "attention.head_count_kv", layers));
  Json::Array types;
  for (const int64_t here : of_layers) types.push_back(Json(here == 0 ? recurrent : attention));
  config->Set("layer_types", std::move(types));
  KVASIR_TRY(const int64_t head_dim, GgufHeadDim(keys, *config));
  config->Set("head_dim", head_dim);
  return {};
}

// Sigmoids choose LFM2's experts; a file that says otherwise is of another model.
Status CheckGating(const GgufKeys& keys) {
  const std::string key = keys.Key("expert_gating_func");
  KVASIR_TRY(const int64_t kind, keys.metadata.IntOr(key, kGgufSigmoidGating));
  if (kind == kGgufSigmoidGating) return {};
  return {ErrorCode::kUnsupported,
          "metadata '" + key + "' is " + std::to_string(kind) + "; supported is 2, sigmoid"};
}

}  // namespace

Status GgufKeys::CopyInt(std::string_view name, std::string_view field, Json* config) const {
  KVASIR_TRY(const int64_t value, metadata.SameInt(Key(name)));
  config->Set(field, value);
  return {};
}

Result<int64_t> GgufHeadDim(const GgufKeys& keys, const Json& config) {
  KVASIR_TRY(const int64_t heads, config.GetInt("num_attention_heads"));
  KVASIR_TRY(const int64_t hidden, config.GetInt("hidden_size"));
  return keys.metadata.IntOr(keys.Key("attention.key_length"), heads > 0 ? hidden / heads : 0);
}

// The pattern: an integer n (every n-th layer is full), a bool for each layer (true slides), or
// nothing (what the family has).
Status AddGgufWindow(const GgufKeys& keys, Json* config) {
  if (!keys.metadata.Has(keys.Key("attention.sliding_window"))) {
    if (keys.architecture == "gemma2") return {};  // what the family has
    if (keys.architecture == "gemma3") {
      config->Set("sliding_window", nullptr);  // all layers are full
      return {};
    }
  }
  KVASIR_TRY_OK(keys.CopyInt("attention.sliding_window", "sliding_window", config));
  const std::string key = keys.Key("attention.sliding_window_pattern");
  const GgufValue* value = keys.metadata.Find(key);
  if (value == nullptr) return {};
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  std::vector<int64_t> slides;
  if (const auto* every = std::get_if<int64_t>(value)) {
    if (*every < 1) return {ErrorCode::kCorrupt, "metadata '" + key + "' must be at least 1"};
    for (size_t i = 0; i < layers; ++i) {
      slides.push_back((i + 1) % static_cast<size_t>(*every) == 0 ? 0 : 1);
    }
  } else {
    KVASIR_TRY(slides, PerLayer(keys, "attention.sliding_window_pattern", layers));
  }
  Json::Array types;
  for (const int64_t layer : slides) {
    types.push_back(Json(layer != 0 ? "sliding_attention" : "full_attention"));
  }
  config->Set("layer_types", std::move(types));
  return {};
}

Status AddGgufRotatedPart(const GgufKeys& keys, int64_t head_dim, Json* config) {
  const std::string key = keys.Key("rope.dimension_count");
  KVASIR_TRY(const int64_t rotated, keys.metadata.IntOr(key, head_dim));
  if (head_dim <= 0 || rotated <= 0 || rotated > head_dim) {
    return {ErrorCode::kCorrupt, "metadata '" + key + "' is " + std::to_string(rotated) + " of " +
                                     std::to_string(head_dim)};
  }
  double fraction = static_cast<double>(rotated) / static_cast<double>(head_dim);
  // Readers multiply and cut.
  if (static_cast<int64_t>(fraction * static_cast<double>(head_dim)) < rotated) {
    fraction = std::nextafter(fraction, 2.0);
  }
  config->Set("partial_rotary_factor", fraction);
  return {};
}

bool AnyGgufLayerHas(const GgufFile& file, size_t layers, const std::string& part) {
  for (size_t i = 0; i < layers; ++i) {
    if (file.Find("blk." + std::to_string(i) + "." + part) != nullptr) return true;
  }
  return false;
}

Result<size_t> GgufLayerCount(const Json& config) {
  KVASIR_TRY(const int64_t layers, config.GetInt("num_hidden_layers"));
  if (layers >= 1 && layers <= kMaxLayers) return static_cast<size_t>(layers);
  return {ErrorCode::kCorrupt, "metadata 'block_count' is " + std::to_string(layers) +
                                   ", must be between 1 and " + std::to_string(kMaxLayers)};
}

Status DropGgufDraftBlocks(const GgufKeys& keys, Json* config) {
  const std::string key = keys.Key("nextn_predict_layers");
  KVASIR_TRY(const int64_t drafting, keys.metadata.IntOr(key, 0));
  KVASIR_TRY(const int64_t blocks, config->GetInt("num_hidden_layers"));
  if (drafting < 0 || drafting >= blocks) {
    return {ErrorCode::kCorrupt, "metadata '" + key + "' is " + std::to_string(drafting) + " of " +
                                     std::to_string(blocks) + " blocks"};
  }
  config->Set("num_hidden_layers", blocks - drafting);
  return {};
}

Status AddGgufQwenExperts(const GgufKeys& keys, const GgufFile& file, Json* config) {
  KVASIR_TRY_OK(AddExperts(keys, "num_experts_per_tok", config));
  config->Set("norm_topk_prob", true);  // the metadata does not say; every release does
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  AddDenseLayers(file, layers, config);
  return {};
}

Status AddGgufQwen35(const GgufKeys& keys, const GgufFile& file, Json* config) {
  const GgufMetadata& metadata = keys.metadata;
  KVASIR_TRY_OK(DropGgufDraftBlocks(keys, config));
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  KVASIR_TRY_OK(AddDeltaNet(keys, config));
  KVASIR_TRY_OK(AddLinearLayers(keys, layers, config));
  KVASIR_TRY(const auto heads, KeyValueHeads(keys));
  config->Set("num_key_value_heads", heads);
  KVASIR_TRY(const int64_t head_dim, GgufHeadDim(keys, *config));
  config->Set("head_dim", head_dim);
  KVASIR_TRY_OK(AddGgufRotatedPart(keys, head_dim, config));
  if (metadata.Has(keys.Key("feed_forward_length"))) {
    KVASIR_TRY_OK(keys.CopyInt("feed_forward_length", "intermediate_size", config));
  }
  if (keys.architecture == "qwen35") return {};  // the others always have experts
  KVASIR_TRY_OK(AddExperts(keys, "num_experts_per_tok", config));
  // llama.cpp has no other files of Qwen3-Next than those with experts everywhere, but forks do.
  if (keys.architecture == "qwen3next") AddDenseLayers(file, layers, config);
  KVASIR_TRY(const int64_t size, metadata.SameInt(keys.Key("expert_feed_forward_length")));
  KVASIR_TRY(const int64_t shared,
             metadata.IntOr(keys.Key("expert_shared_feed_forward_length"), size));
  config->Set("shared_expert_intermediate_size", shared);
  config->Set("norm_topk_prob", true);  // the metadata does not say; every release does
  return {};
}

Status AddGgufLfm2(const GgufKeys& keys, const GgufFile& file, Json* config) {
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  KVASIR_TRY_OK(AddHybridHeads(keys, "full_attention", "conv", config));
  const std::string window = keys.Key("attention.sliding_window");
  KVASIR_TRY(const int64_t size, keys.metadata.IntOr(window, 0));
  if (size != 0) {
    return {ErrorCode::kUnsupported, "metadata '" + window + "' is " + std::to_string(size) +
                                         ": LFM2 with a window is not supported"};
  }
  KVASIR_TRY_OK(keys.CopyInt("shortconv.l_cache", "conv_L_cache", config));
  config->Set("conv_bias", false);
  KVASIR_TRY_OK(keys.CopyInt("feed_forward_length", "intermediate_size", config));
  KVASIR_TRY(const double eps, config->GetDouble("rms_norm_eps"));
  config->Set("norm_eps", eps);
  if (keys.architecture != "lfm2moe") {
    // What mlx-lm asks for besides.
    KVASIR_TRY(const int64_t hidden, config->GetInt("hidden_size"));
    config->Set("block_dim", hidden);
    config->Set("block_auto_adjust_ff_dim", false);
    config->Set("block_multiple_of", int64_t{256});
    config->Set("block_ffn_dim_multiplier", 1.0);
    return {};
  }
  KVASIR_TRY_OK(CheckGating(keys));
  KVASIR_TRY_OK(AddExperts(keys, "num_experts_per_tok", config));
  KVASIR_TRY_OK(keys.CopyInt("leading_dense_block_count", "num_dense_layers", config));
  config->Set("norm_topk_prob", true);  // the metadata does not say; every release does
  config->Set("use_expert_bias", AnyGgufLayerHas(file, layers, "exp_probs_b.bias"));
  KVASIR_TRY(const double scale, keys.metadata.NumberOr(keys.Key("expert_weights_scale"), 1.0));
  config->Set("routed_scaling_factor", scale == 0 ? 1.0 : scale);
  return {};
}

Status AddGgufGraniteHybrid(const GgufKeys& keys, const GgufFile& file, Json* config) {
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  KVASIR_TRY_OK(AddHybridHeads(keys, "attention", "mamba", config));
  KVASIR_TRY_OK(keys.CopyInt("ssm.conv_kernel", "mamba_d_conv", config));
  KVASIR_TRY_OK(keys.CopyInt("ssm.state_size", "mamba_d_state", config));
  KVASIR_TRY_OK(keys.CopyInt("ssm.group_count", "mamba_n_groups", config));
  KVASIR_TRY_OK(keys.CopyInt("ssm.time_step_rank", "mamba_n_heads", config));
  const std::string key = keys.Key("ssm.inner_size");
  KVASIR_TRY(const int64_t inner, keys.metadata.SameInt(key));
  KVASIR_TRY(const int64_t heads, config->GetInt("mamba_n_heads"));
  KVASIR_TRY(const int64_t hidden, config->GetInt("hidden_size"));
  if (heads <= 0 || inner % heads != 0 || hidden <= 0 || inner % hidden != 0) {
    return {ErrorCode::kUnsupported, "metadata '" + key + "' is " + std::to_string(inner) +
                                         ", no multiple of the " + std::to_string(heads) +
                                         " heads and of the hidden size " + std::to_string(hidden)};
  }
  config->Set("mamba_d_head", inner / heads);
  config->Set("mamba_expand", inner / hidden);
  config->Set("mamba_conv_bias", AnyGgufLayerHas(file, layers, "ssm_conv1d.bias"));
  config->Set("mamba_proj_bias", false);
  KVASIR_TRY_OK(keys.CopyInt("feed_forward_length", "intermediate_size", config));
  KVASIR_TRY(const int64_t experts, keys.metadata.IntOr(keys.Key("expert_count"), 0));
  config->Set("num_local_experts", experts);
  if (experts == 0) {
    return keys.CopyInt("feed_forward_length", "shared_intermediate_size", config);
  }
  KVASIR_TRY_OK(keys.CopyInt("expert_used_count", "num_experts_per_tok", config));
  return keys.CopyInt("expert_shared_feed_forward_length", "shared_intermediate_size", config);
}

Status AddGgufGptOss(const GgufKeys& keys, Json* config) {
  KVASIR_TRY_OK(AddGgufWindow(keys, config));
  KVASIR_TRY_OK(keys.CopyInt("expert_count", "num_local_experts", config));
  return keys.CopyInt("expert_used_count", "num_experts_per_tok", config);
}

Status AddGgufGemma4(const GgufKeys& keys, const GgufFile& file, Json* config) {
  KVASIR_TRY(const size_t layers, GgufLayerCount(*config));
  const std::vector<bool> full = FullLayers(*config, layers);
  KVASIR_TRY_OK(AddHeads(keys, full, config));
  KVASIR_TRY(const int64_t shared, keys.metadata.IntOr(keys.Key("attention.shared_kv_layers"), 0));
  if (shared < 0 || shared > static_cast<int64_t>(layers)) {
    return {ErrorCode::kCorrupt, "metadata '" + keys.Key("attention.shared_kv_layers") +
                                     "' must be 0 to " + std::to_string(layers) + ", not " +
                                     std::to_string(shared)};
  }
  config->Set("num_kv_shared_layers", shared);
  KVASIR_TRY_OK(AddMlpSizes(keys, layers, shared, config));
  KVASIR_TRY(const int64_t per_layer,
             keys.metadata.IntOr(keys.Key("embedding_length_per_layer_input"), 0));
  config->Set("hidden_size_per_layer_input", per_layer);
  KVASIR_TRY(const int64_t vocabulary, config->GetInt("vocab_size"));
  config->Set("vocab_size_per_layer_input", vocabulary);
  size_t first_full = 0;
  while (!full[first_full]) ++first_full;
  config->Set("attention_k_eq_v", file.Find(LayerTensor(first_full, "attn_v")) == nullptr);
  KVASIR_TRY(const int64_t experts, keys.metadata.IntOr(keys.Key("expert_count"), 0));
  config->Set("enable_moe_block", experts != 0);
  return experts == 0 ? Status() : AddExperts(keys, "top_k_experts", config);
}

}  // namespace kvasir
