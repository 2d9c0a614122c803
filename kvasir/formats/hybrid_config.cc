#include "kvasir/formats/hybrid_config.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/formats/config_limits.h"
#include "kvasir/formats/layer_config.h"

namespace kvasir {
namespace {

// What an MLP's size becomes where the class computes it from the one that is written.
Status AdjustMlpSize(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(const bool adjusts, reader.Flag("block_auto_adjust_ff_dim", true));
  if (!adjusts) return {};
  int64_t size = 2 * model->intermediate_size / 3;
  if (!reader.IsNull("block_ffn_dim_multiplier")) {
    KVASIR_TRY(const double factor, reader.Number("block_ffn_dim_multiplier", 1.0, 1e-3, 1e3));
    KVASIR_TRY(const int64_t unit, reader.Integer("block_multiple_of", 256, 1, kMaxIntermediate));
    size = static_cast<int64_t>(factor * static_cast<double>(size));
    size = (size + unit - 1) / unit * unit;
  }
  if (size < 1 || size > kMaxIntermediate) {
    return reader.Bad("block_ff_dim", "makes MLPs of " + std::to_string(size) + ", not 1 to " +
                                          std::to_string(kMaxIntermediate));
  }
  model->intermediate_size = size;
  return {};
}

Status ReadLfm2Experts(const ConfigReader& reader, ModelConfig* model) {
  const std::string_view count =
      reader.Find("num_experts") == nullptr ? "num_local_experts" : "num_experts";
  KVASIR_TRY(ExpertsConfig experts, ReadExperts(reader, count, 32, "num_experts_per_tok", 4,
                                                "moe_intermediate_size", 1792));
  experts.has_sigmoid_scores = true;
  KVASIR_TRY(experts.has_choice_biases, reader.Flag("use_expert_bias", true));
  KVASIR_TRY(experts.normalizes_weights, reader.Flag("norm_topk_prob", true));
  KVASIR_TRY(experts.weight_scale, reader.Number("routed_scaling_factor", 1.0, 1e-9, 1e9));
  KVASIR_TRY(const int64_t dense, reader.Integer("num_dense_layers", 2, 0, kMaxLayers));
  model->experts = experts;
  for (int i = 0; i < model->num_hidden_layers; ++i) model->expert_layers.push_back(i >= dense);
  return {};
}

// transformers 5 has other words than the published files.
Result<std::vector<LayerKind>> ReadMambaLayers(const ConfigReader& reader,
                                               const ModelConfig& model) {
  const std::string_view field =
      reader.Find("layer_types") == nullptr && reader.Find("layers_block_type") != nullptr
          ? "layers_block_type"
          : "layer_types";
  const Json* types = reader.Find(field);
  if (types == nullptr || !types->is_array() ||
      types->as_array().size() != static_cast<size_t>(model.num_hidden_layers)) {
    return reader.Bad(field, "must list one type for each of the " +
                                 std::to_string(model.num_hidden_layers) + " layers");
  }
  std::vector<LayerKind> kinds;
  for (const Json& type : types->as_array()) {
    if (type == Json("attention") || type == Json("full_attention")) {
      kinds.push_back(LayerKind::kFull);
    } else if (type == Json("mamba") || type == Json("linear_attention")) {
      kinds.push_back(LayerKind::kRecurrent);
    } else {
      const std::string name = type.is_string() ? type.as_string().substr(0, 40) : "no string";
      return reader.Bad(field, "holds '" + name + "'; supported are attention and mamba",
                        ErrorCode::kUnsupported);
    }
  }
  return kinds;
}

Status RefuseOtherMamba(const ConfigReader& reader, const ModelConfig& model) {
  KVASIR_TRY(const bool has_bias, reader.Flag("mamba_proj_bias", false));
  if (has_bias) {
    return reader.Bad("mamba_proj_bias", "is true: projections with biases are not supported",
                      ErrorCode::kUnsupported);
  }
  if (model.activation != Activation::kSilu) {
    return reader.Bad("hidden_act", "must be silu: Mamba layers have no other here",
                      ErrorCode::kUnsupported);
  }
  // What steps are held to: nothing in any published file.
  const Json* limit = reader.Find("time_step_limit");
  if (limit == nullptr) return {};
  if (limit->is_array() && limit->as_array().size() == 2) {
    // JSON has no infinity; what stands for it is no number.
    const Json& least = limit->as_array()[0];
    const Json& most = limit->as_array()[1];
    if (least.is_number() && least.as_double() == 0 && !most.is_number()) return {};
  }
  return reader.Bad("time_step_limit", "must be 0 and infinity: other limits are not supported",
                    ErrorCode::kUnsupported);
}

Status ReadMamba(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY_OK(RefuseOtherMamba(reader, *model));
  DeltaNetConfig net;
  net.is_mamba = true;
  KVASIR_TRY(net.has_conv_bias, reader.Flag("mamba_conv_bias", true));
  KVASIR_TRY(const int64_t heads, reader.Integer("mamba_n_heads", 128, 1, kMaxHeads));
  KVASIR_TRY(const int64_t groups, reader.Integer("mamba_n_groups", 1, 1, kMaxHeads));
  KVASIR_TRY(const int64_t state, reader.Integer("mamba_d_state", 256, 1, kMaxHeadDim));
  KVASIR_TRY(const int64_t width, reader.Integer("mamba_d_conv", 4, 2, kMaxConvWidth));
  KVASIR_TRY(const double expand, reader.Number("mamba_expand", 2.0, 1e-3, 1e3));
  const auto inner = static_cast<int64_t>(expand * static_cast<double>(model->hidden_size));
  const Json* head = reader.Find("mamba_d_head");
  const bool is_derived = head == nullptr || *head == Json("auto");
  int64_t head_dim = inner / heads;
  if (!is_derived) {
    KVASIR_TRY(head_dim, reader.Integer("mamba_d_head", 64, 1, kMaxHeadDim));
  }
  if (head_dim < 1 || head_dim > kMaxHeadDim || heads * head_dim != inner) {
    return reader.Bad("mamba_n_heads",
                      std::to_string(heads) + " heads of " + std::to_string(head_dim) +
                          " are not mamba_expand times hidden_size, " + std::to_string(inner));
  }
  if (heads % groups != 0) {
    return reader.Bad("mamba_n_groups", std::to_string(groups) + " must divide the " +
                                            std::to_string(heads) + " heads");
  }
  net.key_heads = static_cast<int>(groups);
  net.value_heads = static_cast<int>(heads);
  net.key_dim = static_cast<int>(state);
  net.value_dim = static_cast<int>(head_dim);
  net.conv_width = static_cast<int>(width);
  model->delta_net = net;
  return {};
}

Status ReadGraniteMixture(const ConfigReader& reader, int64_t shared, ModelConfig* model) {
  KVASIR_TRY(model->experts, ReadExperts(reader, "num_local_experts", 8, "num_experts_per_tok", 2,
                                         "intermediate_size", model->intermediate_size));
  model->experts.shared_intermediate_size = shared;
  model->experts.has_shared_gate = false;
  model->expert_layers.assign(static_cast<size_t>(model->num_hidden_layers), true);
  return {};
}

}  // namespace

Result<std::vector<LayerKind>> ReadConvLayers(const ConfigReader& reader,
                                              const ModelConfig& model) {
  constexpr std::string_view kField = "full_attn_idxs";
  const auto layers = static_cast<size_t>(model.num_hidden_layers);
  const Json* list = reader.Find(kField);
  if (list == nullptr) return std::vector<LayerKind>(layers, LayerKind::kFull);
  if (!list->is_array()) return reader.Bad(kField, "must be a list of layers");
  std::vector<LayerKind> kinds(layers, LayerKind::kRecurrent);
  for (const Json& layer : list->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= model.num_hidden_layers) {
      return reader.Bad(kField, "must list layers below " + std::to_string(layers));
    }
    kinds[static_cast<size_t>(layer.as_int())] = LayerKind::kFull;
  }
  return kinds;
}

Status ReadLfm2Layers(const ConfigReader& reader, const ConfigDefaults& defaults,
                      ModelConfig* model) {
  KVASIR_TRY(const int64_t width, reader.Integer("conv_L_cache", 3, 2, kMaxConvWidth));
  model->short_conv.width = static_cast<int>(width);
  KVASIR_TRY(model->short_conv.has_bias, reader.Flag("conv_bias", false));
  if (defaults.model_type == kLfm2Moe) return ReadLfm2Experts(reader, model);
  // The older name of the size wins, as in the class.
  KVASIR_TRY(model->intermediate_size,
             reader.Integer("block_ff_dim", model->intermediate_size, 1, kMaxIntermediate));
  return AdjustMlpSize(reader, model);
}

Status ReadGraniteHybrid(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(model->layer_kinds, ReadMambaLayers(reader, *model));
  if (std::ranges::count(model->layer_kinds, LayerKind::kRecurrent) > 0) {
    KVASIR_TRY_OK(ReadMamba(reader, model));
  }
  KVASIR_TRY(const int64_t experts,
             reader.Integer("num_local_experts", reader.IsNull("num_local_experts") ? 0 : 8, 0,
                            kMaxExperts));
  KVASIR_TRY(const int64_t shared,
             reader.Integer("shared_intermediate_size", 1024, 1, kMaxIntermediate));
  if (experts != 0) KVASIR_TRY_OK(ReadGraniteMixture(reader, shared, model));
  model->intermediate_size = shared;
  KVASIR_TRY(const std::string positions, reader.Text("position_embedding_type", "nope"));
  if (positions != "rope") {
    model->still_layers.assign(static_cast<size_t>(model->num_hidden_layers), true);
  }
  model->has_shared_mlp = true;
  return {};
}

Status ReadGraniteExperts(const ConfigReader& reader, const ConfigDefaults& defaults,
                          ModelConfig* model) {
  int64_t shared = 0;
  if (defaults.model_type == kGraniteMoeShared) {
    KVASIR_TRY(shared, reader.Integer("shared_intermediate_size", 1024, 1, kMaxIntermediate));
  }
  KVASIR_TRY_OK(ReadGraniteMixture(reader, shared, model));
  model->has_shared_mlp = true;
  return {};
}

}  // namespace kvasir
