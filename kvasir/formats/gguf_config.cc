#include "kvasir/formats/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/formats/gguf_deepseek.h"
#include "kvasir/formats/gguf_layers.h"
#include "kvasir/formats/gguf_llama_kin.h"
#include "kvasir/formats/gguf_rope.h"
#include "kvasir/formats/gguf_special_tokens.h"

namespace kvasir {
namespace {

constexpr std::string_view kEmbedding = "token_embd.weight";
constexpr std::string_view kGptOss = "gpt-oss";
constexpr std::string_view kMistral3 = "mistral3";
constexpr std::string_view kPhi3 = "phi3";
constexpr std::string_view kDeepSeek2 = "deepseek2";
constexpr std::string_view kGlm4Moe = "glm4moe";
// The largest Gemma 2 and 3, whose scores are scaled by hidden_size / heads instead of head_dim.
// llama.cpp, too, knows them by their layers: the metadata does not say.
constexpr int64_t kGemma2With27B = 46;
constexpr int64_t kGemma3With27B = 62;
// Layers of the Gemma 3 models (4B, 12B, 27B) whose full layers scale positions.
constexpr std::array<int64_t, 3> kGemma3Scaled = {34, 48, kGemma3With27B};
// Models have a handful; the bound keeps a hostile list from becoming work in every step.
constexpr size_t kMaxSuppressed = 1024;

struct Architecture {
  std::string_view gguf;
  std::string_view config;
  std::string_view model_type;
};
constexpr std::array<Architecture, 24> kArchitectures = {{
    {"llama", "LlamaForCausalLM", "llama"},
    {kMistral3, "Ministral3ForCausalLM", "ministral3"},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3"},
    {"granite", "GraniteForCausalLM", "granite"},
    {"granitemoe", "GraniteMoeForCausalLM", "granitemoe"},
    {"granitehybrid", "GraniteMoeHybridForCausalLM", "granitemoehybrid"},
    {"lfm2", "Lfm2ForCausalLM", "lfm2"},
    {"lfm2moe", "Lfm2MoeForCausalLM", "lfm2_moe"},
    {"olmo2", "Olmo2ForCausalLM", "olmo2"},  // of OLMo 3 as well
    {"olmo3", "Olmo3ForCausalLM", "olmo3"},  // as Ollama may call it
    {kPhi3, "Phi3ForCausalLM", "phi3"},
    {kDeepSeek2, "DeepseekV3ForCausalLM", "deepseek_v3"},
    {"glm4", "Glm4ForCausalLM", "glm4"},
    {kGlm4Moe, "Glm4MoeForCausalLM", "glm4_moe"},
    {"qwen2", "Qwen2ForCausalLM", "qwen2"},
    {"qwen3", "Qwen3ForCausalLM", "qwen3"},
    {"qwen3moe", "Qwen3MoeForCausalLM", "qwen3_moe"},
    {"qwen35", "Qwen3_5ForCausalLM", "qwen3_5_text"},
    {"qwen35moe", "Qwen3_5MoeForCausalLM", "qwen3_5_moe_text"},
    {"qwen3next", "Qwen3NextForCausalLM", "qwen3_next"},
    {kGptOss, "GptOssForCausalLM", "gpt_oss"},
    {"gemma2", "Gemma2ForCausalLM", "gemma2"},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text"},
    {"gemma4", "Gemma4ForCausalLM", "gemma4_text"},
}};

constexpr std::array<std::string_view, 10> kWithExperts = {
    "qwen3moe", "qwen35moe", "granitemoe", "qwen3next", "granitehybrid",
    "lfm2moe",  kGptOss,     "gemma4",     kDeepSeek2,  kGlm4Moe};

// What a file's metadata say.
struct FileConfig {
  Json config;  // as a config.json
  // Divisors of frequencies that no member of `config` says; usually none.
  std::vector<float> divisors;
};

// The query_pre_attn_scalar whose root scales scores: a whole number where the file's float can be
// of one.
double ScalarOf(double scale) {
  const double scalar = 1.0 / (scale * scale);
  const double whole = std::round(scalar);
  const bool is_whole = static_cast<float>(1.0 / std::sqrt(whole)) == static_cast<float>(scale);
  return is_whole ? whole : scalar;
}

class ConfigBuilder {
 public:
  explicit ConfigBuilder(const GgufFile& file) : file_(file), metadata_(file.metadata()) {}

  Result<FileConfig> Build() {
    KVASIR_TRY(architecture_, metadata_.Text("general.architecture"));
    KVASIR_TRY_OK(SetArchitecture());
    KVASIR_TRY_OK(SetSizes());
    const bool is_gemma4 = architecture_ == "gemma4";
    if (architecture_.starts_with("gemma")) KVASIR_TRY_OK(SetGemma());
    if (is_gemma4) {
      KVASIR_TRY_OK(AddGgufGemma4(keys_, file_, &config_));
    } else if (has_delta_nets()) {
      KVASIR_TRY_OK(AddGgufQwen35(keys_, file_, &config_));
    } else if (architecture_.starts_with("lfm2")) {
      KVASIR_TRY_OK(AddGgufLfm2(keys_, file_, &config_));
    } else if (architecture_ == "granitehybrid") {
      KVASIR_TRY_OK(AddGgufGraniteHybrid(keys_, file_, &config_));
    } else if (architecture_ == kDeepSeek2) {
      KVASIR_TRY_OK(AddGgufDeepSeek(keys_, file_, &config_));
    } else if (architecture_ == kGlm4Moe) {
      KVASIR_TRY_OK(AddGgufGlm4Moe(keys_, file_, &config_));
    } else if (is_glm()) {
      KVASIR_TRY_OK(AddGgufGlm4(keys_, &config_));
    } else {
      KVASIR_TRY_OK(SetHeads());
      KVASIR_TRY_OK(SetIntermediateSize());
    }
    if (architecture_ == "qwen3moe") KVASIR_TRY_OK(AddGgufQwenExperts(keys_, file_, &config_));
    if (architecture_ == kGptOss) KVASIR_TRY_OK(AddGgufGptOss(keys_, &config_));
    if (architecture_ == "granitemoe") KVASIR_TRY_OK(AddGgufGraniteExperts(keys_, &config_));
    if (architecture_.starts_with("granite")) KVASIR_TRY_OK(AddGgufGranite(keys_, &config_));
    if (is_olmo()) KVASIR_TRY_OK(AddGgufOlmo(keys_, &config_));
    if (architecture_ == kPhi3) KVASIR_TRY_OK(AddGgufPhi3(keys_, &config_));
    KVASIR_TRY_OK(is_gemma4 ? SetGemma4Rope() : SetRope());
    return FileConfig{std::move(config_), std::move(divisors_)};
  }

 private:
  std::string Key(std::string_view name) const { return keys_.Key(name); }
  bool has_delta_nets() const {
    return architecture_ == "qwen3next" || architecture_.starts_with("qwen35");
  }
  bool is_glm() const { return architecture_.starts_with("glm4"); }
  bool is_olmo() const { return architecture_.starts_with("olmo"); }
  Status CopyInt(std::string_view name, std::string_view field) {
    return keys_.CopyInt(name, field, &config_);
  }

  Status SetArchitecture() {
    std::string known;
    for (const Architecture& architecture : kArchitectures) {
      if (architecture.gguf == architecture_) {
        config_.Set("architectures", Json::Array{Json(architecture.config)});
        config_.Set("model_type", architecture.model_type);
      }
      known += (known.empty() ? "" : ", ") + std::string(architecture.gguf);
    }
    if (config_.is_null()) {
      return {ErrorCode::kUnsupported, "metadata 'general.architecture' is '" +
                                           architecture_.substr(0, 40) + "'; supported are " +
                                           known};
    }
    KVASIR_TRY(const int64_t experts, metadata_.IntOr(Key("expert_count"), 0));
    if (experts != 0 && std::ranges::find(kWithExperts, architecture_) == kWithExperts.end()) {
      std::string those;
      for (const std::string_view name : kWithExperts) {
        those += (those.empty() ? "" : ", ") + std::string(name);
      }
      return {ErrorCode::kUnsupported, "metadata '" + Key("expert_count") + "' is " +
                                           std::to_string(experts) + ": experts are read in " +
                                           those + " only"};
    }
    KVASIR_TRY(const bool is_causal, metadata_.FlagOr(Key("attention.causal"), true));
    if (!is_causal) {
      return {ErrorCode::kUnsupported, "metadata '" + Key("attention.causal") +
                                           "' is false: only causal attention is supported"};
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
    KVASIR_TRY_OK(CopyInt("block_count", "num_hidden_layers"));
    KVASIR_TRY_OK(CopyInt("context_length", "max_position_embeddings"));
    KVASIR_TRY_OK(CopyInt("attention.head_count", "num_attention_heads"));
    // Gemma's is the same everywhere, so that Ollama does not ask for it; of others there are
    // several.
    const std::string epsilon = Key("attention.layer_norm_rms_epsilon");
    const bool is_gemma = architecture_.starts_with("gemma");
    KVASIR_TRY(const double eps,
               is_gemma ? metadata_.NumberOr(epsilon, 1e-6) : metadata_.Number(epsilon));
    config_.Set("rms_norm_eps", eps);
    return {};
  }

  Status SetHeads() {
    config_.Set("num_key_value_heads", nullptr);  // as many as queries
    if (metadata_.Has(Key("attention.head_count_kv"))) {
      KVASIR_TRY_OK(CopyInt("attention.head_count_kv", "num_key_value_heads"));
    }
    KVASIR_TRY(const int64_t head_dim, GgufHeadDim(keys_, config_));
    config_.Set("head_dim", head_dim);
    return RequireSize("attention.value_length", head_dim);
  }

  // Where there are only experts, a file may lack the size of the others.
  Status SetIntermediateSize() {
    const bool has_only_experts = architecture_ == "qwen3moe" || architecture_ == kGptOss;
    const bool lacks_others = has_only_experts && !metadata_.Has(Key("feed_forward_length"));
    return CopyInt(architecture_ == kGptOss || lacks_others ? "expert_feed_forward_length"
                                                            : "feed_forward_length",
                   "intermediate_size");
  }

  // If the file has the key, it must be `size`.
  Status RequireSize(std::string_view key, int64_t size) const {
    KVASIR_TRY(const int64_t value, metadata_.IntOr(Key(key), size));
    if (value == size) return {};
    return {ErrorCode::kUnsupported, "metadata '" + Key(key) + "' is " + std::to_string(value) +
                                         ", must be the head size " + std::to_string(size)};
  }

  Status SetRope() {
    KVASIR_TRY(const int64_t head_dim, config_.GetInt("head_dim"));
    if (architecture_ == kPhi3) {
      KVASIR_TRY(const int64_t rotated, metadata_.IntOr(Key("rope.dimension_count"), head_dim));
      KVASIR_TRY(Json scaling, GgufLongRope(file_, rotated));
      if (!scaling.is_null()) return SetLongRope(std::move(scaling));
    } else if (!has_delta_nets() && !is_glm()) {
      KVASIR_TRY_OK(RequireSize("rope.dimension_count", head_dim));
    }
    KVASIR_TRY_OK(CheckRopeFactors());
    const bool is_gemma3 = architecture_ == "gemma3";
    const std::string base = FirstKey("rope.freq_base", "rope.global.freq_base");
    KVASIR_TRY(const double theta, metadata_.NumberOr(base, is_gemma3 ? 1e6 : 10000.0));
    config_.Set("rope_theta", theta);
    if (is_glm() && file_.Find(kGgufRopeDivisors) != nullptr) {
      return {ErrorCode::kUnsupported, "tensor '" + std::string(kGgufRopeDivisors) +
                                           "' is not read in files of " + architecture_};
    }
    if (!has_delta_nets() && !is_glm()) {
      KVASIR_TRY(divisors_, ReadGgufRopeDivisors(file_, head_dim));
    }
    double unsaid = 1.0;
    if (is_gemma3 && !metadata_.Has(base)) {
      // Ollama writes nothing about rope for models that also see.
      KVASIR_TRY(const int64_t layers, config_.GetInt("num_hidden_layers"));
      if (std::find(kGemma3Scaled.begin(), kGemma3Scaled.end(), layers) != kGemma3Scaled.end()) {
        unsaid = 8.0;
      }
    }
    // Older files have a linear factor and no type.
    KVASIR_TRY(const double linear, metadata_.NumberOr(Key("rope.scale_linear"), unsaid));
    KVASIR_TRY(const double factor, metadata_.NumberOr(Key("rope.scaling.factor"), linear));
    KVASIR_TRY(const std::string type,
               metadata_.TextOr(Key("rope.scaling.type"), factor == 1.0 ? "none" : "linear"));
    if (type == "none" || (type == "linear" && (factor == 1.0 || factor == 0.0))) {
      Json known = RopeParametersOf(divisors_, theta);
      if (architecture_ == kMistral3) SetMistral();
      if (known.is_null()) return {};
      // Every reader knows llama3 under its older name.
      const bool is_llama3 = *known.Find("rope_type") == Json("llama3");
      config_.Set(is_llama3 ? "rope_scaling" : "rope_parameters", std::move(known));
      divisors_.clear();
      return {};
    }
    Json scaling = Json::Object{{"rope_type", type}, {"factor", factor}};
    if (type == "yarn") KVASIR_TRY_OK(SetYarn(&scaling));
    if (architecture_ == kMistral3) {  // whose readers know nothing older
      scaling.Set("rope_theta", theta);
      config_.Set("rope_parameters", std::move(scaling));
      return {};
    }
    config_.Set("rope_scaling", std::move(scaling));
    return {};
  }

  // Mistral Small 3 is called as Ministral 3 is, which always has yarn.
  void SetMistral() {
    config_.Set("architectures", Json::Array{Json("MistralForCausalLM")});
    config_.Set("model_type", "mistral");
    config_.Set("sliding_window", nullptr);
  }

  Status SetLongRope(Json scaling) {
    KVASIR_TRY(const double theta, metadata_.NumberOr(Key("rope.freq_base"), 10000.0));
    config_.Set("rope_theta", theta);
    KVASIR_TRY_OK(
        CopyInt("rope.scaling.original_context_length", "original_max_position_embeddings"));
    KVASIR_TRY(const int64_t original, config_.GetInt("original_max_position_embeddings"));
    KVASIR_TRY(const int64_t positions, config_.GetInt("max_position_embeddings"));
    KVASIR_TRY(const double attention, metadata_.NumberOr(Key("rope.scaling.attn_factor"), 1.0));
    const double stretch = static_cast<double>(positions) / static_cast<double>(original);
    // What follows from the lengths is not said: readers refuse members that they do not know.
    if (static_cast<float>(attention) !=
        static_cast<float>(LongRopeAttentionFactor(stretch, original))) {
      scaling.Set("attention_factor", attention);
    }
    config_.Set("rope_scaling", std::move(scaling));
    return {};
  }

  // The key of the file, of two that mean the same; the first if it has neither.
  std::string FirstKey(std::string_view name, std::string_view other) const {
    return !metadata_.Has(Key(name)) && metadata_.Has(Key(other)) ? Key(other) : Key(name);
  }

  Status SetYarn(Json* scaling) const {
    KVASIR_TRY_OK(CopyYarn("original_context_length", "original_max_position_embeddings", scaling));
    // Ollama writes them without "yarn_".
    for (const std::string name : {"beta_fast", "beta_slow"}) {
      KVASIR_TRY_OK(CopyYarn(name, name, scaling));
      KVASIR_TRY_OK(CopyYarn("yarn_" + name, name, scaling));
    }
    if (is_olmo()) KVASIR_TRY_OK(CopyYarn("attn_factor", "attention_factor", scaling));
    // As the checkpoints that such files are made of; metadata has no word for it.
    if (architecture_ == kGptOss) scaling->Set("truncate", false);
    if (architecture_ == kDeepSeek2) return AddGgufYarnScales(keys_, scaling);
    if (architecture_ != kMistral3) return {};
    // Of the two factors of DeepSeek's yarn the first is always 1.
    const std::string all =
        FirstKey("rope.scaling.yarn_log_multiplier", "rope.scaling.mscale_all_dim");
    if (metadata_.Has(all)) {
      KVASIR_TRY(const double factor, metadata_.Number(all));
      scaling->Set("mscale", 1.0);
      scaling->Set("mscale_all_dim", factor);
    }
    KVASIR_TRY(
        const double beta,
        metadata_.NumberOr(FirstKey("attention.temperature_scale", "rope.scaling_beta"), 0.0));
    scaling->Set("llama_4_scaling_beta", beta);
    return {};
  }

  // Every type takes these, so they are refused unless they are what changes nothing. Of the first
  // three a negative one leaves it to the type. Of yarn `yarn_attn_factor` changes nothing for
  // these architectures in llama.cpp, as a config.json's `attn_factor` in transformers.
  Status CheckRopeFactors() const {
    KVASIR_TRY(const std::string type, metadata_.TextOr(Key("rope.scaling.type"), ""));
    for (const auto& [name, plain] :
         {std::pair{"attn_factor", 1.0}, std::pair{"yarn_attn_factor", 1.0},
          std::pair{"yarn_ext_factor", 1.0}, std::pair{"yarn_log_multiplier", 0.0}}) {
      const std::string key = Key("rope.scaling." + std::string(name));
      KVASIR_TRY(const double value, metadata_.NumberOr(key, plain));
      if (type == "yarn" && name == std::string_view("yarn_attn_factor")) continue;
      const bool has_multiplier = architecture_ == kMistral3 || architecture_ == kDeepSeek2;
      if (has_multiplier && name == std::string_view("yarn_log_multiplier")) continue;
      if (is_olmo() && type == "yarn" && name == std::string_view("attn_factor")) continue;
      if (value == plain || (plain == 1.0 && value < 0.0)) continue;
      return {ErrorCode::kUnsupported,
              "metadata '" + key + "' is set: rope with such a factor is not supported"};
    }
    return {};
  }

  Status CopyYarn(const std::string& key, std::string_view field, Json* scaling) const {
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

  // Full and sliding layers have heads and ropes of their own; the tensor is of the full ones.
  Status SetGemma4Rope() {
    KVASIR_TRY(const int64_t global, config_.GetInt("global_head_dim"));
    KVASIR_TRY(const int64_t local, config_.GetInt("head_dim"));
    KVASIR_TRY_OK(RequireSize("attention.value_length", global));
    KVASIR_TRY_OK(RequireSize("rope.dimension_count", global));
    KVASIR_TRY_OK(RequireSize("attention.value_length_swa", local));
    KVASIR_TRY_OK(RequireSize("rope.dimension_count_swa", local));
    KVASIR_TRY(const double theta, metadata_.NumberOr(Key("rope.freq_base"), 1e6));
    KVASIR_TRY(const double local_theta, metadata_.NumberOr(Key("rope.freq_base_swa"), 10000.0));
    KVASIR_TRY(divisors_, ReadGgufRopeDivisors(file_, global));
    if (divisors_.empty()) {
      return {ErrorCode::kCorrupt, "tensor '" + std::string(kGgufRopeDivisors) + "' is missing"};
    }
    Json full = RopeParametersOf(divisors_, theta);
    if (full.is_null()) {
      full = Json::Object{{"rope_type", "default"}, {"rope_theta", theta}};
    } else {
      divisors_.clear();
    }
    const Json sliding = Json::Object{{"rope_type", "default"}, {"rope_theta", local_theta}};
    config_.Set("rope_parameters",
                Json::Object{{"full_attention", std::move(full)}, {"sliding_attention", sliding}});
    return {};
  }

  Status SetGemma() {
    KVASIR_TRY_OK(AddGgufWindow(keys_, &config_));
    KVASIR_TRY_OK(CopySoftcap("final_logit_softcapping"));
    if (architecture_ == "gemma4") return {};
    if (architecture_ == "gemma2") KVASIR_TRY_OK(CopySoftcap("attn_logit_softcapping"));
    if (architecture_ == "gemma3") {
      KVASIR_TRY(
          const double local,
          metadata_.NumberOr(FirstKey("rope.freq_base_swa", "rope.local.freq_base"), 10000.0));
      config_.Set("rope_local_base_freq", local);
    }
    KVASIR_TRY(const int64_t layers, config_.GetInt("num_hidden_layers"));
    KVASIR_TRY(const int64_t hidden, config_.GetInt("hidden_size"));
    KVASIR_TRY(const int64_t heads, config_.GetInt("num_attention_heads"));
    KVASIR_TRY(const int64_t head_dim, GgufHeadDim(keys_, config_));
    auto scalar = static_cast<double>(head_dim);
    const int64_t largest = architecture_ == "gemma2" ? kGemma2With27B : kGemma3With27B;
    if (layers == largest && heads > 0) scalar = static_cast<double>(hidden / heads);
    KVASIR_TRY(const double scale, metadata_.NumberOr(Key("attention.scale"), 0.0));
    if (scale > 0.0) scalar = ScalarOf(scale);
    config_.Set("query_pre_attn_scalar", scalar);
    return {};
  }

  // Absent: what the family has.
  Status CopySoftcap(std::string_view name) {
    if (!metadata_.Has(Key(name))) return {};
    KVASIR_TRY(const double softcap, metadata_.NumberOr(Key(name), 0.0));
    config_.Set(name, softcap);
    return {};
  }

  const GgufFile& file_;
  const GgufMetadata& metadata_;
  std::string architecture_;
  const GgufKeys keys_{metadata_, architecture_};
  Json config_;
  std::vector<float> divisors_;
};

// Whether value heads lie in rounds, as what has no joined matrix of steps and decays has them.
bool HasTiledHeads(const GgufFile& file) {
  for (const std::string& name : file.names()) {
    if (name.ends_with(".ssm_alpha.weight")) return true;
  }
  return false;
}

// Which biases a file has, its tensors say: the first of each, or what it would be called.
struct Bias {
  std::string tensor;
  bool is_there = false;
};
struct Biases {
  Bias qkv;
  Bias output;
  Bias mlp;
};

// Not every layer has attention, or an MLP of its own.
Bias BiasNamed(const GgufFile& file, const std::string& part) {
  for (const std::string& name : file.names()) {
    if (name.starts_with("blk.") && name.ends_with("." + part)) return {name, true};
  }
  return {"blk.0." + part, false};
}

Biases BiasesOf(const GgufFile& file) {
  return {.qkv = BiasNamed(file, "attn_q.bias"),
          .output = BiasNamed(file, "attn_output.bias"),
          .mlp = BiasNamed(file, "ffn_gate.bias")};
}

// A config.json has fewer words for it.
Status CheckSaysWhichBiases(const GgufFile& file, const Biases& biases, const Json& config) {
  auto model = ModelConfig::Parse(config);
  if (!model.ok()) return WithContext(model.error(), file.path() + ": as config.json");
  for (const auto& [says, bias] :
       {std::pair{model->qkv_bias, &biases.qkv}, std::pair{model->output_bias, &biases.output},
        std::pair{model->mlp_bias, &biases.mlp}}) {
    if (says == bias->is_there) continue;
    return {ErrorCode::kUnsupported,
            file.path() + ": tensor '" + bias->tensor + "' is " +
                (bias->is_there ? "there" : "missing") +
                ", which no config.json of its architecture can say beside the other biases"};
  }
  return {};
}

Result<std::vector<Token>> SuppressedTokens(const GgufFile& file) {
  constexpr std::string_view kKey = "tokenizer.ggml.suppress_tokens";
  KVASIR_TRY(const auto ids, file.metadata().Ints(kKey));
  if (ids.size() > kMaxSuppressed) {
    return {ErrorCode::kCorrupt, "metadata '" + std::string(kKey) + "' lists more than " +
                                     std::to_string(kMaxSuppressed) + " tokens"};
  }
  std::vector<Token> tokens;
  for (const int64_t id : ids) {
    if (id >= 0 && id <= std::numeric_limits<Token>::max())
      tokens.push_back(static_cast<Token>(id));
  }
  return tokens;
}

// The sampling that the file recommends.
Status AddSampling(const GgufMetadata& metadata, Json* generation) {
  for (const auto& [key, field] :
       {std::pair{kGgufTemperature, "temperature"}, std::pair{kGgufTopP, "top_p"},
        std::pair{kGgufMinP, "min_p"}, std::pair{kGgufRepetition, "repetition_penalty"}}) {
    if (!metadata.Has(key)) continue;
    KVASIR_TRY(const double value, metadata.NumberOr(key, 0.0));
    generation->Set(field, value);
    // Without it readers of such files take the likeliest token.
    if (key == kGgufTemperature) generation->Set("do_sample", value > 0);
  }
  if (!metadata.Has(kGgufTopK)) return {};
  KVASIR_TRY(const int64_t top_k, metadata.Int(kGgufTopK));
  generation->Set("top_k", top_k);
  return {};
}

}  // namespace

Result<Json> GgufGenerationJson(const GgufFile& file) {
  Json generation = Json::Object();
  const auto suppressed = SuppressedTokens(file);
  if (!suppressed.ok()) return WithContext(suppressed.error(), file.path());
  Json tokens = Json::Array();
  for (const Token token : *suppressed) tokens.Append(static_cast<int64_t>(token));
  if (!suppressed->empty()) generation.Set("suppress_tokens", std::move(tokens));
  const Status sampling = AddSampling(file.metadata(), &generation);
  if (!sampling.ok()) return WithContext(sampling.error(), file.path());
  return generation;
}

Result<Json> GgufConfigJson(const GgufFile& file) {
  auto built = ConfigBuilder(file).Build();
  if (!built.ok()) return WithContext(built.error(), file.path());
  if (!built->divisors.empty()) {
    return {ErrorCode::kUnsupported, file.path() + ": tensor '" + std::string(kGgufRopeDivisors) +
                                         "' scales the frequencies of rope one by one, as no "
                                         "type of rope does that a config.json can name"};
  }
  Json config = std::move(built->config);
  const Biases biases = BiasesOf(file);
  config.Set("attention_bias", biases.qkv.is_there);
  config.Set("mlp_bias", biases.mlp.is_there);
  KVASIR_TRY_OK(CheckSaysWhichBiases(file, biases, config));
  const auto special = GgufSpecialTokens::Read(file.metadata());
  if (!special.ok()) return WithContext(special.error(), file.path());
  if (special->bos) config.Set("bos_token_id", static_cast<int64_t>(*special->bos));
  if (special->pad) config.Set("pad_token_id", static_cast<int64_t>(*special->pad));
  Json stops = Json::Array();
  for (const Token token : special->stops) stops.Append(static_cast<int64_t>(token));
  if (!special->stops.empty()) config.Set("eos_token_id", std::move(stops));
  return config;
}

Result<ModelConfig> GgufModelConfig(const GgufFile& file) {
  auto built = ConfigBuilder(file).Build();
  if (!built.ok()) return WithContext(built.error(), file.path());
  auto parsed = ModelConfig::Parse(built->config);
  if (!parsed.ok()) return WithContext(parsed.error(), file.path() + ": as config.json");
  ModelConfig& model = *parsed;
  model.norms_hold_offset = true;
  model.delta_net.is_tiled = model.family == ModelFamily::kQwen35 && HasTiledHeads(file);
  const Biases biases = BiasesOf(file);
  model.qkv_bias = biases.qkv.is_there;
  model.output_bias = biases.output.is_there;
  model.mlp_bias = biases.mlp.is_there;
  if (!built->divisors.empty()) {
    model.rope_full.frequency_divisors = std::move(built->divisors);
    // Families whose sliding layers have ropes of their own scale only the others.
    if (!model.traits().has_sliding_rope) model.rope_sliding = model.rope_full;
  }
  auto special = GgufSpecialTokens::Read(file.metadata());
  if (!special.ok()) return WithContext(special.error(), file.path());
  model.bos_token_id = special->bos;
  model.pad_token_id = special->pad;
  model.eos_token_ids = std::move(special->stops);
  KVASIR_TRY(const Json generation, GgufGenerationJson(file));
  auto read = GenerationConfig::Parse(generation);
  if (!read.ok()) return WithContext(read.error(), file.path() + ": as generation_config.json");
  model.generation = *std::move(read);
  model.suppressed_tokens = model.generation.suppress_tokens;
  return parsed;
}

}  // namespace kvasir
