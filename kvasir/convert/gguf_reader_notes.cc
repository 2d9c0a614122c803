#include "kvasir/convert/gguf_reader_notes.h"

namespace kvasir {
namespace {

// What llama.cpp takes for query_pre_attn_scalar, whatever the file says: by the number of layers
// it knows the 27B models.
double AssumedQueryScalar(const ModelConfig& config) {
  const int largest = config.family == ModelFamily::kGemma2 ? 46 : 62;
  const bool is_largest = config.num_hidden_layers == largest;
  return is_largest ? static_cast<double>(config.hidden_size / config.num_attention_heads)
                    : static_cast<double>(config.head_dim);
}

bool HasDenseLayers(const ModelConfig& config) {
  for (int i = 0; i < config.num_hidden_layers; ++i) {
    if (config.experts.count > 0 && !config.has_experts(i)) return true;
  }
  return false;
}

// Shared keys and values are taken from the last two layers that have their own: a sliding one,
// then a full one.
bool SharesFromOtherLayers(const ModelConfig& config) {
  const int owners = config.num_hidden_layers - config.num_kv_shared_layers;
  if (config.num_kv_shared_layers == 0) return false;
  return owners < 2 || config.is_full(owners - 2) || !config.is_full(owners - 1);
}

}  // namespace

std::vector<std::string> GgufReaderNotes(const ModelConfig& config) {
  const ModelFamily family = config.family;
  const bool is_gemma23 = family == ModelFamily::kGemma2 || family == ModelFamily::kGemma3;
  std::vector<std::string> notes;
  const auto add = [&](const char* what) {
    notes.push_back(std::string("llama.cpp reads this model otherwise, or not at all: ") + what);
  };
  if (is_gemma23 && config.query_pre_attn_scalar != AssumedQueryScalar(config)) {
    add("it has a query_pre_attn_scalar of its own");
  }
  if (family == ModelFamily::kQwen3 && HasDenseLayers(config)) {
    add("some of its layers have no experts");
  }
  if (SharesFromOtherLayers(config)) {
    add("the last two layers with keys and values of their own are not a sliding and a full one");
  }
  const bool is_olmo = family == ModelFamily::kOlmo;
  if (config.output_bias && (is_gemma23 || is_olmo || family == ModelFamily::kQwen3)) {
    add("its attention has a bias on the output (attention_bias)");
  }
  if (family == ModelFamily::kGemma2 && !config.tie_word_embeddings) {
    add("it has a head of its own");
  }
  if (is_olmo && config.tie_word_embeddings) add("its head is its embedding");
  const int64_t heads = int64_t{config.num_attention_heads} * config.head_dim;
  if ((is_olmo || family == ModelFamily::kPhi3) && heads != config.hidden_size) {
    add("its heads together are not as wide as the model (head_dim)");
  }
  if (family == ModelFamily::kPhi3 && config.sliding_window > 0) {
    add("its layers slide (sliding_window)");
  }
  const RopeConfig& rope = config.rope_full;
  if (rope.type == RopeType::kYarn && (rope.beta_fast != 32 || rope.beta_slow != 1)) {
    add("its yarn has a beta_fast or beta_slow of its own");
  }
  return notes;
}

}  // namespace kvasir
