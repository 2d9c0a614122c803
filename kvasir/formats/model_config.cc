#include "kvasir/formats/model_config.h"

#include <array>
#include <cmath>
#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/formats/config_reader.h"

namespace kvasir {
namespace {

// Far above any published model, and low enough that no product of them overflows 63 bits.
constexpr int64_t kMaxHidden = 1 << 17;
constexpr int64_t kMaxIntermediate = 1 << 20;
constexpr int64_t kMaxLayers = 1024;
constexpr int64_t kMaxHeads = 1024;
constexpr int64_t kMaxHeadDim = 1024;
constexpr int64_t kMaxVocabulary = 1 << 22;
constexpr int64_t kMaxPositions = int64_t{1} << 30;

// What the Hugging Face configuration classes fill in for absent fields. 0: the field is required,
// or derived (heads, head_dim).
struct Defaults {
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
};

constexpr Defaults Plain(std::string_view architecture, std::string_view model_type,
                         ModelFamily family, int64_t kv_heads, int64_t head_dim,
                         int64_t max_position_embeddings) {
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
          10000.0};
}
constexpr Defaults Gemma3(std::string_view architecture, std::string_view model_type) {
  return {architecture,
          model_type,
          ModelFamily::kGemma3,
          true,
          "hidden_activation",
          "gelu_pytorch_tanh",
          262208,
          2304,
          9216,
          26,
          8,
          4,
          256,
          131072,
          1e6};
}

constexpr std::array<Defaults, 6> kArchitectures = {
    Plain("LlamaForCausalLM", "llama", ModelFamily::kLlama, 0, 0, 2048),
    Plain("MistralForCausalLM", "mistral", ModelFamily::kLlama, 8, 0, 131072),
    Plain("Qwen2ForCausalLM", "qwen2", ModelFamily::kQwen2, 32, 0, 32768),
    Plain("Qwen3ForCausalLM", "qwen3", ModelFamily::kQwen3, 32, 128, 32768),
    Gemma3("Gemma3ForCausalLM", "gemma3_text"),
    Gemma3("Gemma3ForConditionalGeneration", "gemma3"),
};

// "architectures" decides; "model_type" where there is none.
Result<const Defaults*> FindArchitecture(const Json& config) {
  std::string wanted;
  std::string_view Defaults::*column = &Defaults::architecture;
  const Json* list = config.Find("architectures");
  if (list != nullptr && list->is_array() && !list->as_array().empty()) {
    if (!list->as_array()[0].is_string()) {
      return {ErrorCode::kCorrupt, "field 'architectures' must be a list of names"};
    }
    wanted = list->as_array()[0].as_string();
  } else {
    KVASIR_TRY(wanted, config.GetString("model_type"));
    column = &Defaults::model_type;
  }
  std::string supported;
  for (const Defaults& known : kArchitectures) {
    if (known.*column == wanted) return &known;
    supported += (supported.empty() ? "" : ", ") + std::string(known.*column);
  }
  return {ErrorCode::kUnsupported, "architecture '" + wanted.substr(0, 80) +
                                       "' is not supported; supported are " + supported};
}

// "quantization" is MLX's; "quantization_config" is its copy for other readers, or another
// library's, which names its method.
Status ReadQuantization(const ConfigReader& reader, ModelConfig* model) {
  const bool has_own = reader.Find("quantization") != nullptr;
  const std::string_view field = has_own ? "quantization" : "quantization_config";
  const Json* object = reader.Find(field);
  if (object == nullptr) return {};
  const Json* method = object->Find("quant_method");
  if (method != nullptr && method->is_string()) {
    return reader.Bad(field,
                      "is of the method '" + method->as_string().substr(0, 40) +
                          "', which is not read; take the original checkpoint, or one in MLX or "
                          "GGUF form",
                      ErrorCode::kUnsupported);
  }
  auto parsed = MlxQuantization::Parse(*object);
  if (!parsed.ok()) {
    return WithContext(parsed.error(), "field '" + std::string(field) + "'");
  }
  model->quantization = *std::move(parsed);
  return {};
}

Status RefuseUnsupported(const ConfigReader& reader) {
  const Json* bidirectional = reader.Find("use_bidirectional_attention");
  if (bidirectional != nullptr && *bidirectional != Json(false)) {
    return {ErrorCode::kUnsupported,
            "field 'use_bidirectional_attention' is set: only causal attention is supported"};
  }
  return {};
}

Status ReadSizes(const ConfigReader& reader, const Defaults& defaults, ModelConfig* model) {
  KVASIR_TRY(model->vocab_size,
             reader.Integer("vocab_size", defaults.vocab_size, 1, kMaxVocabulary));
  KVASIR_TRY(model->hidden_size,
             reader.Integer("hidden_size", defaults.hidden_size, 1, kMaxHidden));
  KVASIR_TRY(model->intermediate_size,
             reader.Integer("intermediate_size", defaults.intermediate_size, 1, kMaxIntermediate));
  KVASIR_TRY(model->max_position_embeddings,
             reader.Integer("max_position_embeddings", defaults.max_position_embeddings, 1,
                            kMaxPositions));
  KVASIR_TRY(const int64_t layers,
             reader.Integer("num_hidden_layers", defaults.num_hidden_layers, 1, kMaxLayers));
  KVASIR_TRY(const int64_t heads,
             reader.Integer("num_attention_heads", defaults.num_attention_heads, 1, kMaxHeads));
  // A null says "as many as queries" even where the class default is another number.
  const bool kv_is_null = reader.IsNull("num_key_value_heads");
  const int64_t kv_default =
      kv_is_null || defaults.num_key_value_heads == 0 ? heads : defaults.num_key_value_heads;
  KVASIR_TRY(const int64_t kv_heads,
             reader.Integer("num_key_value_heads", kv_default, 1, kMaxHeads));
  if (heads % kv_heads != 0) {
    return reader.Bad("num_key_value_heads", std::to_string(kv_heads) + " must divide the " +
                                                 std::to_string(heads) + " attention heads");
  }
  int64_t head_default = defaults.head_dim;
  if (head_default == 0 && reader.Find("head_dim") == nullptr) {
    if (model->hidden_size % heads != 0) {
      return reader.Bad("hidden_size",
                        "must be a multiple of num_attention_heads when there is no "
                        "head_dim");
    }
    head_default = model->hidden_size / heads;
  }
  KVASIR_TRY(const int64_t head_dim, reader.Integer("head_dim", head_default, 2, kMaxHeadDim));
  if (head_dim % 2 != 0) return reader.Bad("head_dim", "must be even: RoPE turns pairs");
  model->num_hidden_layers = static_cast<int>(layers);
  model->num_attention_heads = static_cast<int>(heads);
  model->num_key_value_heads = static_cast<int>(kv_heads);
  model->head_dim = static_cast<int>(head_dim);
  return {};
}

Status ReadActivation(const ConfigReader& reader, const Defaults& defaults, ModelConfig* model) {
  const std::string_view field = defaults.activation_field;
  KVASIR_TRY(const std::string name, reader.Text(field, std::string(defaults.activation)));
  if (name == "silu" || name == "swish") {
    model->activation = Activation::kSilu;
  } else if (name == "gelu_pytorch_tanh") {
    model->activation = Activation::kGeluTanh;
  } else {
    return reader.Bad(field,
                      "is '" + name.substr(0, 40) + "'; supported are silu and gelu_pytorch_tanh",
                      ErrorCode::kUnsupported);
  }
  return {};
}

Status ReadBiases(const ConfigReader& reader, ModelConfig* model) {
  if (model->family == ModelFamily::kQwen2) {
    model->qkv_bias = true;  // not configurable: the family always has them, and none on o_proj
    return {};
  }
  KVASIR_TRY(model->qkv_bias, reader.Flag("attention_bias", false));
  model->output_bias = model->qkv_bias;
  if (model->family == ModelFamily::kLlama) {
    KVASIR_TRY(model->mlp_bias, reader.Flag("mlp_bias", false));
  }
  return {};
}

Status ReadNumbers(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(model->rms_norm_eps, reader.Number("rms_norm_eps", 1e-6, 0.0, 1.0));
  model->query_pre_attn_scalar = model->head_dim;
  if (model->family == ModelFamily::kGemma3) {
    KVASIR_TRY(model->query_pre_attn_scalar,
               reader.Number("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
    KVASIR_TRY(model->attn_logit_softcapping,
               reader.Number("attn_logit_softcapping", 0.0, 0.0, 1e9));
    KVASIR_TRY(model->final_logit_softcapping,
               reader.Number("final_logit_softcapping", 0.0, 0.0, 1e9));
  }
  return {};
}

// The window, had any layer one; 0 when the family or its switch says none does.
Result<int64_t> ReadWindow(const ConfigReader& reader, const Defaults& defaults) {
  if (defaults.model_type == "llama") return 0;  // the class has no such field
  if (defaults.family == ModelFamily::kQwen2 || defaults.family == ModelFamily::kQwen3) {
    KVASIR_TRY(const bool uses_window, reader.Flag("use_sliding_window", false));
    if (!uses_window) return 0;
  }
  if (reader.IsNull("sliding_window")) return 0;
  return reader.Integer("sliding_window", 4096, 1, kMaxPositions);
}

Result<std::vector<LayerKind>> ReadLayerTypes(const ConfigReader& reader, const Json& list,
                                              int layers) {
  if (!list.is_array() || static_cast<int64_t>(list.as_array().size()) != layers) {
    return reader.Bad("layer_types",
                      "must list one type for each of the " + std::to_string(layers) + " layers");
  }
  std::vector<LayerKind> kinds;
  for (const Json& type : list.as_array()) {
    if (type == Json("full_attention")) {
      kinds.push_back(LayerKind::kFull);
    } else if (type == Json("sliding_attention")) {
      kinds.push_back(LayerKind::kSliding);
    } else {
      const std::string name = type.is_string() ? type.as_string().substr(0, 40) : "no string";
      return reader.Bad("layer_types",
                        "holds '" + name + "'; supported are full_attention and sliding_attention",
                        ErrorCode::kUnsupported);
    }
  }
  return kinds;
}

// Files from before layer_types: each family had its own rule.
Result<std::vector<LayerKind>> DeriveLayerKinds(const ConfigReader& reader,
                                                const Defaults& defaults,
                                                const ModelConfig& model) {
  int64_t first_sliding = 0;  // qwen: layers below it are full
  int64_t pattern = 0;        // gemma: every pattern-th layer is full
  if (model.family == ModelFamily::kQwen2 || model.family == ModelFamily::kQwen3) {
    KVASIR_TRY(first_sliding, reader.Integer("max_window_layers", 28, 0, kMaxLayers));
  } else if (model.family == ModelFamily::kGemma3) {
    const std::string_view field = reader.Find("sliding_window_pattern") == nullptr
                                       ? "_sliding_window_pattern"
                                       : "sliding_window_pattern";
    KVASIR_TRY(pattern, reader.Integer(field, 6, 1, kMaxLayers));
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

Status ReadLayerKinds(const ConfigReader& reader, const Defaults& defaults, ModelConfig* model) {
  KVASIR_TRY(model->sliding_window, ReadWindow(reader, defaults));
  const Json* types = reader.Find("layer_types");
  if (types != nullptr) {
    KVASIR_TRY(model->layer_kinds, ReadLayerTypes(reader, *types, model->num_hidden_layers));
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

Status ReadRope(const ConfigReader& reader, const Defaults& defaults, ModelConfig* model) {
  KVASIR_TRY(const double theta, reader.Number("rope_theta", defaults.rope_theta, 1.0, 1e12));
  KVASIR_TRY(const double rotated, reader.Number("partial_rotary_factor", 1.0, 0.0, 1.0));
  if (rotated != 1.0) {
    return reader.Bad("partial_rotary_factor", "must be 1: no supported family rotates less",
                      ErrorCode::kUnsupported);
  }
  const bool is_gemma = model->family == ModelFamily::kGemma3;
  double sliding_theta = theta;
  if (is_gemma) {
    KVASIR_TRY(sliding_theta, reader.Number("rope_local_base_freq", 10000.0, 1.0, 1e12));
  }
  const int64_t positions = model->max_position_embeddings;
  const Json* parameters = reader.Find("rope_parameters");
  const bool per_layer =
      parameters != nullptr && (parameters->Find("full_attention") != nullptr ||
                                parameters->Find("sliding_attention") != nullptr);
  if (per_layer) {
    const auto of_kind = [&](const char* kind, double otherwise) {
      const Json* object = parameters->Find(kind);
      return RopeConfig::Parse(object == nullptr ? Json() : *object,
                               "rope_parameters." + std::string(kind), otherwise, positions);
    };
    KVASIR_TRY(model->rope_full, of_kind("full_attention", theta));
    KVASIR_TRY(model->rope_sliding, of_kind("sliding_attention", sliding_theta));
    return {};
  }
  const std::string_view field = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* object = reader.Find(field);
  KVASIR_TRY(model->rope_full,
             RopeConfig::Parse(object == nullptr ? Json() : *object, field, theta, positions));
  model->rope_sliding = model->rope_full;
  if (is_gemma) {
    // Local layers never scale: their window is far shorter than what they were trained on.
    model->rope_sliding = RopeConfig();
    model->rope_sliding.theta = sliding_theta;
  }
  return {};
}

Status ReadTokens(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(model->eos_token_ids, ReadTokenIds(reader.ObjectWith("eos_token_id"), "eos_token_id"));
  KVASIR_TRY(model->bos_token_id, ReadTokenId(reader.ObjectWith("bos_token_id"), "bos_token_id"));
  KVASIR_TRY(model->pad_token_id, ReadTokenId(reader.ObjectWith("pad_token_id"), "pad_token_id"));
  return {};
}

Status ReadDType(const ConfigReader& reader, ModelConfig* model) {
  const std::string_view field = reader.Find("dtype") != nullptr ? "dtype" : "torch_dtype";
  KVASIR_TRY(const std::string name, reader.Text(field, ""));
  // Any other name is no error: the tensors say themselves what they are.
  if (name == "float32") model->dtype = DType::kF32;
  if (name == "float16") model->dtype = DType::kF16;
  if (name == "bfloat16") model->dtype = DType::kBf16;
  return {};
}

}  // namespace

std::string_view ModelFamilyName(ModelFamily family) {
  constexpr std::string_view kNames[] = {"llama", "qwen2", "qwen3", "gemma3"};
  return kNames[static_cast<size_t>(family)];
}

std::string_view ActivationName(Activation activation) {
  return activation == Activation::kSilu ? "silu" : "gelu_tanh";
}

Result<ModelConfig> ModelConfig::Parse(const Json& config) {
  if (!config.is_object()) return {ErrorCode::kCorrupt, "must be a JSON object"};
  KVASIR_TRY(const Defaults* defaults, FindArchitecture(config));
  const Json* nested = config.Find("text_config");
  if (nested != nullptr && !nested->is_object()) {
    return {ErrorCode::kCorrupt, "field 'text_config' must be an object"};
  }
  const ConfigReader reader(nested != nullptr ? *nested : config, config);

  ModelConfig model;
  model.family = defaults->family;
  model.architecture = defaults->architecture;
  KVASIR_TRY_OK(RefuseUnsupported(reader));
  KVASIR_TRY_OK(ReadQuantization(reader, &model));
  KVASIR_TRY_OK(ReadSizes(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadActivation(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadBiases(reader, &model));
  KVASIR_TRY_OK(ReadNumbers(reader, &model));
  KVASIR_TRY_OK(ReadLayerKinds(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadRope(reader, *defaults, &model));
  KVASIR_TRY(model.tie_word_embeddings,
             reader.Flag("tie_word_embeddings", defaults->tie_word_embeddings));
  KVASIR_TRY_OK(ReadTokens(reader, &model));
  KVASIR_TRY_OK(ReadDType(reader, &model));
  return model;
}

Result<ModelConfig> ModelConfig::Load(const std::string& folder) {
  const std::string path = folder + "/config.json";
  KVASIR_TRY(const Json config, Json::ParseFile(path));
  auto model = Parse(config);
  if (!model.ok()) return WithContext(model.error(), path);

  const std::string generation_path = folder + "/generation_config.json";
  if (!FileExists(generation_path)) return model;
  KVASIR_TRY(const Json generation_json, Json::ParseFile(generation_path));
  auto generation = GenerationConfig::Parse(generation_json);
  if (!generation.ok()) return WithContext(generation.error(), generation_path);
  model->generation = *std::move(generation);
  const GenerationConfig& given = model->generation;
  if (!given.eos_token_ids.empty()) model->eos_token_ids = given.eos_token_ids;
  if (given.bos_token_id.has_value()) model->bos_token_id = given.bos_token_id;
  if (given.pad_token_id.has_value()) model->pad_token_id = given.pad_token_id;
  return model;
}

ParameterCounts ModelConfig::CountParameters() const {
  const int64_t layers = num_hidden_layers;
  const int64_t queries = int64_t{num_attention_heads} * head_dim;
  const int64_t keys = int64_t{num_key_value_heads} * head_dim;
  const bool has_four_norms = family == ModelFamily::kGemma3;
  ParameterCounts counts;
  counts.embedding = vocab_size * hidden_size;
  counts.attention =
      layers * (hidden_size * (queries + 2 * keys) + queries * hidden_size +
                (qkv_bias ? queries + 2 * keys : 0) + (output_bias ? hidden_size : 0));
  counts.mlp = layers * (3 * hidden_size * intermediate_size +
                         (mlp_bias ? 2 * intermediate_size + hidden_size : 0));
  counts.norms = layers * ((has_four_norms ? 4 : 2) * hidden_size +
                           (has_qk_norm() ? 2 * int64_t{head_dim} : 0)) +
                 hidden_size;
  counts.output = tie_word_embeddings ? 0 : counts.embedding;
  return counts;
}

int64_t ModelConfig::KvElementsPerToken() const {
  return int64_t{num_hidden_layers} * 2 * num_key_value_heads * head_dim;
}

}  // namespace kvasir
