#include "kvasir/formats/latent_config.h"

#include <string>
#include <string_view>

#include "kvasir/formats/config_limits.h"
#include "kvasir/formats/layer_config.h"

namespace kvasir {
namespace {

// What the classes fill in.
struct LatentDefaults {
  int64_t query_rank;
  int64_t plain_dim;
  int64_t value_dim;
};
LatentDefaults LatentDefaultsOf(const ConfigDefaults& defaults) {
  if (defaults.model_type == kGlm4MoeLite) return {768, 192, 256};
  return {1536, 128, 128};
}

struct ExpertDefaults {
  int64_t count;
  int64_t per_token;
  int64_t intermediate_size;
  int64_t first_layer;
  double weight_scale;
  int64_t shared;
  int64_t groups;
  int64_t groups_per_token;
};
constexpr ExpertDefaults kDeepSeekV2Experts = {64, 6, 1407, 0, 1.0, 2, 1, 1};
constexpr ExpertDefaults kDeepSeekV3Experts = {256, 8, 2048, 3, 2.5, 1, 8, 4};
constexpr ExpertDefaults kGlm4MoeLiteExperts = {64, 4, 1536, 1, 1.8, 1, 1, 1};
constexpr ExpertDefaults kGlm4MoeExperts = {128, 8, 1408, 1, 1.0, 1, 1, 1};

Status ReadLatent(const ConfigReader& reader, const ConfigDefaults& defaults, ModelConfig* model) {
  const LatentDefaults otherwise = LatentDefaultsOf(defaults);
  LatentConfig latent;
  const auto read = [&](std::string_view field, int64_t unsaid, int64_t most, int* out) -> Status {
    KVASIR_TRY(const int64_t value, reader.Integer(field, unsaid, 1, most));
    *out = static_cast<int>(value);
    return {};
  };
  const bool has_query_rank = !reader.IsNull("q_lora_rank");
  if (has_query_rank) {
    KVASIR_TRY_OK(read("q_lora_rank", otherwise.query_rank, kMaxHidden, &latent.query_rank));
  }
  KVASIR_TRY_OK(read("kv_lora_rank", 512, kMaxHeadDim, &latent.kv_rank));
  KVASIR_TRY_OK(read("qk_nope_head_dim", otherwise.plain_dim, kMaxHeadDim, &latent.plain_dim));
  KVASIR_TRY_OK(read("qk_rope_head_dim", 64, kMaxHeadDim, &latent.rotary_dim));
  KVASIR_TRY_OK(read("v_head_dim", otherwise.value_dim, kMaxHeadDim, &latent.value_dim));
  if (latent.kv_rank % 2 != 0) return reader.Bad("kv_lora_rank", "must be even");
  if (latent.rotary_dim % 2 != 0) {
    return reader.Bad("qk_rope_head_dim", "must be even: RoPE turns pairs");
  }
  if (latent.kv_rank + latent.rotary_dim > kMaxHeadDim) {
    return reader.Bad("kv_lora_rank", std::to_string(latent.kv_rank) + " and qk_rope_head_dim " +
                                          std::to_string(latent.rotary_dim) + " are more than " +
                                          std::to_string(kMaxHeadDim));
  }
  KVASIR_TRY(const bool is_interleaved, reader.Flag("rope_interleave", true));
  if (!is_interleaved) {
    return reader.Bad("rope_interleave", "is false: only pairs of neighbours are supported",
                      ErrorCode::kUnsupported);
  }
  if (model->qkv_bias) {
    return reader.Bad("attention_bias", "is true: latent attention with biases is not supported",
                      ErrorCode::kUnsupported);
  }
  model->latent = latent;
  model->head_dim = latent.kv_rank + latent.rotary_dim;
  model->num_key_value_heads = 1;
  model->global_head_dim = model->head_dim;
  model->global_key_value_heads = 1;
  model->values_from_keys = true;
  return {};
}

// Which layers have experts: those from the first on, every so many, or those in a list.
Status ReadSparseLayers(const ConfigReader& reader, int64_t first_by_default, ModelConfig* model) {
  constexpr std::string_view kTypes = "mlp_layer_types";
  const auto layers = static_cast<size_t>(model->num_hidden_layers);
  const Json* types = reader.Find(kTypes);
  if (types != nullptr) {
    if (!types->is_array() || types->as_array().size() != layers) {
      return reader.Bad(kTypes,
                        "must list one type for each of the " + std::to_string(layers) + " layers");
    }
    for (const Json& type : types->as_array()) {
      if (type != Json("sparse") && type != Json("dense")) {
        return reader.Bad(kTypes, "must hold sparse and dense alone");
      }
      model->expert_layers.push_back(type == Json("sparse"));
    }
    return {};
  }
  KVASIR_TRY(const int64_t first,
             reader.Integer("first_k_dense_replace", first_by_default, 0, kMaxLayers));
  KVASIR_TRY(const int64_t step, reader.Integer("moe_layer_freq", 1, 1, kMaxLayers));
  for (int i = 0; i < model->num_hidden_layers; ++i) {
    model->expert_layers.push_back(i >= first && i % step == 0);
  }
  return {};
}

Status ReadGroups(const ConfigReader& reader, const ExpertDefaults& defaults,
                  ExpertsConfig* experts) {
  KVASIR_TRY(const int64_t groups, reader.Integer("n_group", defaults.groups, 1, kMaxExperts));
  KVASIR_TRY(const int64_t chosen,
             reader.Integer("topk_group", defaults.groups_per_token, 1, kMaxExperts));
  if (experts->count % groups != 0) {
    return reader.Bad("n_group", std::to_string(groups) + " must divide the " +
                                     std::to_string(experts->count) + " experts");
  }
  const int64_t in_group = experts->count / groups;
  if (chosen > groups || chosen * in_group < experts->per_token) {
    return reader.Bad("topk_group", std::to_string(chosen) + " of " + std::to_string(groups) +
                                        " groups of " + std::to_string(in_group) +
                                        " experts leave no " + std::to_string(experts->per_token) +
                                        " to choose");
  }
  if (chosen == groups) return {};  // which hides nothing
  experts->groups = static_cast<int>(groups);
  experts->groups_per_token = static_cast<int>(chosen);
  return {};
}

// `experts` has what is alike.
Status ReadSoftmaxChoice(const ConfigReader& reader, ExpertsConfig* experts) {
  KVASIR_TRY(const std::string method, reader.Text("topk_method", "greedy"));
  if (method == "greedy") {
    experts->groups = 1;
    experts->groups_per_token = 1;
  } else if (method != "group_limited_greedy") {
    return reader.Bad(
        "topk_method",
        "is '" + method.substr(0, 40) + "'; supported are greedy and group_limited_greedy",
        ErrorCode::kUnsupported);
  }
  KVASIR_TRY(const std::string scores, reader.Text("scoring_func", "softmax"));
  if (scores != "softmax") {
    return reader.Bad("scoring_func", "is '" + scores.substr(0, 40) + "'; supported is softmax",
                      ErrorCode::kUnsupported);
  }
  KVASIR_TRY(const bool normalizes, reader.Flag("norm_topk_prob", false));
  if (normalizes) {
    return reader.Bad("norm_topk_prob", "is true: readers of DeepSeek-V2 differ about what it does",
                      ErrorCode::kUnsupported);
  }
  experts->normalizes_weights = false;
  return {};
}

Status ReadSigmoidChoice(const ConfigReader& reader, ExpertsConfig* experts) {
  for (const auto& [field, only] :
       {std::pair<std::string_view, const char*>{"topk_method", "noaux_tc"},
        {"scoring_func", "sigmoid"}}) {
    KVASIR_TRY(const std::string value, reader.Text(field, only));
    if (value != only) {
      return reader.Bad(field,
                        "is '" + value.substr(0, 40) + "'; supported is " + std::string(only),
                        ErrorCode::kUnsupported);
    }
  }
  if (experts->groups > 1 && experts->count / experts->groups < 2) {
    return reader.Bad("n_group", "leaves groups of one expert, which the two best are to rank");
  }
  experts->has_sigmoid_scores = true;
  experts->has_choice_biases = true;
  KVASIR_TRY(experts->normalizes_weights, reader.Flag("norm_topk_prob", true));
  return {};
}

Status ReadDraftLayers(const ConfigReader& reader, ModelConfig* model) {
  const std::string_view field =
      reader.Find("num_mtp_layers") == nullptr ? "num_nextn_predict_layers" : "num_mtp_layers";
  KVASIR_TRY(const int64_t count, reader.Integer(field, 0, 0, kMaxLayers));
  model->draft_layers = static_cast<int>(count);
  return {};
}

Status ReadMixture(const ConfigReader& reader, const ExpertDefaults& defaults, bool has_softmax,
                   ModelConfig* model) {
  KVASIR_TRY(ExpertsConfig experts,
             ReadExperts(reader, "n_routed_experts", defaults.count, "num_experts_per_tok",
                         defaults.per_token, "moe_intermediate_size", defaults.intermediate_size));
  const bool has_no_shared = reader.IsNull("n_shared_experts");
  KVASIR_TRY(const int64_t shared,
             reader.Integer("n_shared_experts", has_no_shared ? 0 : defaults.shared, 0, 64));
  experts.shared_intermediate_size = shared * experts.intermediate_size;
  experts.has_shared_gate = false;
  KVASIR_TRY(experts.weight_scale,
             reader.Number("routed_scaling_factor", defaults.weight_scale, 1e-9, 1e9));
  KVASIR_TRY_OK(ReadGroups(reader, defaults, &experts));
  KVASIR_TRY_OK(has_softmax ? ReadSoftmaxChoice(reader, &experts)
                            : ReadSigmoidChoice(reader, &experts));
  model->experts = experts;
  return ReadSparseLayers(reader, defaults.first_layer, model);
}

}  // namespace

Status ReadDeepSeek(const ConfigReader& reader, const ConfigDefaults& defaults,
                    ModelConfig* model) {
  KVASIR_TRY_OK(ReadLatent(reader, defaults, model));
  KVASIR_TRY_OK(ReadDraftLayers(reader, model));
  // Youtu has no experts; of others a null says that.
  if (defaults.model_type == kYoutu || reader.IsNull("n_routed_experts")) return {};
  if (defaults.model_type == kGlm4MoeLite) {
    return ReadMixture(reader, kGlm4MoeLiteExperts, false, model);
  }
  const bool is_v2 = defaults.model_type == kDeepSeekV2;
  return ReadMixture(reader, is_v2 ? kDeepSeekV2Experts : kDeepSeekV3Experts, is_v2, model);
}

Status ReadGlm4Experts(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(model->has_qk_norm, reader.Flag("use_qk_norm", false));
  KVASIR_TRY_OK(ReadDraftLayers(reader, model));
  return ReadMixture(reader, kGlm4MoeExperts, false, model);
}

double LatentScalar(const ModelConfig& model) {
  const double square = model.rope_full.scale_of_all * model.rope_full.scale_of_all;
  return (model.latent.plain_dim + model.latent.rotary_dim) / (square * square);
}

}  // namespace kvasir
