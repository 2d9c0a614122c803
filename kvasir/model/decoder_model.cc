#include "kvasir/model/decoder_model.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {

using Buffer = Workspace::Buffer;

struct DecoderModel::Step {
  std::span<const SequenceRun> runs;
  std::vector<KvSequence*> sequences;    // [runs]
  std::vector<int64_t> counts;           // [runs] new tokens
  std::vector<Token> tokens;             // [rows] of all runs, one after the other
  std::vector<Position> positions;       // [rows]
  std::vector<int64_t> logits_rows;      // rows that need logits
  std::vector<int64_t> hidden_rows;      // rows whose hidden state is asked for
  std::vector<ConstFloatRows> cos, sin;  // per rope

  explicit Step(std::span<const SequenceRun> runs) : runs(runs) {
    for (const SequenceRun& run : runs) {
      const int64_t count = static_cast<int64_t>(run.tokens.size());
      const Position first = run.sequence->position();
      sequences.push_back(run.sequence);
      counts.push_back(count);
      for (int64_t i = 0; i < count; ++i) {
        if (i >= count - run.logits_rows) logits_rows.push_back(rows());
        if (i >= count - run.hidden_rows) hidden_rows.push_back(rows());
        tokens.push_back(run.tokens[static_cast<size_t>(i)]);
        positions.push_back(first + i);
      }
    }
  }
  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

Result<std::unique_ptr<const Model>> DecoderModel::Load(DecoderSpec spec, WeightSource& source,
                                                        Backend& backend) {
  auto decoder = std::unique_ptr<DecoderModel>(new DecoderModel(std::move(spec), backend));
  const DecoderSpec& s = decoder->spec_;
  KVASIR_TRY(decoder->embedding_,
             source.Matrix("embed_tokens.weight", s.vocab_size, s.hidden_size));
  // Configs leave tie_word_embeddings out and readers disagree about what that means; whether the
  // checkpoint has a head does not lie.
  if (!s.ties_embeddings && source.Has("lm_head.weight")) {
    KVASIR_TRY(decoder->head_, source.Matrix("lm_head.weight", s.vocab_size, s.hidden_size));
  }
  KVASIR_TRY(decoder->final_norm_, source.Vector("norm.weight", s.hidden_size, s.norm_offset));
  decoder->layers_.resize(s.layers.size());
  for (size_t i = 0; i < s.layers.size(); ++i) {
    KVASIR_TRY_OK(decoder->LoadLayer(static_cast<int>(i), source, &decoder->layers_[i]));
  }
  return std::unique_ptr<const Model>(std::move(decoder));
}

// Reads the tensors of one layer by their names under "layers.N.".
struct DecoderModel::LayerLoader {
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
  Status Linear_(const std::string& name, int64_t outputs, int64_t inputs, bool has_bias,
                 Linear* out) {
    return has_bias ? MatrixAndBias(name, outputs, inputs, out)
                    : Matrix(name, outputs, inputs, out);
  }
};

Status DecoderModel::LoadLayer(int index, WeightSource& source, Layer* layer) const {
  const DecoderSpec& s = spec_;
  const int64_t query_size = int64_t{s.query_heads} * s.head_dim;
  const int64_t kv_size = int64_t{s.kv_heads} * s.head_dim;
  LayerLoader load{source, "layers." + std::to_string(index) + ".", s.norm_offset};

  KVASIR_TRY_OK(load.Norm("input_layernorm", s.hidden_size, &layer->attention_norm));
  if (s.norms == DecoderSpec::Norms::kSandwich) {
    KVASIR_TRY_OK(
        load.Norm("post_attention_layernorm", s.hidden_size, &layer->post_attention_norm));
    KVASIR_TRY_OK(load.Norm("pre_feedforward_layernorm", s.hidden_size, &layer->mlp_norm));
    KVASIR_TRY_OK(load.Norm("post_feedforward_layernorm", s.hidden_size, &layer->post_mlp_norm));
  } else {
    KVASIR_TRY_OK(load.Norm("post_attention_layernorm", s.hidden_size, &layer->mlp_norm));
  }

  const bool qkv_bias = s.has_qkv_bias;
  KVASIR_TRY_OK(
      load.Linear_("self_attn.q_proj", query_size, s.hidden_size, qkv_bias, &layer->query));
  const bool owns_kv = s.layers[static_cast<size_t>(index)].shares_kv < 0;
  if (owns_kv) {
    KVASIR_TRY_OK(load.Linear_("self_attn.k_proj", kv_size, s.hidden_size, qkv_bias, &layer->key));
    KVASIR_TRY_OK(
        load.Linear_("self_attn.v_proj", kv_size, s.hidden_size, qkv_bias, &layer->value));
  }
  KVASIR_TRY_OK(load.Linear_("self_attn.o_proj", s.hidden_size, query_size, s.has_output_bias,
                             &layer->output));
  if (s.has_qk_norm) {
    KVASIR_TRY_OK(load.Norm("self_attn.q_norm", s.head_dim, &layer->query_norm));
    if (owns_kv) KVASIR_TRY_OK(load.Norm("self_attn.k_norm", s.head_dim, &layer->key_norm));
  }

  const bool mlp_bias = s.has_mlp_bias;
  KVASIR_TRY_OK(
      load.Linear_("mlp.gate_proj", s.intermediate_size, s.hidden_size, mlp_bias, &layer->gate));
  KVASIR_TRY_OK(
      load.Linear_("mlp.up_proj", s.intermediate_size, s.hidden_size, mlp_bias, &layer->up));
  return load.Linear_("mlp.down_proj", s.hidden_size, s.intermediate_size, mlp_bias, &layer->down);
}

template <typename Visit>
void DecoderModel::ForEachLinear(const Visit& visit) const {
  for (const Layer& layer : layers_) {
    for (const Linear* linear : {&layer.query, &layer.key, &layer.value, &layer.output, &layer.gate,
                                 &layer.up, &layer.down}) {
      if (linear->weights != nullptr) visit(*linear);
    }
  }
}

size_t DecoderModel::weight_bytes() const {
  size_t bytes = embedding_->bytes() + (head_ == nullptr ? 0 : head_->bytes());
  ForEachLinear([&](const Linear& linear) { bytes += linear.weights->bytes(); });
  return bytes;
}

int64_t DecoderModel::parameters() const {
  const int64_t table = spec_.vocab_size * spec_.hidden_size;
  int64_t count = head_ == nullptr ? table : 2 * table;
  ForEachLinear(
      [&](const Linear& linear) { count += linear.weights->outputs() * linear.weights->inputs(); });
  return count;
}

KvCacheSpec DecoderModel::CacheSpec(KvCodec codec) const {
  KvCacheSpec spec;
  for (const DecoderLayerSpec& layer : spec_.layers) {
    spec.layers.push_back(
        {.layout = {.kv_heads = spec_.kv_heads,
                    .key_dim = spec_.head_dim,
                    .value_dim = spec_.head_dim,
                    .key_codec = codec,
                    .value_codec = codec},
         .retention = layer.retention,
         .shares_layer = layer.shares_kv,
         .inv_freq = spec_.ropes[static_cast<size_t>(layer.rope)].inverse_frequencies,
         .attention_scale = spec_.attention_scale});
  }
  return spec;
}

Status DecoderModel::CheckRuns(std::span<const SequenceRun> runs) const {
  std::vector<const KvSequence*> seen;
  for (const SequenceRun& run : runs) {
    if (std::find(seen.begin(), seen.end(), run.sequence) != seen.end()) {
      return {ErrorCode::kInvalidArgument, "a sequence may have one run per step, not two"};
    }
    seen.push_back(run.sequence);
    if (!(run.sequence->spec() == runs[0].sequence->spec())) {
      return {ErrorCode::kInvalidArgument, "all sequences of a step must store their caches alike"};
    }
    const int64_t count = static_cast<int64_t>(run.tokens.size());
    const auto fits = [count](int64_t rows) { return rows >= 0 && rows <= count; };
    if (count == 0 || !fits(run.logits_rows) || !fits(run.hidden_rows)) {
      return {ErrorCode::kInvalidArgument,
              "a run needs at least one token and at most one logits and one hidden row per "
              "token, not " +
                  std::to_string(count) + " tokens with " + std::to_string(run.logits_rows) +
                  " logits rows and " + std::to_string(run.hidden_rows) + " hidden rows"};
    }
    if (run.sequence->position() + count > spec_.context_tokens) {
      return {ErrorCode::kInvalidArgument,
              "the sequence would reach " + std::to_string(run.sequence->position() + count) +
                  " tokens; the model's context is " + std::to_string(spec_.context_tokens)};
    }
    for (const Token token : run.tokens) {
      if (token < 0 || token >= spec_.vocab_size) {
        return {ErrorCode::kInvalidArgument, "token " + std::to_string(token) +
                                                 " is outside the vocabulary of " +
                                                 std::to_string(spec_.vocab_size)};
      }
    }
  }
  return {};
}

size_t DecoderModel::ScratchBytes(int64_t rows, int64_t logits_rows) const {
  const int64_t query_size = int64_t{spec_.query_heads} * spec_.head_dim;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_dim;
  const auto ropes = static_cast<int64_t>(spec_.ropes.size());
  // kHidden, kNormed, kProjected, kStates; kQueries, kAttended; kKeys, kValues; kGate, kUp; angles.
  const int64_t row_floats = 4 * spec_.hidden_size + 2 * query_size + 2 * kv_size +
                             2 * spec_.intermediate_size + ropes * spec_.head_dim;
  const int64_t logits_floats = spec_.hidden_size + spec_.vocab_size;  // kSelected, kLogits
  // Quantized rows, twice because their buffers double; attention's tiles and partial results.
  const int64_t widest = std::max({spec_.hidden_size, query_size, spec_.intermediate_size});
  constexpr int64_t kAttentionBytes = int64_t{1} << 20;
  return static_cast<size_t>(4 * (rows * row_floats + logits_rows * logits_floats) +
                             4 * std::max(rows, logits_rows) * widest + kAttentionBytes);
}

Result<ConstFloatRows> DecoderModel::Forward(std::span<const SequenceRun> runs,
                                             Workspace& workspace) const {
  KVASIR_TRY_OK(CheckRuns(runs));
  Step step(runs);
  KVASIR_TRY_OK(KvSequence::ReserveAll(step.sequences, step.counts));
  for (size_t i = 0; i < spec_.ropes.size(); ++i) {
    const int64_t pairs = spec_.head_dim / 2;
    const FloatRows cos = workspace.Cos(static_cast<int>(i), step.rows(), pairs);
    const FloatRows sin = workspace.Sin(static_cast<int>(i), step.rows(), pairs);
    FillAngles(spec_.ropes[i], step.positions, cos, sin);
    step.cos.push_back(cos);
    step.sin.push_back(sin);
  }
  backend_.Embed(*embedding_, step.tokens, spec_.embedding_scale,
                 workspace.Rows(Buffer::kHidden, step.rows(), spec_.hidden_size));
  for (int i = 0; i < static_cast<int>(layers_.size()); ++i) RunLayer(i, step, workspace);
  for (const SequenceRun& run : runs) {
    run.sequence->Advance(static_cast<int64_t>(run.tokens.size()));
  }
  workspace.SetHiddenStates(Normed(step.hidden_rows, step, Buffer::kStates, workspace));
  return Logits(step, workspace);
}

void DecoderModel::RunLayer(int index, const Step& step, Workspace& workspace) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const FloatRows hidden = workspace.Rows(Buffer::kHidden, step.rows(), spec_.hidden_size);
  const FloatRows normed = workspace.Rows(Buffer::kNormed, step.rows(), spec_.hidden_size);
  const FloatRows projected = workspace.Rows(Buffer::kProjected, step.rows(), spec_.hidden_size);
  const auto add_residual = [&](const std::vector<float>& post_norm) {
    if (!post_norm.empty()) backend_.RmsNorm(projected, post_norm, spec_.norm_eps, projected);
    backend_.Add(hidden, projected);
  };

  backend_.RmsNorm(hidden, layer.attention_norm, spec_.norm_eps, normed);
  Attention(index, step, workspace, normed, projected);
  add_residual(layer.post_attention_norm);

  backend_.RmsNorm(hidden, layer.mlp_norm, spec_.norm_eps, normed);
  Mlp(layer, workspace, normed, projected);
  add_residual(layer.post_mlp_norm);
}

void DecoderModel::Attention(int index, const Step& step, Workspace& workspace,
                             ConstFloatRows normed, FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const DecoderLayerSpec& layer_spec = spec_.layers[static_cast<size_t>(index)];
  const int64_t rows = step.rows();
  const int64_t query_size = int64_t{spec_.query_heads} * spec_.head_dim;
  const int64_t kv_size = int64_t{spec_.kv_heads} * spec_.head_dim;
  const FloatRows queries = workspace.Rows(Buffer::kQueries, rows, query_size);
  const FloatRows keys = workspace.Rows(Buffer::kKeys, rows, kv_size);
  const FloatRows values = workspace.Rows(Buffer::kValues, rows, kv_size);
  const FloatRows attended = workspace.Rows(Buffer::kAttended, rows, query_size);
  const auto job = [](const Linear& linear, FloatRows out) {
    return MatmulJob{linear.weights.get(), linear.bias.empty() ? nullptr : linear.bias.data(), out};
  };
  const size_t rope = static_cast<size_t>(layer_spec.rope);
  const auto position = [&](FloatRows x, const std::vector<float>& norm) {
    if (spec_.has_qk_norm) backend_.RmsNorm(x, norm, spec_.norm_eps, x);
    backend_.Rope(x, spec_.head_dim, step.cos[rope], step.sin[rope]);
  };

  AttendArgs args;
  args.query_heads = spec_.query_heads;
  args.scale = spec_.attention_scale;
  args.softcap = spec_.attention_softcap;
  args.queries = queries;
  args.out = attended;
  std::vector<KvRun> kv_runs;
  std::vector<VisibleRows> visible;
  for (const SequenceRun& run : step.runs) {
    const KvSequence& sequence = *run.sequence;
    args.layout = sequence.spec().layers[static_cast<size_t>(index)].layout;
    const int64_t count = static_cast<int64_t>(run.tokens.size());
    const Position first = sequence.position();
    kv_runs.push_back({.kv = sequence.Blocks(index),
                       .first_row = sequence.RowOf(index, first),
                       .step_row = static_cast<int64_t>(visible.size()),
                       .rows = count,
                       .recent = sequence.RecentBlocks(index)});
    for (int64_t i = 0; i < count; ++i) visible.push_back(sequence.Visible(index, first + i));
  }
  args.runs = kv_runs;
  args.visible = visible;

  if (layer_spec.shares_kv < 0) {
    const MatmulJob jobs[] = {job(layer.query, queries), job(layer.key, keys),
                              job(layer.value, values)};
    backend_.Matmul(normed, jobs);
    position(keys, layer.key_norm);
    backend_.EncodeKv(args.layout, kv_runs, keys, values);
  } else {
    const MatmulJob jobs[] = {job(layer.query, queries)};
    backend_.Matmul(normed, jobs);
  }
  position(queries, layer.query_norm);
  if (layer_spec.shares_kv < 0 && args.layout.query_floats > 0) {
    backend_.RecordQueries(args.layout, kv_runs, queries);
  }
  backend_.Attend(args);
  const MatmulJob output[] = {job(layer.output, projected)};
  backend_.Matmul(attended, output);
}

void DecoderModel::Mlp(const Layer& layer, Workspace& workspace, ConstFloatRows normed,
                       FloatRows projected) const {
  const FloatRows gate = workspace.Rows(Buffer::kGate, normed.rows, spec_.intermediate_size);
  const FloatRows up = workspace.Rows(Buffer::kUp, normed.rows, spec_.intermediate_size);
  const auto bias = [](const Linear& linear) {
    return linear.bias.empty() ? nullptr : linear.bias.data();
  };
  const MatmulJob in[] = {{layer.gate.weights.get(), bias(layer.gate), gate},
                          {layer.up.weights.get(), bias(layer.up), up}};
  backend_.Matmul(normed, in);
  backend_.Gate(spec_.activation, gate, up);
  const MatmulJob out[] = {{layer.down.weights.get(), bias(layer.down), projected}};
  backend_.Matmul(gate, out);
}

// The given rows of the residual stream after the final norm.
FloatRows DecoderModel::Normed(std::span<const int64_t> rows, const Step& step, Buffer buffer,
                               Workspace& workspace) const {
  const int64_t count = static_cast<int64_t>(rows.size());
  const FloatRows normed = workspace.Rows(buffer, count, spec_.hidden_size);
  if (count == 0) return normed;
  const FloatRows hidden = workspace.Rows(Buffer::kHidden, step.rows(), spec_.hidden_size);
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(hidden.row(rows[static_cast<size_t>(i)]), spec_.hidden_size, normed.row(i));
  }
  backend_.RmsNorm(normed, final_norm_, spec_.norm_eps, normed);
  return normed;
}

ConstFloatRows DecoderModel::Logits(const Step& step, Workspace& workspace) const {
  const int64_t count = static_cast<int64_t>(step.logits_rows.size());
  const FloatRows logits = workspace.Rows(Buffer::kLogits, count, spec_.vocab_size);
  if (count == 0) return logits;
  const FloatRows normed = Normed(step.logits_rows, step, Buffer::kSelected, workspace);
  const WeightMatrix& head = head_ == nullptr ? *embedding_ : *head_;
  const MatmulJob jobs[] = {{&head, nullptr, logits}};
  backend_.Matmul(normed, jobs);
  if (spec_.final_softcap > 0) backend_.Softcap(logits, spec_.final_softcap);
  return logits;
}

}  // namespace kvasir
