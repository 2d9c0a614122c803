#include "kvasir/formats/model_config.h"

#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/formats/config_defaults.h"
#include "kvasir/formats/config_limits.h"
#include "kvasir/formats/config_reader.h"
#include "kvasir/formats/hybrid_config.h"
#include "kvasir/formats/latent_config.h"
#include "kvasir/formats/layer_config.h"

namespace kvasir {
namespace {

Status ReadQuantization(const ConfigReader& reader, ModelConfig* model) {
  KVASIR_TRY(model->quantization,
             CheckpointQuantization::Parse(reader.Find("quantization"),
                                           reader.Find("quantization_config")));
  return {};
}

Status RefuseUnsupported(const ConfigReader& reader) {
  const Json* bidirectional = reader.Find("use_bidirectional_attention");
  // "vision" is about image tokens alone.
  if (bidirectional != nullptr && *bidirectional != Json(false) &&
      *bidirectional != Json("vision")) {
    return {ErrorCode::kUnsupported,
            "field 'use_bidirectional_attention' is set: only causal attention is supported"};
  }
  const Json* causal = reader.Find("is_causal");
  if (causal != nullptr && *causal == Json(false)) {
    return {ErrorCode::kUnsupported,
            "field 'is_causal' is false: only causal attention is supported"};
  }
  return {};
}

Status ReadSizes(const ConfigReader& reader, const ConfigDefaults& defaults, ModelConfig* model) {
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

Status ReadActivation(const ConfigReader& reader, const ConfigDefaults& defaults,
                      ModelConfig* model) {
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
  if (model->family == ModelFamily::kPhi3 || model->family == ModelFamily::kLfm2)
    return {};  // never
  if (model->family == ModelFamily::kQwen2) {
    model->qkv_bias = true;  // not configurable: the family always has them, and none on o_proj
    return {};
  }
  const bool by_default =
      model->family == ModelFamily::kGptOss || model->family == ModelFamily::kGlm4;
  KVASIR_TRY(model->qkv_bias, reader.Flag("attention_bias", by_default));
  const bool is_glm = model->family == ModelFamily::kGlm4 || model->family == ModelFamily::kGlm4Moe;
  model->output_bias = model->qkv_bias && !is_glm;
  if (model->family == ModelFamily::kLlama) {
    KVASIR_TRY(model->mlp_bias, reader.Flag("mlp_bias", false));
  }
  return {};
}

// A null says "off" even where the class default is a number.
Result<double> Softcap(const ConfigReader& reader, std::string_view field, double otherwise) {
  return reader.Number(field, reader.IsNull(field) ? 0.0 : otherwise, 0.0, 1e9);
}

// Of Granite; factors of 1 in all others.
Status ReadMultipliers(const ConfigReader& reader, ModelConfig* model) {
  constexpr double kLeast = 1e-9;
  constexpr double kMost = 1e9;
  KVASIR_TRY(model->embedding_multiplier,
             reader.Number("embedding_multiplier", 1.0, kLeast, kMost));
  KVASIR_TRY(model->residual_multiplier, reader.Number("residual_multiplier", 1.0, kLeast, kMost));
  KVASIR_TRY(model->logits_scaling, reader.Number("logits_scaling", 1.0, kLeast, kMost));
  KVASIR_TRY(const double scale, reader.Number("attention_multiplier", 1.0, kLeast, kMost));
  model->query_pre_attn_scalar = 1.0 / (scale * scale);
  return {};
}

Status ReadNumbers(const ConfigReader& reader, const ConfigDefaults& defaults, ModelConfig* model) {
  const std::string_view eps = model->family == ModelFamily::kLfm2 ? "norm_eps" : "rms_norm_eps";
  KVASIR_TRY(model->rms_norm_eps, reader.Number(eps, defaults.rms_norm_eps, 0.0, 1.0));
  model->query_pre_attn_scalar = model->head_dim;
  if (defaults.model_type.starts_with(kGranite)) return ReadMultipliers(reader, model);
  if (!model->traits().is_gemma) return {};
  const bool is_gemma2 = model->family == ModelFamily::kGemma2;
  KVASIR_TRY(model->final_logit_softcapping,
             Softcap(reader, "final_logit_softcapping", is_gemma2 ? 30.0 : 0.0));
  if (model->family == ModelFamily::kGemma4) {
    model->query_pre_attn_scalar = 1.0;  // queries and keys are normed: no scale
    return {};
  }
  KVASIR_TRY(model->query_pre_attn_scalar,
             reader.Number("query_pre_attn_scalar", 256.0, 1e-6, 1e9));
  KVASIR_TRY(model->attn_logit_softcapping,
             Softcap(reader, "attn_logit_softcapping", is_gemma2 ? 50.0 : 0.0));
  if (!is_gemma2 && model->attn_logit_softcapping > 0) {
    return reader.Bad("attn_logit_softcapping",
                      "must be null: the attention of Gemma 3 caps nothing, whatever it says",
                      ErrorCode::kUnsupported);
  }
  return {};
}

// The rope of one kind of layer where "rope_parameters" has an object for each.
Result<RopeConfig> ReadRopeOfKind(const Json* parameters, std::string_view kind,
                                  const RopeDefaults& defaults, const ModelConfig& model) {
  const Json* object = parameters == nullptr ? nullptr : parameters->Find(kind);
  if (object == nullptr && model.family == ModelFamily::kGemma4 && kind == "full_attention") {
    RopeConfig rope;
    rope.theta = defaults.theta;
    rope.type = RopeType::kProportional;
    rope.rotated_fraction = 0.25;
    return rope;
  }
  return RopeConfig::Parse(object == nullptr ? Json() : *object,
                           "rope_parameters." + std::string(kind), defaults);
}

// People who extend a context add "rope_scaling" to a file that newer writers gave
// "rope_parameters": which of the two counts depends on the reader, so they must agree.
Status CheckSameScaling(const Json* scaling, const ModelConfig& model) {
  if (scaling == nullptr) return {};
  KVASIR_TRY(const RopeConfig other,
             RopeConfig::Parse(*scaling, "rope_scaling",
                               {model.rope_full.theta, model.max_position_embeddings,
                                model.rope_full.rotated_fraction,
                                model.rope_full.original_max_position_embeddings}));
  if (other == model.rope_full) return {};
  return {ErrorCode::kUnsupported,
          "field 'rope_scaling' says something else than 'rope_parameters'; write the scaling into "
          "'rope_parameters' alone"};
}

// Of a config that does not say.
Json GptOssRope() {
  return Json::Object{{"rope_type", "yarn"}, {"factor", 32.0},
                      {"beta_fast", 32.0},   {"beta_slow", 1.0},
                      {"truncate", false},   {"original_max_position_embeddings", int64_t{4096}}};
}

Json Ministral3Rope() {
  return Json::Object{{"rope_type", "yarn"},
                      {"factor", 16.0},
                      {"beta_fast", 32.0},
                      {"beta_slow", 1.0},
                      {"mscale", 1.0},
                      {"mscale_all_dim", 1.0},
                      {"llama_4_scaling_beta", 0.1},
                      {"original_max_position_embeddings", int64_t{16384}}};
}

bool RotatesParts(const ModelConfig& model) {
  return model.family == ModelFamily::kQwen35 || model.family == ModelFamily::kPhi3 ||
         model.family == ModelFamily::kGlm4 || model.family == ModelFamily::kGlm4Moe;
}

// Of a config that does not say.
double RotatedByDefault(const ModelConfig& model) {
  if (model.family == ModelFamily::kQwen35) return 0.25;
  const bool is_glm = model.family == ModelFamily::kGlm4 || model.family == ModelFamily::kGlm4Moe;
  return is_glm ? 0.5 : 1.0;
}

// Each pair that turns has one in both lists, whichever is taken.
Status CheckDivisors(const ConfigReader& reader, const RopeConfig& rope, int head_dim) {
  if (rope.type != RopeType::kLong) return {};
  const int rotated = RotatedElements(rope, head_dim);
  for (const auto* list : {&rope.frequency_divisors, &rope.other_divisors}) {
    if (2 * list->size() == static_cast<size_t>(rotated)) continue;
    return reader.Bad("rope_parameters", "has " + std::to_string(list->size()) +
                                             " divisors in long_factor or short_factor, for " +
                                             std::to_string(rotated) +
                                             " elements of a head that turn in pairs");
  }
  return {};
}

// How much of a head turns, where that is its first elements.
Status CheckRotated(const ConfigReader& reader, const ModelConfig& model, const RopeConfig& rope,
                    int head_dim) {
  KVASIR_TRY_OK(CheckDivisors(reader, rope, head_dim));
  if (rope.type == RopeType::kProportional || rope.rotated_fraction == 1.0) return {};
  if (!RotatesParts(model)) {
    return reader.Bad("partial_rotary_factor", "must be 1: this family rotates whole heads",
                      ErrorCode::kUnsupported);
  }
  const int rotated = RotatedElements(rope, head_dim);
  if (rotated >= 2 && rotated % 2 == 0) return {};
  return reader.Bad("partial_rotary_factor", "leaves " + std::to_string(rotated) + " of " +
                                                 std::to_string(head_dim) +
                                                 " elements of a head to turn; they turn in pairs");
}

Status ReadRope(const ConfigReader& reader, const ConfigDefaults& defaults, ModelConfig* model) {
  KVASIR_TRY(const double theta, reader.Number("rope_theta", defaults.rope_theta, 1.0, 1e12));
  KVASIR_TRY(const double rotated,
             reader.Number("partial_rotary_factor", RotatedByDefault(*model), 0.0, 1.0));
  if (!RotatesParts(*model) && rotated != 1.0) {
    return reader.Bad("partial_rotary_factor", "must be 1: this family rotates whole heads",
                      ErrorCode::kUnsupported);
  }
  const bool has_local_rope = model->traits().has_sliding_rope;
  double sliding_theta = theta;
  if (has_local_rope && model->traits().is_gemma) {
    KVASIR_TRY(sliding_theta, reader.Number("rope_local_base_freq", 10000.0, 1.0, 1e12));
  }
  KVASIR_TRY(const int64_t original,
             reader.Integer("original_max_position_embeddings",
                            model->family == ModelFamily::kPhi3 ? 4096 : 0, 0, kMaxPositions));
  const RopeDefaults around = {theta, model->max_position_embeddings, rotated, original};
  RopeDefaults around_sliding = around;
  around_sliding.theta = sliding_theta;
  const Json* parameters = reader.Find("rope_parameters");
  const Json* scaling = reader.Find("rope_scaling");
  const bool per_layer =
      parameters != nullptr && (parameters->Find("full_attention") != nullptr ||
                                parameters->Find("sliding_attention") != nullptr);
  if (per_layer || model->family == ModelFamily::kGemma4) {
    KVASIR_TRY(model->rope_full, ReadRopeOfKind(parameters, "full_attention", around, *model));
    KVASIR_TRY(model->rope_sliding,
               ReadRopeOfKind(parameters, "sliding_attention", around_sliding, *model));
    KVASIR_TRY_OK(CheckRotated(reader, *model, model->rope_full, model->global_head_dim));
    KVASIR_TRY_OK(CheckRotated(reader, *model, model->rope_sliding, model->head_dim));
    return CheckSameScaling(scaling, *model);
  }
  const std::string_view field = parameters != nullptr ? "rope_parameters" : "rope_scaling";
  const Json* object = parameters != nullptr ? parameters : scaling;
  Json unsaid;
  if (model->family == ModelFamily::kGptOss) unsaid = GptOssRope();
  if (defaults.model_type == kMinistral3) unsaid = Ministral3Rope();
  KVASIR_TRY(model->rope_full,
             RopeConfig::Parse(object == nullptr ? unsaid : *object, field, around));
  KVASIR_TRY_OK(CheckRotated(reader, *model, model->rope_full, model->global_head_dim));
  model->rope_sliding = model->rope_full;
  if (has_local_rope) {
    // Local layers never scale: their window is far shorter than what they were trained on.
    model->rope_sliding = RopeConfig();
    model->rope_sliding.theta = sliding_theta;
  }
  return CheckSameScaling(scaling, *model);
}

// Many configs name yarn's factor and leave the positions as they were without it.
void ExtendByYarn(ModelConfig* model) {
  const RopeConfig& rope = model->rope_full;
  if (rope.type != RopeType::kYarn) return;
  const double reach = rope.factor * static_cast<double>(rope.original_max_position_embeddings);
  const auto positions = static_cast<int64_t>(std::min(reach, static_cast<double>(kMaxPositions)));
  model->max_position_embeddings = std::max(model->max_position_embeddings, positions);
}

// What only some families have; after sizes and layer kinds.
Status ReadFamily(const ConfigReader& reader, const ConfigDefaults& defaults, ModelConfig* model) {
  model->global_head_dim = model->head_dim;
  model->global_key_value_heads = model->num_key_value_heads;
  if (defaults.model_type == kQwen3Moe) return ReadQwenExperts(reader, model);
  if (defaults.model_type == kSmolLm3) return ReadStillLayers(reader, model);
  if (defaults.model_type == kGraniteHybrid) return ReadGraniteHybrid(reader, model);
  if (defaults.model_type.starts_with(kGraniteMoe)) {
    return ReadGraniteExperts(reader, defaults, model);
  }
  if (model->family == ModelFamily::kGptOss) return ReadGptOssExperts(reader, model);
  if (model->family == ModelFamily::kQwen35) return ReadQwen35Layers(reader, defaults, model);
  if (model->family == ModelFamily::kLfm2) return ReadLfm2Layers(reader, defaults, model);
  if (model->family == ModelFamily::kDeepSeek) return ReadDeepSeek(reader, defaults, model);
  if (model->family == ModelFamily::kGlm4Moe) return ReadGlm4Experts(reader, model);
  if (model->family != ModelFamily::kGemma4) return {};
  const bool is_unified = defaults.model_type.starts_with(kGemma4Unified);
  return ReadGemma4Layers(reader, is_unified ? 0 : 256, model);
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

// Some wrappers are those of several models.
Result<const ConfigDefaults*> DefaultsOfText(const ConfigDefaults& wrapper, const Json* text) {
  const bool is_mistral = wrapper.model_type == kMistral3;
  if (text == nullptr || (!is_mistral && wrapper.model_type != kLfm2Vl)) return &wrapper;
  const std::string own = is_mistral ? "mistral" : "lfm2";
  const std::string_view other = is_mistral ? kMinistral3 : kLfm2Moe;
  KVASIR_TRY(const std::string type, ConfigReader(*text, *text).Text("model_type", own));
  if (type == own) return &wrapper;
  if (type == other) return ConfigDefaults::Of(Json::Object{{"model_type", other}});
  return Error{ErrorCode::kUnsupported, "field 'text_config.model_type' is '" + type.substr(0, 40) +
                                            "'; supported in a " + std::string(wrapper.model_type) +
                                            " are " + own + " and " + std::string(other)};
}

}  // namespace

std::string_view ModelFamilyName(ModelFamily family) {
  constexpr std::string_view kNames[] = {"llama",  "qwen2",    "qwen3",   "qwen3_5", "gemma2",
                                         "gemma3", "gemma4",   "gpt_oss", "olmo2",   "phi3",
                                         "lfm2",   "deepseek", "glm4",    "glm4_moe"};
  return kNames[static_cast<size_t>(family)];
}

FamilyTraits TraitsOf(ModelFamily family) {
  switch (family) {
    case ModelFamily::kLlama:
    case ModelFamily::kQwen2:
    case ModelFamily::kPhi3:
    case ModelFamily::kDeepSeek:
    case ModelFamily::kGlm4Moe:
      return {};
    case ModelFamily::kGlm4:
      return {.has_post_norms = true};
    case ModelFamily::kQwen3:
    case ModelFamily::kLfm2:
      return {.has_qk_norm = true};
    case ModelFamily::kQwen35:
      return {.has_qk_norm = true, .has_query_gates = true};
    case ModelFamily::kGemma2:
      return {.is_gemma = true, .has_post_norms = true};
    case ModelFamily::kGemma3:
    case ModelFamily::kGemma4:
      return {
          .is_gemma = true, .has_post_norms = true, .has_qk_norm = true, .has_sliding_rope = true};
    case ModelFamily::kGptOss:
      return {.has_sinks = true, .has_expert_biases = true};
    case ModelFamily::kOlmo:
      return {.has_pre_norms = false,
              .has_post_norms = true,
              .has_qk_norm = true,
              .has_wide_qk_norm = true,
              .has_sliding_rope = true};
  }
  return {};
}

Result<ModelConfig> ModelConfig::Parse(const Json& config) {
  auto model = ParseDecoder(config);
  if (model.ok() && model->num_kv_shared_layers == model->num_hidden_layers) {
    return {ErrorCode::kUnsupported,
            "field 'num_kv_shared_layers' is all layers: the keys and values are another model's, "
            "for which this one drafts"};
  }
  return model;
}

Result<ModelConfig> ModelConfig::ParseDecoder(const Json& config) {
  if (!config.is_object()) return {ErrorCode::kCorrupt, "must be a JSON object"};
  KVASIR_TRY(const ConfigDefaults* defaults, ConfigDefaults::Of(config));
  const Json* nested = config.Find("text_config");
  if (nested != nullptr && !nested->is_object()) {
    return {ErrorCode::kCorrupt, "field 'text_config' must be an object"};
  }
  const ConfigReader reader(nested != nullptr ? *nested : config, config);
  ModelConfig model;
  model.architecture = defaults->architecture;
  KVASIR_TRY(defaults, DefaultsOfText(*defaults, nested));
  model.family = defaults->family;
  KVASIR_TRY_OK(RefuseUnsupported(reader));
  KVASIR_TRY_OK(ReadQuantization(reader, &model));
  KVASIR_TRY_OK(ReadSizes(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadActivation(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadBiases(reader, &model));
  KVASIR_TRY_OK(ReadNumbers(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadLayerKinds(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadFamily(reader, *defaults, &model));
  KVASIR_TRY_OK(ReadRope(reader, *defaults, &model));
  ExtendByYarn(&model);
  if (model.latent.kv_rank > 0) model.query_pre_attn_scalar = LatentScalar(model);
  const bool has_old_name =
      model.family == ModelFamily::kLfm2 && reader.Find("tie_embedding") != nullptr;
  const std::string_view tie = has_old_name ? "tie_embedding" : "tie_word_embeddings";
  KVASIR_TRY(model.tie_word_embeddings, reader.Flag(tie, defaults->tie_word_embeddings));
  // Of Gemma's, which are tied, converters write what they like.
  model.has_own_head =
      reader.Find(tie) != nullptr && !model.tie_word_embeddings && !model.traits().is_gemma;
  // Of a wrapper and its text model transformers 4 believes the one, 5 the other and writes the
  // text model's default: whether there is a head then says it.
  if (nested != nullptr) {
    KVASIR_TRY(const bool outer,
               ConfigReader(config, config).Flag("tie_word_embeddings", model.tie_word_embeddings));
    if (outer != model.tie_word_embeddings) {
      model.tie_word_embeddings = false;
      model.has_own_head = false;
    }
  }
  KVASIR_TRY_OK(ReadTokens(reader, &model));
  KVASIR_TRY_OK(ReadDType(reader, &model));
  return model;
}

Result<ModelConfig> ModelConfig::Load(const std::string& folder) {
  const std::string path = folder + "/config.json";
  KVASIR_TRY(const Json config, Json::ParseFile(path, kMostTextBytes));
  auto model = Parse(config);
  if (!model.ok()) return WithContext(model.error(), path);

  const std::string generation_path = folder + "/generation_config.json";
  if (!FileExists(generation_path)) return model;
  KVASIR_TRY(const Json generation_json, Json::ParseFile(generation_path, kMostTextBytes));
  auto generation = GenerationConfig::Parse(generation_json);
  if (!generation.ok()) return WithContext(generation.error(), generation_path);
  model->generation = *std::move(generation);
  const GenerationConfig& given = model->generation;
  if (!given.eos_token_ids.empty()) model->eos_token_ids = given.eos_token_ids;
  if (given.bos_token_id.has_value()) model->bos_token_id = given.bos_token_id;
  if (given.pad_token_id.has_value()) model->pad_token_id = given.pad_token_id;
  model->suppressed_tokens = given.suppress_tokens;
  return model;
}

}  // namespace kvasir
