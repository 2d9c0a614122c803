#include "kvasir/formats/layer_config.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <string>
#include <system_error>

#include "kvasir/formats/config_limits.h"
#include "kvasir/formats/hybrid_config.h"

namespace kvasir {
namespace {

constexpr int64_t kGemma4GlobalHeadDim = 512;
constexpr double kGptOssGateLimit = 7.0;
constexpr double kGptOssGateSlope = 1.702;

// What layer_types calls layers with a state; empty where the family has none.
std::string_view RecurrentType(const ModelConfig& model) {
  if (model.family == ModelFamily::kQwen35) return "linear_attention";
  return model.family == ModelFamily::kLfm2 ? "conv" : std::string_view();
}

// The window, had any layer one; 0 when the family or its switch says none does.
Result<int64_t> ReadWindow(const ConfigReader& reader, const ConfigDefaults& defaults,
                           const ModelConfig& model) {
  // The classes have no such field.
  if (defaults.model_type == "llama" || !RecurrentType(model).empty() ||
      defaults.model_type.starts_with(kGranite) || defaults.model_type == kOlmo2 ||
      model.family == ModelFamily::kDeepSeek || model.family == ModelFamily::kGlm4 ||
      model.family == ModelFamily::kGlm4Moe) {
    return 0;
  }
  if (defaults.model_type == kSmolLm3) {
    KVASIR_TRY(const bool uses_window, reader.Flag("use_sliding_window", false));
    if (!uses_window) return 0;
    return reader.Bad("use_sliding_window", "is true: SmolLM3 with a window is not supported",
                      ErrorCode::kUnsupported);
  }
  if (defaults.family == ModelFamily::kQwen2 || defaults.family == ModelFamily::kQwen3) {
    KVASIR_TRY(const bool uses_window, reader.Flag("use_sliding_window", false));
    if (!uses_window) return 0;
  }
  if (reader.IsNull("sliding_window")) return 0;
  const bool has_default =
      defaults.model_type != kMinistral3 && defaults.family != ModelFamily::kPhi3;
  if (!has_default && reader.Find("sliding_window") == nullptr) return 0;
  int64_t otherwise = 4096;
  if (defaults.family == ModelFamily::kGemma4) {
    otherwise = defaults.model_type.starts_with(kGemma4Unified) ? 1024 : 512;
  }
  if (defaults.family == ModelFamily::kGptOss) otherwise = 128;
  KVASIR_TRY(const int64_t window, reader.Integer("sliding_window", otherwise, 1, kMaxPositions));
  // Phi's are as long as contexts and more, which is none.
  const bool hides_nothing = window >= model.max_position_embeddings;
  return defaults.family == ModelFamily::kPhi3 && hides_nothing ? 0 : window;
}

Result<std::vector<LayerKind>> ReadLayerTypes(const ConfigReader& reader, const Json& list,
                                              const ModelConfig& model) {
  const int layers = model.num_hidden_layers;
  const std::string_view recurrent = RecurrentType(model);
  if (!list.is_array() || static_cast<int64_t>(list.as_array().size()) != layers) {
    return reader.Bad("layer_types",
                      "must list one type for each of the " + std::to_string(layers) + " layers");
  }
  std::vector<LayerKind> kinds;
  for (const Json& type : list.as_array()) {
    if (type == Json("full_attention")) {
      kinds.push_back(LayerKind::kFull);
    } else if (type == Json("sliding_attention") && recurrent.empty()) {
      kinds.push_back(LayerKind::kSliding);
    } else if (!recurrent.empty() && type == Json(recurrent)) {
      kinds.push_back(LayerKind::kRecurrent);
    } else {
      const std::string name = type.is_string() ? type.as_string().substr(0, 40) : "no string";
      return reader.Bad("layer_types",
                        "holds '" + name + "'; supported are full_attention and " +
                            std::string(recurrent.empty() ? "sliding_attention" : recurrent),
                        ErrorCode::kUnsupported);
    }
  }
  return kinds;
}

Result<std::vector<LayerKind>> DeriveLinearLayers(const ConfigReader& reader,
                                                  const ModelConfig& model) {
  KVASIR_TRY(const int64_t interval, reader.Integer("full_attention_interval", 4, 1, kMaxLayers));
  std::vector<LayerKind> kinds;
  for (int i = 0; i < model.num_hidden_layers; ++i) {
    kinds.push_back((i + 1) % interval == 0 ? LayerKind::kFull : LayerKind::kRecurrent);
  }
  return kinds;
}

// Files from before layer_types: each family had its own rule.
Result<std::vector<LayerKind>> DeriveLayerKinds(const ConfigReader& reader,
                                                const ConfigDefaults& defaults,
                                                const ModelConfig& model) {
  if (model.family == ModelFamily::kQwen35) return DeriveLinearLayers(reader, model);
  if (model.family == ModelFamily::kLfm2) return ReadConvLayers(reader, model);
  int64_t first_sliding = 0;  // qwen: layers below it are full
  int64_t pattern = 0;        // gemma: every pattern-th layer is full
  const bool is_qwen = model.family == ModelFamily::kQwen2 || model.family == ModelFamily::kQwen3;
  if (is_qwen && defaults.model_type != kQwen3Moe) {
    KVASIR_TRY(first_sliding, reader.Integer("max_window_layers", 28, 0, kMaxLayers));
  } else if (model.family == ModelFamily::kGemma2) {
    pattern = 2;
  } else if (model.family == ModelFamily::kGptOss) {
    pattern = 2;
  } else if (model.family == ModelFamily::kOlmo) {
    pattern = 4;
  } else if (model.family == ModelFamily::kGemma4) {
    pattern = 6;
  } else if (model.family == ModelFamily::kGemma3) {
    KVASIR_TRY(pattern, reader.Integer("sliding_window_pattern", 6, 1, kMaxLayers));
  } else if (defaults.model_type == "llama") {
    first_sliding = kMaxLayers;
  }
  std::vector<LayerKind> kinds;
  for (int i = 0; i < model.num_hidden_layers; ++i) {
    const bool is_full =
        model.sliding_window == 0 || i < first_sliding || (pattern > 0 && (i + 1) % pattern == 0);
    kinds.push_back(is_full ? LayerKind::kFull : LayerKind::kSliding);
  }
  return kinds;
}

// Every decoder_sparse_step-th layer, but for those named.
Status ReadExpertLayers(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(const int64_t step,
             reader.Integer("decoder_sparse_step", 1, 1, model->num_hidden_layers));
  for (int i = 0; i < model->num_hidden_layers; ++i) {
    model->expert_layers.push_back((i + 1) % step == 0);
  }
  const Json* dense = reader.Find("mlp_only_layers");
  if (dense == nullptr) return {};
  if (!dense->is_array()) return reader.Bad("mlp_only_layers", "must be a list of layers");
  for (const Json& layer : dense->as_array()) {
    if (!layer.is_int() || layer.as_int() < 0 || layer.as_int() >= model->num_hidden_layers) {
      return reader.Bad("mlp_only_layers",
                        "must list layers below " + std::to_string(model->num_hidden_layers));
    }
    model->expert_layers[static_cast<size_t>(layer.as_int())] = false;
  }
  return {};
}

Status ReadDeltaNet(const ConfigReader& reader, ModelConfig* model) {
  DeltaNetConfig net;
  const auto read = [&](std::string_view field, int64_t otherwise, int64_t least, int64_t most,
                        int* out) -> Status {
    KVASIR_TRY(const int64_t value, reader.Integer(field, otherwise, least, most));
    *out = static_cast<int>(value);
    return {};
  };
  KVASIR_TRY_OK(read("linear_num_key_heads", 16, 1, kMaxHeads, &net.key_heads));
  KVASIR_TRY_OK(read("linear_num_value_heads", 32, 1, kMaxHeads, &net.value_heads));
  KVASIR_TRY_OK(read("linear_key_head_dim", 128, 1, kMaxHeadDim, &net.key_dim));
  KVASIR_TRY_OK(read("linear_value_head_dim", 128, 1, kMaxHeadDim, &net.value_dim));
  KVASIR_TRY_OK(read("linear_conv_kernel_dim", 4, 2, kMaxConvWidth, &net.conv_width));
  if (net.value_heads % net.key_heads != 0) {
    return reader.Bad("linear_num_value_heads", std::to_string(net.value_heads) +
                                                    " must be a multiple of the " +
                                                    std::to_string(net.key_heads) + " key heads");
  }
  model->delta_net = net;
  return {};
}

// Shape of the full-attention layers: published files have two fields; newer writers list every
// layer that is not like the others.
struct GlobalHeads {
  int64_t head_dim;
  int64_t key_value_heads;  // 0: as the other layers
};

// By layer: transformers names all with as many digits, "05" beside "11".
Result<std::map<int64_t, const Json*>> ListedLayers(const ConfigReader& reader,
                                                    std::string_view field, const Json& list) {
  if (!list.is_object()) return reader.Bad(field, "must be an object");
  std::map<int64_t, const Json*> layers;
  for (const auto& [name, entry] : list.as_object()) {
    int64_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    const bool is_number = error == std::errc() && end == name.data() + name.size() && layer >= 0;
    if (!is_number || !layers.emplace(layer, &entry).second) {
      return reader.Bad(
          field, "must name layers by their numbers, each once, not '" + name.substr(0, 40) + "'");
    }
    if (!entry.is_object()) {
      return reader.Bad(field, "must hold an object for each layer it names");
    }
  }
  return layers;
}

Result<GlobalHeads> ReadListedHeads(const ConfigReader& reader, const Json& list,
                                    const ModelConfig& model) {
  constexpr std::string_view kField = "per_layer_config";
  KVASIR_TRY(const auto layers, ListedLayers(reader, kField, list));
  const GlobalHeads plain = {model.head_dim, model.num_key_value_heads};
  GlobalHeads heads = plain;
  bool is_first = true;
  for (int i = 0; i < model.num_hidden_layers; ++i) {
    GlobalHeads here = plain;
    if (const auto entry = layers.find(i); entry != layers.end()) {
      const ConfigReader fields(*entry->second, *entry->second);
      KVASIR_TRY(here.head_dim, fields.Integer("head_dim", plain.head_dim, 2, kMaxHeadDim));
      KVASIR_TRY(here.key_value_heads,
                 fields.Integer("num_key_value_heads", plain.key_value_heads, 1, kMaxHeads));
    }
    if (model.is_full(i) && is_first) {
      heads = here;
      is_first = false;
    }
    const GlobalHeads& wanted = model.is_full(i) ? heads : plain;
    if (here.head_dim != wanted.head_dim || here.key_value_heads != wanted.key_value_heads) {
      return reader.Bad(kField, "makes layer " + std::to_string(i) + " unlike others of its type",
                        ErrorCode::kUnsupported);
    }
  }
  return heads;
}

Result<GlobalHeads> ReadGlobalHeads(const ConfigReader& reader, const ModelConfig& model) {
  const Json* list = reader.Find("per_layer_config");
  if (list != nullptr) return ReadListedHeads(reader, *list, model);
  GlobalHeads heads = {};
  KVASIR_TRY(heads.head_dim,
             reader.Integer("global_head_dim", kGemma4GlobalHeadDim, 2, kMaxHeadDim));
  KVASIR_TRY(heads.key_value_heads, reader.Integer("num_global_key_value_heads", 0, 0, kMaxHeads));
  if (!model.values_from_keys) heads.key_value_heads = 0;  // the switch governs both
  return heads;
}

Status ReadGlobalAttention(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(model->values_from_keys, reader.Flag("attention_k_eq_v", false));
  KVASIR_TRY(const GlobalHeads heads, ReadGlobalHeads(reader, *model));
  if (heads.head_dim % 2 != 0) {
    return reader.Bad("global_head_dim", "must be even: RoPE turns pairs");
  }
  const int64_t key_value_heads =
      heads.key_value_heads == 0 ? model->num_key_value_heads : heads.key_value_heads;
  if (model->num_attention_heads % key_value_heads != 0) {
    return reader.Bad("num_global_key_value_heads",
                      std::to_string(key_value_heads) + " must divide the " +
                          std::to_string(model->num_attention_heads) + " attention heads");
  }
  model->global_head_dim = static_cast<int>(heads.head_dim);
  model->global_key_value_heads = static_cast<int>(key_value_heads);
  return {};
}

Status ReadSharing(const ConfigReader& reader, ModelConfig* model) {
  constexpr std::string_view kField = "num_kv_shared_layers";
  KVASIR_TRY(const int64_t shared, reader.Integer(kField, 0, 0, model->num_hidden_layers));
  model->num_kv_shared_layers = static_cast<int>(shared);
  KVASIR_TRY(model->has_double_wide_mlp, reader.Flag("use_double_wide_mlp", false));
  // With none left to share with, the keys and values are another model's: a drafter.
  if (shared == model->num_hidden_layers) return {};
  for (int i = model->num_hidden_layers - static_cast<int>(shared); i < model->num_hidden_layers;
       ++i) {
    if (model->shares_kv(i) < 0) {
      return reader.Bad(kField, "is " + std::to_string(shared) + ", but layer " +
                                    std::to_string(i) +
                                    " has no earlier layer of its type to share with");
    }
  }
  return {};
}

}  // namespace

Result<ExpertsConfig> ReadExperts(const ConfigReader& reader, std::string_view count_field,
                                  int64_t count, std::string_view chosen_field, int64_t chosen,
                                  std::string_view size_field, int64_t size) {
  ExpertsConfig experts;
  KVASIR_TRY(const int64_t all, reader.Integer(count_field, count, 1, kMaxExperts));
  KVASIR_TRY(const int64_t per_token, reader.Integer(chosen_field, chosen, 1, kMaxExperts));
  if (per_token > all) {
    return reader.Bad(chosen_field, std::to_string(per_token) + " is more than the " +
                                        std::to_string(all) + " experts");
  }
  KVASIR_TRY(experts.intermediate_size, reader.Integer(size_field, size, 1, kMaxIntermediate));
  experts.count = static_cast<int>(all);
  experts.per_token = static_cast<int>(per_token);
  return experts;
}

Status ReadLayerKinds(const ConfigReader& reader, const ConfigDefaults& defaults,
                      ModelConfig* model) {
  KVASIR_TRY(model->sliding_window, ReadWindow(reader, defaults, *model));
  const Json* types = reader.Find("layer_types");
  // The class of Qwen3-MoE has neither layer_types nor max_window_layers: all slide, or none. Of
  // Granite's hybrid class they say something else.
  if (types != nullptr && defaults.model_type != kQwen3Moe &&
      defaults.model_type != kGraniteHybrid) {
    KVASIR_TRY(model->layer_kinds, ReadLayerTypes(reader, *types, *model));
  } else {
    KVASIR_TRY(model->layer_kinds, DeriveLayerKinds(reader, defaults, *model));
  }
  bool any_slides = false;
  for (const LayerKind kind : model->layer_kinds) any_slides |= kind == LayerKind::kSliding;
  if (any_slides && model->sliding_window == 0) {
    return reader.Bad("layer_types", "has sliding layers, but there is no sliding_window");
  }
  if (!any_slides) model->sliding_window = 0;
  return {};
}

Status ReadQwenExperts(const ConfigReader& reader, ModelConfig* model) {
  const std::string_view count =
      reader.Find("num_experts") == nullptr ? "num_local_experts" : "num_experts";
  KVASIR_TRY(model->experts, ReadExperts(reader, count, 128, "num_experts_per_tok", 8,
                                         "moe_intermediate_size", 768));
  KVASIR_TRY(model->experts.normalizes_weights, reader.Flag("norm_topk_prob", false));
  return ReadExpertLayers(reader, model);
}

Status ReadQwen35Layers(const ConfigReader& reader, const ConfigDefaults& defaults,
                        ModelConfig* model) {
  KVASIR_TRY_OK(ReadDeltaNet(reader, model));
  KVASIR_TRY(const bool has_gates, reader.Flag("attn_output_gate", true));
  if (!has_gates) {
    return reader.Bad("attn_output_gate", "is false; the family's attention has gates",
                      ErrorCode::kUnsupported);
  }
  const bool is_next = defaults.model_type == kQwen3Next;
  if (!is_next && !defaults.model_type.starts_with(kQwen35Moe)) return {};
  KVASIR_TRY(model->experts,
             ReadExperts(reader, "num_experts", is_next ? 512 : 256, "num_experts_per_tok",
                         is_next ? 10 : 8, "moe_intermediate_size", 512));
  KVASIR_TRY(model->experts.shared_intermediate_size,
             reader.Integer("shared_expert_intermediate_size", 512, 1, kMaxIntermediate));
  if (!is_next) {
    model->expert_layers.assign(static_cast<size_t>(model->num_hidden_layers), true);
    model->intermediate_size = model->experts.shared_intermediate_size;  // the only dense MLP
    return {};
  }
  KVASIR_TRY(model->experts.normalizes_weights, reader.Flag("norm_topk_prob", true));
  return ReadExpertLayers(reader, model);
}

Status ReadStillLayers(const ConfigReader& reader, ModelConfig* model) {
  const Json* list = reader.Find("no_rope_layers");
  if (list == nullptr) {
    KVASIR_TRY(const int64_t interval, reader.Integer("no_rope_layer_interval", 4, 1, kMaxLayers));
    for (int i = 0; i < model->num_hidden_layers; ++i) {
      model->still_layers.push_back((i + 1) % interval == 0);
    }
    return {};
  }
  // 1: the layer's queries and keys turn. The list may be longer than there are layers.
  const auto layers = static_cast<size_t>(model->num_hidden_layers);
  if (!list->is_array() || list->as_array().size() < layers) {
    return reader.Bad("no_rope_layers",
                      "must list a 0 or 1 for each of the " + std::to_string(layers) + " layers");
  }
  for (size_t i = 0; i < layers; ++i) {
    const Json& turns = list->as_array()[i];
    if (turns != Json(int64_t{0}) && turns != Json(int64_t{1})) {
      return reader.Bad("no_rope_layers", "must hold 0 and 1 alone");
    }
    model->still_layers.push_back(turns == Json(int64_t{0}));
  }
  return {};
}

Status ReadGptOssExperts(const ConfigReader& reader, ModelConfig* model) {
  const std::string_view chosen =
      reader.Find("num_experts_per_tok") == nullptr ? "experts_per_token" : "num_experts_per_tok";
  KVASIR_TRY(model->experts, ReadExperts(reader, "num_local_experts", 128, chosen, 4,
                                         "intermediate_size", model->intermediate_size));
  model->expert_layers.assign(static_cast<size_t>(model->num_hidden_layers), true);
  KVASIR_TRY(const double limit, reader.Number("swiglu_limit", kGptOssGateLimit, 0.0, 1e9));
  KVASIR_TRY(const double slope, reader.Number("swiglu_alpha", kGptOssGateSlope, 0.0, 1e9));
  if (limit == kGptOssGateLimit && slope == kGptOssGateSlope) return {};
  return reader.Bad(limit == kGptOssGateLimit ? "swiglu_alpha" : "swiglu_limit",
                    "is " + std::to_string(limit == kGptOssGateLimit ? slope : limit) +
                        "; supported are gates with a limit of 7 and an alpha of 1.702",
                    ErrorCode::kUnsupported);
}

Status ReadGemma4Layers(const ConfigReader& reader, int64_t per_layer_default, ModelConfig* model) {
  // The published class does so too, whatever the file says.
  model->layer_kinds.back() = LayerKind::kFull;
  KVASIR_TRY_OK(ReadGlobalAttention(reader, model));
  KVASIR_TRY_OK(ReadSharing(reader, model));
  KVASIR_TRY(model->per_layer_embedding_size,
             reader.Integer("hidden_size_per_layer_input", per_layer_default, 0, kMaxPerLayerSize));
  KVASIR_TRY(const int64_t per_layer_vocab,
             reader.Integer("vocab_size_per_layer_input", model->vocab_size, 0, int64_t{1} << 22));
  if (model->per_layer_embedding_size > 0 && per_layer_vocab != model->vocab_size) {
    return reader.Bad("vocab_size_per_layer_input",
                      "is " + std::to_string(per_layer_vocab) + ", must be the vocabulary's " +
                          std::to_string(model->vocab_size),
                      ErrorCode::kUnsupported);
  }
  KVASIR_TRY(const bool has_experts, reader.Flag("enable_moe_block", false));
  if (!has_experts) return {};
  const std::string_view size = reader.Find("moe_intermediate_size") == nullptr
                                    ? "expert_intermediate_size"
                                    : "moe_intermediate_size";
  KVASIR_TRY(model->experts, ReadExperts(reader, "num_experts", 0, "top_k_experts", 0, size, 0));
  model->experts.beside_dense = true;
  model->expert_layers.assign(static_cast<size_t>(model->num_hidden_layers), true);
  return {};
}

}  // namespace kvasir
