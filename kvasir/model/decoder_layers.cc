#include "kvasir/model/decoder_layers.h"

#include <algorithm>
#include <utility>

#include "kvasir/model/per_layer_inputs.h"

namespace kvasir {
namespace {

// As few rows as this are not worth an operation for themselves.
constexpr int64_t kLeastUnwanted = 8;

// Moves the wanted rows of a step to the front.
void MoveWanted(const LayerStep& step, FloatRows rows) {
  int64_t begin = 0;
  int64_t to = 0;
  for (const LayerRun& run : step.runs) {
    begin += run.rows;
    for (int64_t from = begin - run.wanted; from < begin; ++from, ++to) {
      if (from != to) std::copy_n(rows.row(from), rows.cols, rows.row(to));
    }
  }
}

}  // namespace

using Buffer = Workspace::Buffer;

int64_t LayerStep::wanted_rows() const {
  int64_t wanted = 0;
  for (const LayerRun& run : runs) wanted += run.wanted;
  return wanted;
}

struct DecoderLayers::WantedStep {
  std::vector<LayerRun> runs;  // that have wanted rows
  std::vector<Position> positions;

  explicit WantedStep(const LayerStep& step) {
    auto end = step.positions.begin();
    for (const LayerRun& run : step.runs) {
      end += run.rows;
      if (run.wanted == 0) continue;
      runs.push_back({run.sequence, run.wanted, run.wanted, run.skipped + run.rows - run.wanted});
      positions.insert(positions.end(), end - run.wanted, end);
    }
  }
};

struct DecoderLayers::TurnedStep : LayerStep {
  std::vector<ConstFloatRows> cos, sin;  // per rope
  int written_layer = -1;                // whose keys and values are in the cache already

  TurnedStep(const LayerStep& step, const DecoderSpec& spec, Workspace& workspace)
      : LayerStep(step) {
    for (size_t i = 0; i < spec.ropes.size(); ++i) {
      const auto pairs = static_cast<int64_t>(spec.ropes[i].inverse_frequencies.size());
      const FloatRows turned_cos = workspace.Cos(static_cast<int>(i), rows(), pairs);
      const FloatRows turned_sin = workspace.Sin(static_cast<int>(i), rows(), pairs);
      FillAngles(spec.ropes[i], positions, turned_cos, turned_sin);
      cos.push_back(turned_cos);
      sin.push_back(turned_sin);
    }
  }
};

VisibleRows VisibleBefore(const KvSequence& sequence, int layer) {
  VisibleRows visible = sequence.Visible(layer, sequence.position());
  --visible.end;
  visible.begin = std::min(visible.begin, visible.end);
  visible.head_end = std::min(visible.head_end, visible.begin);
  return visible;
}

// What attention of one layer reads and writes of every run's cache.
struct DecoderLayers::KvReads {
  KvLayout layout;
  KvKeyDerivation derivation;
  std::vector<KvRun> runs;
  std::vector<VisibleRows> visible;              // [rows]
  std::vector<std::vector<Position>> positions;  // per run, where keys are derived and rows moved

  // `layer` of the cache. `is_own`: the step's rows have rows of their own there.
  KvReads(const LayerStep& step, int layer, bool is_own) {
    const size_t index = static_cast<size_t>(layer);
    for (const LayerRun& run : step.runs) {
      const KvSequence& sequence = *run.sequence;
      layout = sequence.spec().layers[index].layout;
      derivation = sequence.spec().layers[index].derivation();
      const Position first = sequence.position() + run.skipped;
      runs.push_back({.kv = sequence.Blocks(layer),
                      .first_row = sequence.RowOf(layer, first),
                      .step_row = static_cast<int64_t>(visible.size()),
                      .rows = run.rows,
                      .recent = sequence.RecentBlocks(layer)});
      for (int64_t i = 0; i < run.rows; ++i) {
        visible.push_back(is_own ? sequence.Visible(layer, first + i)
                                 : VisibleBefore(sequence, layer));
      }
      positions.push_back(MovedPositions(sequence, layer, is_own ? run.skipped + run.rows : 0));
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

FloatRows DecoderLayers::Run(const LayerStep& step, Workspace& workspace) const {
  const int layers = static_cast<int>(layers_.size());
  const int narrow = FirstNarrowLayer(step);
  const FloatRows hidden = workspace.Rows(Buffer::kHidden, step.rows(), spec_.hidden_size);
  {
    const TurnedStep turned(step, spec_, workspace);  // whose angles the wanted rows' replace
    for (int i = 0; i < narrow; ++i) RunLayer(i, turned, workspace);
    const bool has_kv = narrow < layers && spec_.layers[static_cast<size_t>(narrow)].shares_kv < 0;
    if (has_kv) WriteKv(narrow, turned, workspace);
  }
  MoveWanted(step, hidden);
  const FloatRows wanted_hidden =
      workspace.Rows(Buffer::kHidden, step.wanted_rows(), spec_.hidden_size);
  if (narrow == layers || wanted_hidden.rows == 0) return wanted_hidden;
  if (spec_.per_layer_size > 0) {
    MoveWanted(step, AllPerLayerInputs(spec_, workspace, step.rows()));
  }
  const WantedStep wanted(step);
  TurnedStep turned({.runs = wanted.runs, .positions = wanted.positions}, spec_, workspace);
  turned.written_layer = narrow;
  for (int i = narrow; i < layers; ++i) RunLayer(i, turned, workspace);
  return wanted_hidden;
}

int DecoderLayers::FirstNarrowLayer(const LayerStep& step) const {
  const int layers = static_cast<int>(layers_.size());
  const int64_t wanted = step.wanted_rows();
  // A step of which nobody wants anything ends there however few its rows are: where layers share
  // caches many more would follow.
  if (step.rows() - wanted < (wanted > 0 ? kLeastUnwanted : 1)) return layers;
  int last = layers - 1;
  while (last >= 0 && spec_.layers[static_cast<size_t>(last)].shares_kv >= 0) --last;
  if (last < 0) return 0;
  // What a state becomes is known with all of the layer but its way back.
  if (spec_.layers[static_cast<size_t>(last)].is_recurrent) return last + 1;
  const KvLayout& layout = step.runs[0].sequence->spec().layers[static_cast<size_t>(last)].layout;
  // The cache keeps queries of rows that nobody wants.
  return layout.query_floats > 0 ? last + 1 : last;
}

void DecoderLayers::FinalNorm(FloatRows hidden) const {
  backend_.RmsNorm(hidden, final_norm_, spec_.norm_eps, hidden);
}

void DecoderLayers::RunLayer(int index, const TurnedStep& step, Workspace& workspace) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const FloatRows hidden = workspace.Rows(Buffer::kHidden, step.rows(), spec_.hidden_size);
  const FloatRows normed = workspace.Rows(Buffer::kNormed, step.rows(), spec_.hidden_size);
  const FloatRows projected = workspace.Rows(Buffer::kProjected, step.rows(), spec_.hidden_size);
  const auto add_residual = [&](const std::vector<float>& post_norm) {
    if (!post_norm.empty()) backend_.RmsNorm(projected, post_norm, spec_.norm_eps, projected);
    if (spec_.residual_scale != 1) backend_.Scale(projected, spec_.residual_scale);
    backend_.Add(hidden, projected);
  };

  const ConstFloatRows input = PreNormed(layer.attention_norm, hidden, normed);
  if (layer.recurrent != nullptr) {
    RunRecurrent(index, step, workspace, input, projected);
  } else {
    Attention(index, step, workspace, input, projected);
  }
  add_residual(layer.post_attention_norm);

  Mlp(index, workspace, hidden, normed, projected);
  add_residual(layer.post_mlp_norm);

  if (spec_.per_layer_size > 0) {
    MixPerLayerInput(index, workspace, hidden, projected);
    add_residual(layer.post_per_layer_norm);
  }
  if (spec_.has_layer_scalar) backend_.Scale(hidden, layer.scalar);
}

ConstFloatRows DecoderLayers::PreNormed(std::span<const float> norm, FloatRows hidden,
                                        FloatRows normed) const {
  if (norm.empty()) return hidden;
  backend_.RmsNorm(hidden, norm, spec_.norm_eps, normed);
  return normed;
}

void DecoderLayers::WriteKv(int index, const TurnedStep& step, Workspace& workspace) const {
  const FloatRows hidden = workspace.Rows(Buffer::kHidden, step.rows(), spec_.hidden_size);
  const FloatRows normed = workspace.Rows(Buffer::kNormed, step.rows(), spec_.hidden_size);
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const ConstFloatRows input = PreNormed(layer.attention_norm, hidden, normed);
  const KvRows rows = ProjectKv(index, step, workspace, input, {});
  const KvReads cache(step, index, true);
  backend_.EncodeKv(cache.layout, cache.runs, rows.keys, rows.values);
}

void DecoderLayers::Attention(int index, const TurnedStep& step, Workspace& workspace,
                              ConstFloatRows normed, FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const DecoderLayerSpec& layer_spec = spec_.layers[static_cast<size_t>(index)];
  const int64_t query_size = int64_t{spec_.query_heads} * layer_spec.head_dim;
  const FloatRows queries = workspace.Rows(Buffer::kQueries, step.rows(), query_size);
  const FloatRows attended = workspace.Rows(Buffer::kAttended, step.rows(), query_size);
  const bool owns_kv = layer_spec.shares_kv < 0;
  const KvReads reads(step, owns_kv ? index : layer_spec.shares_kv, !spec_.reads_target);
  KvRows new_rows;
  if (owns_kv && index != step.written_layer) {
    new_rows = ProjectKv(index, step, workspace, normed, queries);
  } else {
    ProjectQueries(layer, workspace, normed, queries);
  }
  if (spec_.has_qk_norm) backend_.RmsNorm(queries, layer.query_norm, spec_.norm_eps, queries);
  const size_t rope = static_cast<size_t>(layer_spec.rope);
  backend_.Rope(queries, layer_spec.head_dim, step.cos[rope], step.sin[rope]);
  ScaleQueries(spec_.ropes[rope], step.positions, queries);
  if (owns_kv && reads.layout.query_floats > 0) {
    backend_.RecordQueries(reads.layout, reads.runs, queries);
  }
  backend_.Attend({.layout = reads.layout,
                   .new_keys = new_rows.keys,
                   .new_values = new_rows.values,
                   .query_heads = spec_.query_heads,
                   .scale = spec_.attention_scale,
                   .softcap = spec_.attention_softcap,
                   .derivation = reads.derivation,
                   .queries = queries,
                   .runs = reads.runs,
                   .visible = reads.visible,
                   .sinks = layer.sinks.empty() ? nullptr : layer.sinks.data(),
                   .out = attended});
  ConstFloatRows mixed = attended;
  if (spec_.has_query_gates) {
    const FloatRows gates = workspace.Rows(Buffer::kGate, step.rows(), query_size);
    backend_.Gate(GateActivation::kSigmoid, gates, attended);
    mixed = gates;
  }
  if (layer.latent) mixed = layer.latent->Values(spec_, backend_, workspace, attended);
  const MatmulJob output[] = {layer.output.job(projected)};
  backend_.Matmul(mixed, output);
}

void DecoderLayers::ScaleQueries(const RopeSpec& rope, std::span<const Position> positions,
                                 FloatRows queries) const {
  if (rope.query_scale_beta == 0) return;
  for (int64_t begin = 0; begin < queries.rows;) {
    const float scale = QueryScale(rope, positions[static_cast<size_t>(begin)]);
    int64_t end = begin + 1;
    while (end < queries.rows && QueryScale(rope, positions[static_cast<size_t>(end)]) == scale) {
      ++end;
    }
    if (scale != 1) backend_.Scale(queries.Part(begin, end - begin), scale);
    begin = end;
  }
}

void DecoderLayers::ProjectQueries(const Layer& layer, Workspace& workspace, ConstFloatRows normed,
                                   FloatRows queries) const {
  if (layer.latent) {
    return layer.latent->Project(spec_, backend_, workspace, normed, queries, {});
  }
  backend_.Matmul(normed, QueryJobs(layer, workspace, queries));
}

// Queries, and their gates where there are some.
std::vector<MatmulJob> DecoderLayers::QueryJobs(const Layer& layer, Workspace& workspace,
                                                FloatRows queries) const {
  std::vector<MatmulJob> jobs = {layer.query.job(queries)};
  if (spec_.has_query_gates) {
    jobs.push_back(layer.query_gate.job(workspace.Rows(Buffer::kGate, queries.rows, queries.cols)));
  }
  return jobs;
}

// Each run's state becomes that behind its rows. Where states within the run are kept, it is cut
// there: the piece before one writes it, the next goes on from it.
void DecoderLayers::RunRecurrent(int index, const LayerStep& step, Workspace& workspace,
                                 ConstFloatRows normed, FloatRows projected) const {
  std::vector<std::vector<StateRun>> rounds;
  const auto add = [&rounds](size_t round, const StateRun& piece) {
    if (rounds.size() <= round) rounds.resize(round + 1);
    rounds[round].push_back(piece);
  };
  int64_t row = 0;
  for (const LayerRun& run : step.runs) {
    std::byte* const state = run.sequence->MutableState(index);
    StateRun piece = {.state = state, .next = state, .step_row = row, .rows = run.rows};
    const int64_t run_end = row + run.rows;
    size_t round = 0;
    for (const KvSequence::InnerState& kept : run.sequence->InnerStates(index)) {
      const int64_t end = row + (kept.position - run.sequence->position());
      if (end >= run_end) break;
      piece.next = kept.data;
      piece.rows = end - piece.step_row;
      add(round++, piece);
      piece = {.state = kept.data, .next = state, .step_row = end, .rows = run_end - end};
    }
    add(round, piece);
    row = run_end;
  }
  layers_[static_cast<size_t>(index)].recurrent->Run(spec_, backend_, workspace, rounds, normed,
                                                     projected);
}

// Projects queries, keys and values; returns the latter two as they are cached.
DecoderLayers::KvRows DecoderLayers::ProjectKv(int index, const TurnedStep& step,
                                               Workspace& workspace, ConstFloatRows normed,
                                               FloatRows queries) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  if (layer.latent) return ProjectLatents(index, step, workspace, normed, queries);
  const DecoderLayerSpec& layer_spec = spec_.layers[static_cast<size_t>(index)];
  const int64_t kv_size = int64_t{layer_spec.kv_heads} * layer_spec.head_dim;
  const FloatRows keys = workspace.Rows(Buffer::kKeys, step.rows(), kv_size);
  const FloatRows values = workspace.Rows(Buffer::kValues, step.rows(), kv_size);
  std::vector<MatmulJob> jobs;
  if (queries.data != nullptr) jobs = QueryJobs(layer, workspace, queries);
  jobs.push_back(layer.key.job(keys));
  if (!layer_spec.values_from_keys) jobs.push_back(layer.value.job(values));
  backend_.Matmul(normed, jobs);
  const FloatRows raw_values = layer_spec.values_from_keys ? keys : values;
  if (spec_.has_value_norm) {
    backend_.RmsNorm(raw_values, layer.value_norm, spec_.norm_eps, values);
  }
  if (spec_.has_qk_norm) backend_.RmsNorm(keys, layer.key_norm, spec_.norm_eps, keys);
  const size_t rope = static_cast<size_t>(layer_spec.rope);
  backend_.Rope(keys, layer_spec.head_dim, step.cos[rope], step.sin[rope]);
  return {keys, values};
}

// Of latents, which are values as they are.
DecoderLayers::KvRows DecoderLayers::ProjectLatents(int index, const TurnedStep& step,
                                                    Workspace& workspace, ConstFloatRows normed,
                                                    FloatRows queries) const {
  const DecoderLayerSpec& layer_spec = spec_.layers[static_cast<size_t>(index)];
  const FloatRows keys = workspace.Rows(Buffer::kKeys, step.rows(), layer_spec.head_dim);
  const FloatRows values = workspace.Rows(Buffer::kValues, step.rows(), layer_spec.head_dim);
  layers_[static_cast<size_t>(index)].latent->Project(spec_, backend_, workspace, normed, queries,
                                                      values);
  std::copy_n(values.data, values.rows * values.cols, keys.data);
  const auto rope = static_cast<size_t>(layer_spec.rope);
  backend_.Rope(keys, layer_spec.head_dim, step.cos[rope], step.sin[rope]);
  return {keys, values};
}

// What follows attention, up to the norm before the residual.
void DecoderLayers::Mlp(int index, Workspace& workspace, FloatRows hidden, FloatRows normed,
                        FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const ConstFloatRows input = PreNormed(layer.mlp_norm, hidden, normed);
  switch (spec_.layers[static_cast<size_t>(index)].mlp) {
    case MlpKind::kDense:
      return DenseMlp(index, workspace, input, projected);
    case MlpKind::kExperts:
      return layer.experts->Run(spec_, backend_, workspace, hidden, input, projected);
    case MlpKind::kDenseAndExperts:
      break;
  }
  DenseMlp(index, workspace, input, projected);
  backend_.RmsNorm(projected, layer.post_dense_norm, spec_.norm_eps, projected);
  backend_.RmsNorm(hidden, layer.pre_experts_norm, spec_.norm_eps, normed);
  const FloatRows experts = workspace.Rows(Buffer::kExperts, hidden.rows, spec_.hidden_size);
  layer.experts->Run(spec_, backend_, workspace, hidden, normed, experts);
  backend_.RmsNorm(experts, layer.post_experts_norm, spec_.norm_eps, experts);
  backend_.Add(projected, experts);
}

void DecoderLayers::DenseMlp(int index, Workspace& workspace, ConstFloatRows normed,
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

void DecoderLayers::MixPerLayerInput(int index, Workspace& workspace, ConstFloatRows hidden,
                                     FloatRows projected) const {
  const Layer& layer = layers_[static_cast<size_t>(index)];
  const FloatRows gate = workspace.Rows(Buffer::kPerLayerGate, hidden.rows, spec_.per_layer_size);
  const MatmulJob in[] = {layer.per_layer_gate.job(gate)};
  backend_.Matmul(hidden, in);
  backend_.Gate(spec_.activation, gate, PerLayerInput(spec_, workspace, hidden.rows, index));
  const MatmulJob out[] = {layer.per_layer_projection.job(projected)};
  backend_.Matmul(gate, out);
}

}  // namespace kvasir
