#include "kvasir/formats/assistant_config.h"

#include <utility>

#include "kvasir/formats/config_limits.h"
#include "kvasir/formats/config_reader.h"

namespace kvasir {
namespace {

constexpr int64_t kMaxClusters = 1 << 22;

// The architecture's name, or the model type of a file that names none.
std::string NameOf(const Json& config) {
  const Json* list = config.Find("architectures");
  const Json* name = config.Find("model_type");
  if (list != nullptr && list->is_array() && !list->as_array().empty()) name = &list->as_array()[0];
  return name != nullptr && name->is_string() ? name->as_string() : "";
}

bool IsUnified(const std::string& name) {
  return name == "Gemma4UnifiedAssistantForCausalLM" || name == "gemma4_unified_assistant";
}

// The decoder inside, as if it stood in a file of its own.
Result<ModelConfig> ParseText(const Json& config) {
  const Json* text = config.Find("text_config");
  if (text == nullptr || !text->is_object()) {
    return {ErrorCode::kCorrupt, "field 'text_config' must be an object: the assistant's layers"};
  }
  Json inner = *text;
  // What the published class fills in.
  const ConfigReader reader(*text, config);
  KVASIR_TRY(const int64_t layers, reader.Integer("num_hidden_layers", 30, 1, 1024));
  KVASIR_TRY(const int64_t shared, reader.Integer("num_kv_shared_layers", 0, 0, 1024));
  if (shared == 0) inner.Set("num_kv_shared_layers", layers);
  if (reader.Find("hidden_size_per_layer_input") == nullptr) {
    inner.Set("hidden_size_per_layer_input", 0);
  }
  Json whole = config;
  whole.Set("text_config", std::move(inner));
  const char* const decoder = IsUnified(NameOf(config)) ? "Gemma4UnifiedForConditionalGeneration"
                                                        : "Gemma4ForConditionalGeneration";
  whole.Set("architectures", Json::Array{decoder});
  return ModelConfig::ParseDecoder(whole);
}

}  // namespace

bool AssistantConfig::Describes(const Json& config) {
  const std::string name = NameOf(config);
  return IsUnified(name) || name == "Gemma4AssistantForCausalLM" || name == "gemma4_assistant";
}

bool AssistantConfig::IsIn(const std::string& folder) {
  const auto config = Json::ParseFile(folder + "/config.json", kMostTextBytes);
  return config.ok() && Describes(*config);
}

Result<AssistantConfig> AssistantConfig::Parse(const Json& config) {
  if (!config.is_object() || !Describes(config)) {
    return {ErrorCode::kUnsupported,
            "field 'architectures' names no assistant; known are Gemma4AssistantForCausalLM and "
            "Gemma4UnifiedAssistantForCausalLM"};
  }
  AssistantConfig assistant;
  KVASIR_TRY(assistant.text, ParseText(config));
  ModelConfig& text = assistant.text;
  text.architecture = NameOf(config);
  const ConfigReader reader(config, config);
  if (text.num_kv_shared_layers != text.num_hidden_layers) {
    return reader.Bad("num_kv_shared_layers",
                      "must be all layers: an assistant has no keys of "
                      "its own");
  }
  if (text.per_layer_embedding_size > 0 || text.experts.count > 0 || text.has_double_wide_mlp) {
    return reader.Bad("text_config",
                      "has per-layer embeddings, experts or wide layers, which "
                      "assistants do not have");
  }
  KVASIR_TRY(assistant.target_hidden_size,
             reader.Integer("backbone_hidden_size", 1536, 1, kMaxHidden));
  KVASIR_TRY(assistant.has_ordered_head, reader.Flag("use_ordered_embeddings", false));
  if (!assistant.has_ordered_head) return assistant;
  KVASIR_TRY(assistant.clusters, reader.Integer("num_centroids", 2048, 1, kMaxClusters));
  KVASIR_TRY(assistant.clusters_looked,
             reader.Integer("centroid_intermediate_top_k", 32, 1, kMaxClusters));
  if (text.vocab_size % assistant.clusters != 0) {
    return reader.Bad("num_centroids", std::to_string(assistant.clusters) +
                                           " must divide the vocabulary of " +
                                           std::to_string(text.vocab_size));
  }
  if (assistant.clusters_looked > assistant.clusters) {
    return reader.Bad("centroid_intermediate_top_k", "is more than num_centroids");
  }
  return assistant;
}

Result<AssistantConfig> AssistantConfig::Load(const std::string& folder) {
  const std::string path = folder + "/config.json";
  KVASIR_TRY(const Json config, Json::ParseFile(path, kMostTextBytes));
  auto assistant = Parse(config);
  if (!assistant.ok()) return WithContext(assistant.error(), path);
  return assistant;
}

int64_t AssistantConfig::ParameterCount() const {
  const int64_t hidden = text.hidden_size;
  // Of what goes into a pass, two target-sized vectors, and of the one that comes out.
  int64_t count = text.ParameterCount() + 3 * target_hidden_size * hidden;
  if (has_ordered_head) count += clusters * hidden;
  return count;
}

}  // namespace kvasir
