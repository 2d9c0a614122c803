// Loading of DecoderLayers: which tensors a spec asks for, and what they weigh.
// Deliberately no arithmetic: decoder_layers.cc runs what is loaded here.
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "kvasir/model/decoder_layers.h"

namespace kvasir {
namespace {

// Where the rows of a projection's heads lie in a stored matrix, which may have others besides.
struct StoredHeads {
  std::string name;
  int64_t outputs = 0;    // of the whole matrix
  int64_t begin = 0;      // of the first head
  int64_t head_rows = 0;  // from head to head
  int heads = 0;
  bool has_bias = false;
};

// Of every head the given rows.
std::vector<int64_t> RowsOf(const StoredHeads& stored, std::span<const int64_t> order) {
  std::vector<int64_t> rows;
  for (int64_t head = 0; head < stored.heads; ++head) {
    for (const int64_t row : order) rows.push_back(stored.begin + head * stored.head_rows + row);
  }
  return rows;
}

std::vector<int64_t> Ascending(int64_t begin, int64_t count) {
  std::vector<int64_t> rows(static_cast<size_t>(count));
  std::iota(rows.begin(), rows.end(), begin);
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
  // Rows that follow each other in a stored matrix; maybe all.
  Status Part(const std::string& name, int64_t outputs, int64_t inputs, int64_t first,
              int64_t count, bool has_bias, Linear* out) {
    if (count == outputs) return Linear_(name, outputs, inputs, has_bias, out);
    const MatrixSlice slice = {.name = prefix + name + ".weight",
                               .shape = {outputs, inputs},
                               .first_row = first,
                               .rows = count};
    KVASIR_TRY(out->weights, source.Rows(slice));
    if (!has_bias) return {};
    KVASIR_TRY(const std::vector<float> bias, source.Vector(prefix + name + ".bias", outputs, 0));
    out->bias = InOrder(bias, Ascending(first, count));
    return {};
  }
  // `order`: which rows of a stored head become the head's.
  Status Heads(const StoredHeads& stored, std::span<const int64_t> order, int64_t inputs,
               Linear* out) {
    const std::vector<int64_t> rows = RowsOf(stored, order);
    const auto count = static_cast<int64_t>(rows.size());
    if (rows == Ascending(rows.front(), count)) {
      return Part(stored.name, stored.outputs, inputs, rows.front(), count, stored.has_bias, out);
    }
    return Gathered(stored.name, stored.outputs, inputs, rows, stored.has_bias, out);
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

Status DecoderLayers::LoadNorms(LayerLoader& load, Layer* layer) const {
  using Norms = DecoderSpec::Norms;
  const int64_t size = spec_.hidden_size;
  if (spec_.norms != Norms::kPost) {
    KVASIR_TRY_OK(load.Norm("input_layernorm", size, &layer->attention_norm));
  }
  // Where none follows attention, the MLP's is called after it.
  if (spec_.norms == Norms::kPre) {
    return load.Norm("post_attention_layernorm", size, &layer->mlp_norm);
  }
  KVASIR_TRY_OK(load.Norm("post_attention_layernorm", size, &layer->post_attention_norm));
  if (spec_.norms == Norms::kSandwich) {
    KVASIR_TRY_OK(load.Norm("pre_feedforward_layernorm", size, &layer->mlp_norm));
  }
  return load.Norm("post_feedforward_layernorm", size, &layer->post_mlp_norm);
}

Status DecoderLayers::LoadLayer(int index, LayerLoader& load, Layer* layer) const {
  const DecoderSpec& s = spec_;
  KVASIR_TRY_OK(LoadNorms(load, layer));
  if (s.layers[static_cast<size_t>(index)].is_recurrent) {
    KVASIR_TRY(layer->recurrent, RecurrentLayer::Load(s, load.prefix, load.source));
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
  if (s.latent.kv_rank > 0) {
    KVASIR_TRY(layer->latent, LatentAttention::Load(s, load.prefix + "self_attn.", load.source));
    return load.Linear_("self_attn.o_proj", s.hidden_size, s.query_heads * s.latent.value_dim,
                        s.has_output_bias, &layer->output);
  }
  const DecoderLayerSpec& layer_spec = s.layers[static_cast<size_t>(index)];
  const int64_t head_dim = layer_spec.head_dim;
  const int64_t query_size = s.query_heads * head_dim;
  const int64_t kv_size = layer_spec.kv_heads * head_dim;
  const bool bias = s.has_qkv_bias;
  const bool owns_kv = layer_spec.shares_kv < 0;
  const std::vector<int64_t> order = HeadOrder(s.ropes[static_cast<size_t>(layer_spec.rope)]);
  const std::vector<int64_t> as_stored = Ascending(0, head_dim);
  StoredHeads query = {"self_attn.q_proj", query_size, 0, head_dim, s.query_heads, bias};
  StoredHeads key = {"self_attn.k_proj", kv_size, 0, head_dim, layer_spec.kv_heads, bias};
  StoredHeads value = {"self_attn.v_proj", kv_size, 0, head_dim, layer_spec.kv_heads, bias};
  if (s.has_fused_qkv) {
    key.begin = query_size;
    value.begin = query_size + kv_size;
    for (StoredHeads* part : {&query, &key, &value}) {
      part->name = "self_attn.qkv_proj";
      part->outputs = query_size + 2 * kv_size;
    }
  }
  if (s.has_query_gates) {
    query.outputs = 2 * query_size;
    query.head_rows = 2 * head_dim;
    StoredHeads gate = query;
    gate.begin = head_dim;
    KVASIR_TRY_OK(load.Heads(gate, as_stored, s.hidden_size, &layer->query_gate));
  }
  KVASIR_TRY_OK(load.Heads(query, order, s.hidden_size, &layer->query));
  if (owns_kv) KVASIR_TRY_OK(load.Heads(key, order, s.hidden_size, &layer->key));
  if (owns_kv && !layer_spec.values_from_keys) {
    KVASIR_TRY_OK(load.Heads(value, as_stored, s.hidden_size, &layer->value));
  }
  KVASIR_TRY_OK(load.Linear_("self_attn.o_proj", s.hidden_size, query_size, s.has_output_bias,
                             &layer->output));
  if (s.has_qk_norm) {
    const auto load_norm = [&](const char* name, const StoredHeads& heads,
                               std::vector<float>* out) -> Status {
      StoredHeads normed = heads;
      if (!s.has_wide_qk_norm) normed.heads = 1;
      normed.begin = 0;
      normed.head_rows = head_dim;
      KVASIR_TRY_OK(load.Norm(name, normed.heads * head_dim, out));
      *out = InOrder(*out, RowsOf(normed, order));
      return {};
    };
    KVASIR_TRY_OK(load_norm("self_attn.q_norm", query, &layer->query_norm));
    if (owns_kv) KVASIR_TRY_OK(load_norm("self_attn.k_norm", key, &layer->key_norm));
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
  return LoadDenseMlp(layer_spec.intermediate_size, load, layer);
}

Status DecoderLayers::LoadDenseMlp(int64_t size, LayerLoader& load, Layer* layer) const {
  using MlpNames = DecoderSpec::MlpNames;
  const int64_t hidden = spec_.hidden_size;
  const bool bias = spec_.has_mlp_bias;
  const bool is_shared = spec_.mlp_names == MlpNames::kShared &&
                         load.source.Has(load.prefix + "shared_mlp.input_linear.weight");
  if (spec_.mlp_names != MlpNames::kFused && !is_shared) {
    KVASIR_TRY_OK(load.Linear_("mlp.gate_proj", size, hidden, bias, &layer->gate));
    KVASIR_TRY_OK(load.Linear_("mlp.up_proj", size, hidden, bias, &layer->up));
  } else {
    const char* const name = is_shared ? "shared_mlp.input_linear" : "mlp.gate_up_proj";
    KVASIR_TRY_OK(load.Part(name, 2 * size, hidden, 0, size, bias, &layer->gate));
    KVASIR_TRY_OK(load.Part(name, 2 * size, hidden, size, size, bias, &layer->up));
  }
  return load.Linear_(is_shared ? "shared_mlp.output_linear" : "mlp.down_proj", hidden, size, bias,
                      &layer->down);
}

KvCacheSpec DecoderLayers::CacheSpec(KvCodec codec) const {
  std::vector<std::vector<float>> key_norms;
  for (const Layer& layer : layers_) key_norms.push_back(layer.key_norm);
  return DecoderCacheSpec(spec_, codec, key_norms);
}

}  // namespace kvasir
