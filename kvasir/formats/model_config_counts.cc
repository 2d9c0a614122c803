// What a config says about sizes: parameters, cache elements, and which layer reads whose keys.
// Deliberately from the numbers alone: no tensor is looked at.
#include "kvasir/formats/model_config.h"

namespace kvasir {
namespace {

// z, x, B, C and dt, the convolution, decays, biases and skips of heads, and the way back.
int64_t MambaParameters(const DeltaNetConfig& net, int64_t hidden) {
  const int64_t values = int64_t{net.value_heads} * net.value_dim;
  const int64_t channels = values + int64_t{2} * net.key_heads * net.key_dim;
  return hidden * (2 * values + (channels - values) + net.value_heads) +
         channels * (net.conv_width + (net.has_conv_bias ? 1 : 0)) + 3 * net.value_heads +
         values * hidden;
}

// Of a gated delta net: q, k, v, z, beta and decay, the convolution, decays and the way back.
int64_t DeltaNetParameters(const DeltaNetConfig& net, int64_t hidden) {
  if (net.is_mamba) return MambaParameters(net, hidden);
  const int64_t keys = int64_t{net.key_heads} * net.key_dim;
  const int64_t values = int64_t{net.value_heads} * net.value_dim;
  const int64_t heads = net.value_heads;
  return hidden * (2 * keys + 2 * values + 2 * heads) + net.conv_width * (2 * keys + values) +
         2 * heads + values * hidden;
}

int64_t ShortConvParameters(const ShortConvConfig& conv, int64_t hidden) {
  return 4 * hidden * hidden + conv.width * hidden + (conv.has_bias ? 5 * hidden : 0);
}

// Projections to and from both ranks, and the way back.
int64_t LatentParameters(const LatentConfig& latent, int64_t heads, int64_t hidden) {
  const int64_t queries = heads * (latent.plain_dim + latent.rotary_dim);
  const int64_t made_of = latent.query_rank > 0 ? latent.query_rank : hidden;
  return hidden * latent.query_rank + made_of * queries +
         hidden * (latent.kv_rank + latent.rotary_dim) +
         latent.kv_rank * heads * (latent.plain_dim + latent.value_dim) +
         heads * latent.value_dim * hidden;
}

int64_t AttentionParameters(const ModelConfig& config, int layer) {
  const int64_t hidden = config.hidden_size;
  if (config.latent.kv_rank > 0) {
    return LatentParameters(config.latent, config.num_attention_heads, hidden);
  }
  if (config.is_recurrent(layer) && config.short_conv.width > 0) {
    return ShortConvParameters(config.short_conv, hidden);
  }
  if (config.is_recurrent(layer)) return DeltaNetParameters(config.delta_net, hidden);
  const int64_t queries = int64_t{config.num_attention_heads} * config.head_dim_of(layer);
  const int64_t gates = config.traits().has_query_gates ? queries : 0;
  const int64_t keys = int64_t{config.key_value_heads_of(layer)} * config.head_dim_of(layer);
  const bool has_values = !(config.values_from_keys && config.is_full(layer));
  const int64_t stored = config.owns_kv(layer) ? (has_values ? 2 : 1) * keys : 0;
  return hidden * (queries + gates + stored) + queries * hidden +
         (config.qkv_bias ? queries + gates + stored : 0) + (config.output_bias ? hidden : 0) +
         (config.traits().has_sinks ? config.num_attention_heads : 0);
}

int64_t MlpParameters(const ModelConfig& config, int layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t size = config.intermediate_size_of(layer);
  const ExpertsConfig& experts = config.experts;
  int64_t count = 0;
  if (!config.has_experts(layer) || experts.beside_dense) {
    count += 3 * hidden * size + (config.mlp_bias ? 2 * size + hidden : 0);
  }
  if (config.has_experts(layer)) {
    count += experts.count * (3 * hidden * experts.intermediate_size + hidden);
    if (experts.has_choice_biases) count += experts.count;
    if (config.traits().has_expert_biases) {
      count += experts.count * (2 * experts.intermediate_size + hidden + 1);
    }
    if (experts.shared_intermediate_size > 0) {
      count +=
          3 * hidden * experts.shared_intermediate_size + (experts.has_shared_gate ? hidden : 0);
    }
    // The router's scales.
    if (experts.beside_dense) count += hidden + experts.count;
  }
  return count + 2 * hidden * config.per_layer_embedding_size;
}

int64_t NormParameters(const ModelConfig& config, int layer) {
  const int64_t hidden = config.hidden_size;
  const int64_t head_norms = config.owns_kv(layer) ? 2 : 1;
  const FamilyTraits traits = config.traits();
  int64_t count = 2 * ((traits.has_pre_norms ? 1 : 0) + (traits.has_post_norms ? 1 : 0)) * hidden;
  if (config.is_recurrent(layer)) {
    const DeltaNetConfig& net = config.delta_net;  // all 0 where there is none
    return count + (net.is_mamba ? int64_t{net.value_heads} * net.value_dim : net.value_dim);
  }
  count += config.latent.query_rank + config.latent.kv_rank;
  if (traits.has_wide_qk_norm) {
    const int heads = config.num_attention_heads + config.key_value_heads_of(layer);
    count += int64_t{heads} * config.head_dim_of(layer);
  } else if (traits.has_qk_norm) {
    count += head_norms * config.head_dim_of(layer);
  }
  if (config.has_experts(layer) && config.experts.beside_dense) count += 3 * hidden;
  if (config.per_layer_embedding_size > 0) count += hidden;
  if (config.family == ModelFamily::kGemma4) ++count;  // the layer's scalar
  return count;
}

}  // namespace

int ModelConfig::shares_kv(int layer) const {
  const int owners = num_hidden_layers - num_kv_shared_layers;
  if (owns_kv(layer)) return -1;
  int donor = owners - 1;
  while (donor >= 0 && is_full(donor) != is_full(layer)) --donor;
  return donor;
}

ParameterCounts ModelConfig::CountParameters() const {
  ParameterCounts counts;
  const int64_t table = vocab_size * hidden_size;
  const int64_t per_layer = int64_t{num_hidden_layers} * per_layer_embedding_size;
  counts.embedding = table + vocab_size * per_layer;
  counts.mlp = hidden_size * per_layer;  // what projects embeddings to all layers
  counts.norms = hidden_size + per_layer_embedding_size;
  for (int i = 0; i < num_hidden_layers; ++i) {
    counts.attention += AttentionParameters(*this, i);
    counts.mlp += MlpParameters(*this, i);
    counts.norms += NormParameters(*this, i);
  }
  counts.output = tie_word_embeddings ? 0 : table;
  return counts;
}

int64_t ModelConfig::KvElementsPerToken() const {
  int64_t elements = 0;
  for (int i = 0; i < num_hidden_layers; ++i) {
    if (owns_kv(i) && !is_recurrent(i))
      elements += int64_t{2} * key_value_heads_of(i) * head_dim_of(i);
  }
  return elements;
}

}  // namespace kvasir
