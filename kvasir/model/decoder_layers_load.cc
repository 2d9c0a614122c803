// Loading of DecoderLayers: which tensors a spec asks for, and what they weigh.
// Deliberately no arithmetic: decoder_layers.cc runs what is loaded here.
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "kvasir/model/decoder_layers.h"

namespace kvasir {
namespace {

// Of every head's rows, `head_rows`, those from `begin` on, in the given order.
std::vector<int64_t> RowsOfHeads(int heads, int64_t head_rows, int64_t begin,
                                 std::span<const int64_t> order) {
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < heads; ++head) {
    for (const int64_t row : order) rows.push_back(head * head_rows + begin + row);
  }
  return rows;
}

std::vector<float> InOrder(std::span<const float> stored, std::span<const int64_t> order) {
  std::vector<float> ordered;
  for (const int64_t i : order) ordered.push_back(stored[static_cast<size_t>(i)]);
  return ordered;
}

}  // namespace

// Reads the tensors of one layer by their names under "layers.N." (or "mtp.layers.N.").
struct DecoderLayers::LayerLoader {
  WeightSource& source;
  std::string prefix;
  float norm_offset;

  Status Norm(const char* name, int64_t size, std::vector<float>* out) {
    KVASIR_TRY(*out, source.Vector(prefix + name + ".weight", size, norm_offset));
    return {};
  }
  Status Matrix(const std::string& name, int64_t outputs, int64_t inputs, Linear* out) {
    KVASIR_TRY(out->weights, source.Matrix(prefix + name + ".weight", outputs, inputs));
    return {};
  }
  Status MatrixAndBias(const std::string& name, int64_t outputs, int64_t inputs, Linear* out) {
    KVASIR_TRY_OK(Matrix(name, outputs, inputs, out));
    KVASIR_TRY(out->bias, source.Vector(prefix + name + ".bias", outputs, 0));
    return {};
  }
  // Some rows of a stored matrix.
  Status Gathered(const std::string& name, int64_t outputs, int64_t inputs,
                  const std::vector<int64_t>& rows, bool has_bias, Linear* out) {
    KVASIR_TRY(out->weights,
               source.Gathered(prefix + name + ".weight", outputs, inputs, rows, false));
    if (!has_bias) return {};
    KVASIR_TRY(const std::vector<float> bias, source.Vector(prefix + name + ".bias", outputs, 0));
    out->bias = InOrder(bias, rows);
    return {};
  }
  Status Linear_(const std::string& name, int64_t outputs, int64_t inputs, bool has_bias,
                 Linear* out) {
    return has_bias ? MatrixAndBias(name, outputs, inputs, out)
                    : Matrix(name, outputs, inputs, out);
  }
};

Result<std::unique_ptr<const DecoderLayers>> DecoderLayers::Load(DecoderSpec spec,
                                                                 WeightSource& source,
                                                                 Backend& backend,
                                                                 const std::string& prefix) {
  auto layers = std::unique_ptr<DecoderLayers>(new DecoderLayers(std::move(spec), backend));
  const DecoderSpec& s = layers->spec_;
  KVASIR_TRY(layers->final_norm_,
             source.Vector(prefix + "norm.weight", s.hidden_size, s.norm_offset));
  layers->layers_.resize(s.layers.size());
  for (size_t i = 0; i < s.layers.size(); ++i) {
    LayerLoader load{source, prefix + "layers." + std::to_string(i) + ".", s.norm_offset};
    KVASIR_TRY_OK(layers->LoadLayer(static_cast<int>(i), load, &layers->layers_[i]));
  }
  return std::unique_ptr<const DecoderLayers>(std::move(layers));
}

Status DecoderLayers::LoadLayer(int index, LayerLoader& load, Layer* layer) const {
  const DecoderSpec& s = spec_;
  KVASIR_TRY_OK(load.Norm("input_layernorm", s.hidden_size, &layer->attention_norm));
  if (s.norms == DecoderSpec::Norms::kSandwich) {
    KVASIR_TRY_OK(
        load.Norm("post_attention_layernorm", s.hidden_size, &layer->post_attention_norm));
    KVASIR_TRY_OK(load.Norm("pre_feedforward_layernorm", s.hidden_size, &layer->mlp_norm));
    KVASIR_TRY_OK(load.Norm("post_feedforward_layernorm", s.hidden_size, &layer->post_mlp_norm));
  } else {
    KVASIR_TRY_OK(load.Norm("post_attention_layernorm", s.hidden_size, &layer->mlp_norm));
  }
  if (s.layers[static_cast<size_t>(index)].is_recurrent) {
    KVASIR_TRY(layer->delta_net, DeltaNet::Load(s, load.prefix, load.source));
  } else {
    KVASIR_TRY_OK(LoadAttention(index, load, layer));
  }
  KVASIR_TRY_OK(LoadMlp(index, load, layer));
  if (s.per_layer_size > 0) {
    KVASIR_TRY_OK(load.Matrix("per_layer_input_gate", s.per_layer_size, s.hidden_size,
                              &layer->per_layer_gate));
    KVASIR_TRY_OK(load.Matrix("per_layer_projection", s.hidden_size, s.per_layer_size,
                              &layer->per_layer_projection));
    KVASIR_TRY_OK(
        load.Norm("post_per_layer_input_norm", s.hidden_size, &layer->post_per_layer_norm));
  }
  if (s.has_layer_scalar) {
    KVASIR_TRY(const std::vector<float> scalar,
               load.source.Vector(load.prefix + "layer_scalar", 1, 0));
    layer->scalar = scalar[0];
  }
  return {};
}

Status DecoderLayers::LoadAttention(int index, LayerLoader& load, Layer* layer) const {
  const DecoderSpec& s = spec_;
  const DecoderLayerSpec& layer_spec = s.layers[static_cast<size_t>(index)];
  const int64_t query_size = int64_t{s.query_heads} * layer_spec.head_dim;
  const int64_t kv_size = int64_t{layer_spec.kv_heads} * layer_spec.head_dim;
  const bool bias = s.has_qkv_bias;
  const bool owns_kv = layer_spec.shares_kv < 0;
  const RopeSpec& rope = s.ropes[static_cast<size_t>(layer_spec.rope)];
  const std::vector<int64_t> order = HeadOrder(rope);
  const bool is_ordered = rope.rotated == layer_spec.head_dim;
  if (s.has_query_gates) {
    const char* const name = "self_attn.q_proj";
    KVASIR_TRY_OK(load.Gathered(name, 2 * query_size, s.hidden_size,
                                RowsOfHeads(s.query_heads, 2 * layer_spec.head_dim, 0, order), bias,
                                &layer->query));
    std::vector<int64_t> as_stored(order.size());
    std::iota(as_stored.begin(), as_stored.end(), int64_t{0});
    KVASIR_TRY_OK(load.Gathered(
        name, 2 * query_size, s.hidden_size,
        RowsOfHeads(s.query_heads, 2 * layer_spec.head_dim, layer_spec.head_dim, as_stored), bias,
        &layer->query_gate));
  } else {
    KVASIR_TRY_OK(load.Linear_("self_attn.q_proj", query_size, s.hidden_size, bias, &layer->query));
  }
  if (owns_kv && is_ordered) {
    KVASIR_TRY_OK(load.Linear_("self_attn.k_proj", kv_size, s.hidden_size, bias, &layer->key));
  } else if (owns_kv) {
    KVASIR_TRY_OK(load.Gathered("self_attn.k_proj", kv_size, s.hidden_size,
                                RowsOfHeads(layer_spec.kv_heads, layer_spec.head_dim, 0, order),
                                bias, &layer->key));
  }
  if (owns_kv && !layer_spec.values_from_keys) {
    KVASIR_TRY_OK(load.Linear_("self_attn.v_proj", kv_size, s.hidden_size, bias, &layer->value));
  }
  KVASIR_TRY_OK(load.Linear_("self_attn.o_proj", s.hidden_size, query_size, s.has_output_bias,
                             &layer->output));
  if (s.has_qk_norm) {
    KVASIR_TRY_OK(load.Norm("self_attn.q_norm", layer_spec.head_dim, &layer->query_norm));
    layer->query_norm = InOrder(layer->query_norm, order);
    if (owns_kv) {
      KVASIR_TRY_OK(load.Norm("self_attn.k_norm", layer_spec.head_dim, &layer->key_norm));
      layer->key_norm = InOrder(layer->key_norm, order);
    }
  }
  if (s.has_sinks) {
    KVASIR_TRY(layer->sinks, load.source.Vector(load.prefix + "self_attn.sinks", s.query_heads, 0));
  }
  if (s.has_value_norm) layer->value_norm.assign(static_cast<size_t>(layer_spec.head_dim), 1.0f);
  return {};
}

Status DecoderLayers::LoadMlp(int index, LayerLoader& load, Layer* layer) const {
  const DecoderSpec& s = spec_;
  const DecoderLayerSpec& layer_spec = s.layers[static_cast<size_t>(index)];
  if (layer_spec.mlp != MlpKind::kDense) {
    KVASIR_TRY(layer->experts, ExpertMlp::Load(s, load.prefix, load.source));
  }
  if (layer_spec.mlp == MlpKind::kExperts) return {};
  if (layer_spec.mlp == MlpKind::kDenseAndExperts) {
    KVASIR_TRY_OK(
        load.Norm("post_feedforward_layernorm_1", s.hidden_size, &layer->post_dense_norm));
    KVASIR_TRY_OK(
        load.Norm("pre_feedforward_layernorm_2", s.hidden_size, &layer->pre_experts_norm));
    KVASIR_TRY_OK(
        load.Norm("post_feedforward_layernorm_2", s.hidden_size, &layer->post_experts_norm));
  }
  const int64_t size = layer_spec.intermediate_size;
  const bool bias = s.has_mlp_bias;
  KVASIR_TRY_OK(load.Linear_("mlp.gate_proj", size, s.hidden_size, bias, &layer->gate));
  KVASIR_TRY_OK(load.Linear_("mlp.up_proj", size, s.hidden_size, bias, &layer->up));
  return load.Linear_("mlp.down_proj", s.hidden_size, size, bias, &layer->down);
}

KvCacheSpec DecoderLayers::CacheSpec(KvCodec codec) const {
  std::vector<std::vector<float>> key_norms;
  for (const Layer& layer : layers_) key_norms.push_back(layer.key_norm);
  return DecoderCacheSpec(spec_, codec, key_norms);
}

}  // namespace kvasir
