#include "kvasir/formats/gguf_config.h"

#include <array>
#include <string>
#include <utility>

#include "kvasir/formats/gguf_special_tokens.h"

namespace kvasir {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kRopeDivisors = "rope_freqs.weight";
// Gemma 3 27B, the only one whose scores are scaled by hidden_size / heads instead of head_dim.
// llama.cpp, too, knows it by its layers: the metadata does not say.
constexpr int64_t kGemma27BLayers = 62;

struct Architecture {
  std::string_view gguf;
  std::string_view config;
};
constexpr std::array<Architecture, 4> kArchitectures = {{
    {"llama", "LlamaForCausalLM"},
    {"qwen2", "Qwen2ForCausalLM"},
    {"qwen3", "Qwen3ForCausalLM"},
    {"gemma3", "Gemma3ForCausalLM"},
}};

// Writes the members of a config.json.
class ConfigBuilder {
 public:
  explicit ConfigBuilder(const GgufFile& file) : file_(file), metadata_(file.metadata()) {}

  Result<Json> Build() {
    KVASIR_TRY(architecture_, metadata_.Text("general.architecture"));
    KVASIR_TRY_OK(SetArchitecture());
    KVASIR_TRY_OK(SetSizes());
    KVASIR_TRY_OK(SetRope());
    if (architecture_ == "gemma3") KVASIR_TRY_OK(SetGemma());
    return std::move(config_);
  }

 private:
  std::string Key(std::string_view name) const { return architecture_ + "." + std::string(name); }

  Status SetArchitecture() {
    std::string known;
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.gguf == architecture_) {
        config_.Set("architectures", Json::Array{Json(architecture.config)});
      }
      known += (known.empty() ? "" : ", ") + std::string(architecture.gguf);
    }
    if (config_.is_null()) {
      return {ErrorCode::kUnsupported, "metadata 'general.architecture' is '" +
                                           architecture_.substr(0, 40) + "'; supported are " +
                                           known};
    }
    KVASIR_TRY(const int64_t experts, metadata_.IntOr(Key("expert_count"), 0));
    if (experts != 0) {
      return {ErrorCode::kUnsupported, "metadata '" + Key("expert_count") + "' is " +
                                           std::to_string(experts) +
                                           ": mixtures of experts are not supported"};
    }
    return {};
  }

  Status SetSizes() {
    const GgufEntry* embedding = file_.Find(kEmbedding);
    if (embedding == nullptr || embedding->shape.size() != 2) {
      return {ErrorCode::kCorrupt,
              "tensor '" + std::string(kEmbedding) + "' is missing or no matrix"};
    }
    config_.Set("vocab_size", embedding->shape[0]);
    config_.Set("tie_word_embeddings", file_.Find("output.weight") == nullptr);
    KVASIR_TRY_OK(CopyInt("embedding_length", "hidden_size"));
    KVASIR_TRY_OK(CopyInt("feed_forward_length", "intermediate_size"));
    KVASIR_TRY_OK(CopyInt("block_count", "num_hidden_layers"));
    KVASIR_TRY_OK(CopyInt("context_length", "max_position_embeddings"));
    KVASIR_TRY_OK(CopyInt("attention.head_count", "num_attention_heads"));
    const std::string kv_heads = Key("attention.head_count_kv");
    config_.Set("num_key_value_heads", nullptr);  // as many as queries
    if (metadata_.Has(kv_heads)) {
      KVASIR_TRY_OK(CopyInt("attention.head_count_kv", "num_key_value_heads"));
    }
    KVASIR_TRY(const double eps, metadata_.NumberOr(Key("attention.layer_norm_rms_epsilon"), 1e-6));
    config_.Set("rms_norm_eps", eps);
    KVASIR_TRY(const int64_t heads, config_.GetInt("num_attention_heads"));
    KVASIR_TRY(const int64_t hidden, config_.GetInt("hidden_size"));
    KVASIR_TRY(head_dim_,
               metadata_.IntOr(Key("attention.key_length"), heads > 0 ? hidden / heads : 0));
    config_.Set("head_dim", head_dim_);
    return RequireHeadDim("attention.value_length");
  }

  Status CopyInt(std::string_view key, std::string_view field) {
    KVASIR_TRY(const int64_t value, metadata_.SameInt(Key(key)));
    config_.Set(field, value);
    return {};
  }

  Status RequireHeadDim(std::string_view key) {
    KVASIR_TRY(const int64_t value, metadata_.IntOr(Key(key), head_dim_));
    if (value == head_dim_) return {};
    return {ErrorCode::kUnsupported, "metadata '" + Key(key) + "' is " + std::to_string(value) +
                                         ", must be the head size " + std::to_string(head_dim_)};
  }

  Status SetRope() {
    KVASIR_TRY_OK(RequireHeadDim("rope.dimension_count"));
    KVASIR_TRY(const double theta, metadata_.NumberOr(Key("rope.freq_base"), 10000.0));
    config_.Set("rope_theta", theta);
    // Older files have a linear factor and no type.
    KVASIR_TRY(const double linear, metadata_.NumberOr(Key("rope.scale_linear"), 1.0));
    KVASIR_TRY(const double factor, metadata_.NumberOr(Key("rope.scaling.factor"), linear));
    KVASIR_TRY(const std::string type,
               metadata_.TextOr(Key("rope.scaling.type"), factor == 1.0 ? "none" : "linear"));
    if (type == "none" || (type == "linear" && (factor == 1.0 || factor == 0.0))) return {};
    Json scaling = Json::Object{{"rope_type", type}, {"factor", factor}};
    if (type == "yarn") {
      KVASIR_TRY_OK(
          CopyYarn("original_context_length", "original_max_position_embeddings", &scaling));
      KVASIR_TRY_OK(CopyYarn("yarn_beta_fast", "beta_fast", &scaling));
      KVASIR_TRY_OK(CopyYarn("yarn_beta_slow", "beta_slow", &scaling));
      if (metadata_.Has(Key("rope.scaling.attn_factor"))) {
        return {ErrorCode::kUnsupported, "metadata '" + Key("rope.scaling.attn_factor") +
                                             "' is set: yarn with a factor of its own is not "
                                             "supported"};
      }
    }
    config_.Set("rope_scaling", std::move(scaling));
    return {};
  }

  Status CopyYarn(const std::string& key, std::string_view field, Json* scaling) {
    const GgufValue* value = metadata_.Find(Key("rope.scaling." + key));
    if (value == nullptr) return {};
    if (const auto* integer = std::get_if<int64_t>(value)) {
      scaling->Set(field, *integer);
      return {};
    }
    KVASIR_TRY(const double number, metadata_.NumberOr(Key("rope.scaling." + key), 0.0));
    scaling->Set(field, number);
    return {};
  }

  Status SetGemma() {
    KVASIR_TRY(const double local, metadata_.NumberOr(Key("rope.freq_base_swa"), 10000.0));
    config_.Set("rope_local_base_freq", local);
    KVASIR_TRY_OK(CopyInt("attention.sliding_window", "sliding_window"));
    KVASIR_TRY_OK(SetPattern());
    KVASIR_TRY(const double softcap, metadata_.NumberOr(Key("final_logit_softcapping"), 0.0));
    config_.Set("final_logit_softcapping", softcap);
    KVASIR_TRY(const int64_t layers, config_.GetInt("num_hidden_layers"));
    KVASIR_TRY(const int64_t hidden, config_.GetInt("hidden_size"));
    KVASIR_TRY(const int64_t heads, config_.GetInt("num_attention_heads"));
    double scalar = static_cast<double>(head_dim_);
    if (layers == kGemma27BLayers && heads > 0) scalar = static_cast<double>(hidden / heads);
    KVASIR_TRY(const double scale, metadata_.NumberOr(Key("attention.scale"), 0.0));
    if (scale > 0.0) scalar = 1.0 / (scale * scale);
    config_.Set("query_pre_attn_scalar", scalar);
    return {};
  }

  // An integer n (every n-th layer is full), a bool for each layer (true slides), or nothing (6).
  Status SetPattern() {
    const std::string key = Key("attention.sliding_window_pattern");
    const GgufValue* value = metadata_.Find(key);
    if (value == nullptr) return {};
    if (std::holds_alternative<int64_t>(*value)) {
      return CopyInt("attention.sliding_window_pattern", "sliding_window_pattern");
    }
    KVASIR_TRY(const std::vector<int64_t> slides, metadata_.Ints(key));
    Json::Array types;
    for (const int64_t layer : slides) {
      types.push_back(Json(layer != 0 ? "sliding_attention" : "full_attention"));
    }
    config_.Set("layer_types", std::move(types));
    return {};
  }

  const GgufFile& file_;
  const GgufMetadata& metadata_;
  std::string architecture_;
  int64_t head_dim_ = 0;
  Json config_;
};

Status ReadDivisors(const GgufFile& file, ModelConfig* model) {
  if (file.Find(kRopeDivisors) == nullptr) return {};
  const int64_t pairs = model->head_dim / 2;
  KVASIR_TRY(const WeightTensor divisors, file.Get(kRopeDivisors, {pairs}));
  std::vector<float>& values = model->rope_full.frequency_divisors;
  values.resize(static_cast<size_t>(pairs));
  divisors.read_row(0, values.data());
  for (const float value : values) {
    if (!(value > 0.0f)) {
      return {ErrorCode::kCorrupt,
              file.path() + ": tensor '" + std::string(kRopeDivisors) + "' must be positive"};
    }
  }
  // Families that tell sliding layers' ropes apart scale only the others.
  if (model->family != ModelFamily::kGemma3) model->rope_sliding = model->rope_full;
  return {};
}

}  // namespace

Result<Json> GgufConfigJson(const GgufFile& file) {
  auto config = ConfigBuilder(file).Build();
  if (!config.ok()) return WithContext(config.error(), file.path());
  if (file.Find(kRopeDivisors) != nullptr) {
    return {ErrorCode::kUnsupported, file.path() + ": tensor '" + std::string(kRopeDivisors) +
                                         "' scales the frequencies of rope one by one, which no "
                                         "config.json can say"};
  }
  const std::string architecture = *file.metadata().Text("general.architecture");
  config->Set("model_type", architecture == "gemma3" ? "gemma3_text" : architecture);
  if (file.Find("blk.0.attn_q.bias") != nullptr) config->Set("attention_bias", true);
  const auto special = GgufSpecialTokens::Read(file.metadata());
  if (!special.ok()) return WithContext(special.error(), file.path());
  if (special->bos) config->Set("bos_token_id", static_cast<int64_t>(*special->bos));
  if (special->pad) config->Set("pad_token_id", static_cast<int64_t>(*special->pad));
  Json stops = Json::Array();
  for (const Token token : special->stops) stops.Append(static_cast<int64_t>(token));
  if (!special->stops.empty()) config->Set("eos_token_id", std::move(stops));
  return config;
}

Result<ModelConfig> GgufModelConfig(const GgufFile& file) {
  const auto config = ConfigBuilder(file).Build();
  if (!config.ok()) return WithContext(config.error(), file.path());
  auto parsed = ModelConfig::Parse(*config);
  if (!parsed.ok()) return WithContext(parsed.error(), file.path() + ": as config.json");
  ModelConfig& model = *parsed;
  model.norms_hold_offset = true;
  // Whether a file has biases, its tensors say.
  model.qkv_bias = file.Find("blk.0.attn_q.bias") != nullptr;
  model.output_bias = file.Find("blk.0.attn_output.bias") != nullptr;
  model.mlp_bias = file.Find("blk.0.ffn_gate.bias") != nullptr;
  KVASIR_TRY_OK(ReadDivisors(file, &model));
  auto special = GgufSpecialTokens::Read(file.metadata());
  if (!special.ok()) return WithContext(special.error(), file.path());
  model.bos_token_id = special->bos;
  model.pad_token_id = special->pad;
  model.eos_token_ids = std::move(special->stops);
  return parsed;
}

}  // namespace kvasir
