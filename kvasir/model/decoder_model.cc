#include "kvasir/model/decoder_model.h"

#include <algorithm>
#include <limits>
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

// What attention of one layer reads and writes of every run's cache.
struct DecoderModel::KvReads {
  KvLayout layout;
  KvKeyDerivation derivation;
  std::vector<KvRun> runs;
  std::vector<VisibleRows> visible;              // [rows]
  std::vector<std::vector<Position>> positions;  // per run, where keys are derived and rows moved

  KvReads(const Step& step, int layer) {
    const size_t index = static_cast<size_t>(layer);
    for (const SequenceRun& run : step.runs) {
      const KvSequence& sequence = *run.sequence;
      layout = sequence.spec().layers[index].layout;
      derivation = sequence.spec().layers[index].derivation();
      const int64_t count = static_cast<int64_t>(run.tokens.size());
      const Position first = sequence.position();
      runs.push_back({.kv = sequence.Blocks(layer),
                      .first_row = sequence.RowOf(layer, first),
                      .step_row = static_cast<int64_t>(visible.size()),
                      .rows = count,
                      .recent = sequence.RecentBlocks(layer)});
      for (int64_t i = 0; i < count; ++i) visible.push_back(sequence.Visible(layer, first + i));
      positions.push_back(MovedPositions(sequence, layer, count));
    }
    for (size_t i = 0; i < runs.size(); ++i) runs[i].positions = positions[i];
  }

 private:
  // Empty where rows lie at their own positions, or keys are stored.
  std::vector<Position> MovedPositions(const KvSequence& sequence, int layer, int64_t count) const {
    if (layout.key_codec.kind != KvCodec::Kind::kFromValue || sequence.EvictedUntil(layer) == 0) {
      return {};
    }
    std::vector<Position> moved = sequence.RowPositions(layer);
    for (int64_t i = 0; i < count; ++i) moved.push_back(sequence.position() + i);
    return moved;
  }
};

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
  int64_t query_size = 0;
  int64_t kv_size = 0;
  int64_t intermediate = 0;
  for (const DecoderLayerSpec& layer : spec_.layers) {
    query_size = std::max(query_size, int64_t{spec_.query_heads} * layer.head_dim);
    kv_size = std::max(kv_size, int64_t{layer.kv_heads} * layer.head_dim);
    intermediate = std::max(intermediate, layer.intermediate_size);
  }
  int64_t angles = 0;
  for (const RopeSpec& rope : spec_.ropes) {
    angles += 2 * static_cast<int64_t>(rope.inverse_frequencies.size());
  }
  // kHidden, kNormed, kProjected, kStates; kQueries, kAttended; kKeys, kValues; kGate, kUp.
  int64_t row_floats =
      4 * spec_.hidden_size + 2 * query_size + 2 * kv_size + 2 * intermediate + angles;
  // kPerLayer, kPerLayerContext; kPerLayerGate.
  const auto layers = static_cast<int64_t>(spec_.layers.size());
  row_floats += (2 * layers + 1) * spec_.per_layer_size;
  const ExpertsSpec& experts = spec_.experts;
  if (experts.count > 0) {
    // kExperts, kRouterInput, kRouterScores; then rows gathered per expert, and their codes.
    row_floats += 2 * spec_.hidden_size + experts.count +
                  experts.per_token * (3 * spec_.hidden_size + 3 * experts.intermediate_size + 2);
  }
  const int64_t logits_floats = spec_.hidden_size + spec_.vocab_size;  // kSelected, kLogits
  // Quantized rows, twice because their buffers double; attention's tiles and partial results.
  const int64_t widest = std::max({spec_.hidden_size, query_size, intermediate});
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
    const auto pairs = static_cast<int64_t>(spec_.ropes[i].inverse_frequencies.size());
    const FloatRows cos = workspace.Cos(static_cast<int>(i), step.rows(), pairs);
    const FloatRows sin = workspace.Sin(static_cast<int>(i), step.rows(), pairs);
    FillAngles(spec_.ropes[i], step.positions, cos, sin);
    step.cos.push_back(cos);
    step.sin.push_back(sin);
  }
  const FloatRows embedded = workspace.Rows(Buffer::kHidden, step.rows(), spec_.hidden_size);
  backend_.Embed(*embedding_, step.tokens, spec_.embedding_scale, embedded);
  if (per_layer_) per_layer_->Compute(spec_, backend_, workspace, step.tokens, embedded);
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

  Mlp(index, workspace, hidden, normed, projected);
  add_residual(layer.post_mlp_norm);

  if (spec_.per_layer_size > 0) {
    MixPerLayerInput(index, workspace, hidden, projected);
    add_residual(layer.post_per_layer_norm);
  }
  if (spec_.has_layer_scalar) backend_.Scale(hidden, layer.scalar);
}

void DecoderModel::Attention(int index, const Step& step, Workspace& workspace,
                             ConstFloatRows normed, FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const DecoderLayerSpec& layer_spec = spec_.layers[static_cast<size_t>(index)];
  const int64_t query_size = int64_t{spec_.query_heads} * layer_spec.head_dim;
  const FloatRows queries = workspace.Rows(Buffer::kQueries, step.rows(), query_size);
  const FloatRows attended = workspace.Rows(Buffer::kAttended, step.rows(), query_size);
  const KvReads reads(step, index);
  const bool owns_kv = layer_spec.shares_kv < 0;
  if (owns_kv) {
    WriteKv(index, step, reads, workspace, normed, queries);
  } else {
    const MatmulJob jobs[] = {layer.query.job(queries)};
    backend_.Matmul(normed, jobs);
  }
  if (spec_.has_qk_norm) backend_.RmsNorm(queries, layer.query_norm, spec_.norm_eps, queries);
  const size_t rope = static_cast<size_t>(layer_spec.rope);
  backend_.Rope(queries, layer_spec.head_dim, step.cos[rope], step.sin[rope]);
  if (owns_kv && reads.layout.query_floats > 0) {
    backend_.RecordQueries(reads.layout, reads.runs, queries);
  }
  backend_.Attend({.layout = reads.layout,
                   .query_heads = spec_.query_heads,
                   .scale = spec_.attention_scale,
                   .softcap = spec_.attention_softcap,
                   .derivation = reads.derivation,
                   .queries = queries,
                   .runs = reads.runs,
                   .visible = reads.visible,
                   .out = attended});
  const MatmulJob output[] = {layer.output.job(projected)};
  backend_.Matmul(attended, output);
}

// Projects queries, keys and values, and writes the latter two into the cache.
void DecoderModel::WriteKv(int index, const Step& step, const KvReads& reads, Workspace& workspace,
                           ConstFloatRows normed, FloatRows queries) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const DecoderLayerSpec& layer_spec = spec_.layers[static_cast<size_t>(index)];
  const int64_t kv_size = int64_t{layer_spec.kv_heads} * layer_spec.head_dim;
  const FloatRows keys = workspace.Rows(Buffer::kKeys, step.rows(), kv_size);
  const FloatRows values = workspace.Rows(Buffer::kValues, step.rows(), kv_size);
  std::vector<MatmulJob> jobs = {layer.query.job(queries), layer.key.job(keys)};
  if (!layer_spec.values_from_keys) jobs.push_back(layer.value.job(values));
  backend_.Matmul(normed, jobs);
  const FloatRows raw_values = layer_spec.values_from_keys ? keys : values;
  if (spec_.has_value_norm) {
    backend_.RmsNorm(raw_values, layer.value_norm, spec_.norm_eps, values);
  }
  if (spec_.has_qk_norm) backend_.RmsNorm(keys, layer.key_norm, spec_.norm_eps, keys);
  const size_t rope = static_cast<size_t>(layer_spec.rope);
  backend_.Rope(keys, layer_spec.head_dim, step.cos[rope], step.sin[rope]);
  backend_.EncodeKv(reads.layout, reads.runs, keys, values);
}

// What follows attention, up to the norm before the residual.
void DecoderModel::Mlp(int index, Workspace& workspace, ConstFloatRows hidden, FloatRows normed,
                       FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  backend_.RmsNorm(hidden, layer.mlp_norm, spec_.norm_eps, normed);
  switch (spec_.layers[static_cast<size_t>(index)].mlp) {
    case MlpKind::kDense:
      return DenseMlp(index, workspace, normed, projected);
    case MlpKind::kExperts:
      return layer.experts->Run(spec_, backend_, workspace, hidden, normed, projected);
    case MlpKind::kDenseAndExperts:
      break;
  }
  DenseMlp(index, workspace, normed, projected);
  backend_.RmsNorm(projected, layer.post_dense_norm, spec_.norm_eps, projected);
  backend_.RmsNorm(hidden, layer.pre_experts_norm, spec_.norm_eps, normed);
  const FloatRows experts = workspace.Rows(Buffer::kExperts, hidden.rows, spec_.hidden_size);
  layer.experts->Run(spec_, backend_, workspace, hidden, normed, experts);
  backend_.RmsNorm(experts, layer.post_experts_norm, spec_.norm_eps, experts);
  backend_.Add(projected, experts);
}

void DecoderModel::DenseMlp(int index, Workspace& workspace, ConstFloatRows normed,
                            FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const int64_t size = spec_.layers[static_cast<size_t>(index)].intermediate_size;
  const FloatRows gate = workspace.Rows(Buffer::kGate, normed.rows, size);
  const FloatRows up = workspace.Rows(Buffer::kUp, normed.rows, size);
  const MatmulJob in[] = {layer.gate.job(gate), layer.up.job(up)};
  backend_.Matmul(normed, in);
  backend_.Gate(spec_.activation, gate, up);
  const MatmulJob out[] = {layer.down.job(projected)};
  backend_.Matmul(gate, out);
}

void DecoderModel::MixPerLayerInput(int index, Workspace& workspace, ConstFloatRows hidden,
                                    FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const FloatRows gate = workspace.Rows(Buffer::kPerLayerGate, hidden.rows, spec_.per_layer_size);
  const MatmulJob in[] = {layer.per_layer_gate.job(gate)};
  backend_.Matmul(hidden, in);
  backend_.Gate(spec_.activation, gate, PerLayerInput(spec_, workspace, hidden.rows, index));
  const MatmulJob out[] = {layer.per_layer_projection.job(projected)};
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
  for (const Token token : spec_.suppressed_tokens) {
    for (int64_t i = 0; i < count; ++i) {
      logits.row(i)[token] = -std::numeric_limits<float>::infinity();
    }
  }
  return logits;
}

}  // namespace kvasir
