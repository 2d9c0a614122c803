#include "kvasir/model/decoder_model.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/checksum.h"

namespace kvasir {

using Buffer = Workspace::Buffer;

struct DecoderModel::Step {
  std::span<const SequenceRun> runs;
  std::vector<KvSequence*> sequences;  // [runs]
  std::vector<int64_t> counts;         // [runs] new tokens
  std::vector<LayerRun> layer_runs;    // [runs]
  std::vector<Token> tokens;           // [rows] of all runs, one after the other
  std::vector<Position> positions;     // [rows]
  std::vector<int64_t> logits_rows;    // of the wanted rows, those that need logits
  std::vector<int64_t> hidden_rows;    // and those whose hidden state is asked for

  explicit Step(std::span<const SequenceRun> runs) : runs(runs) {
    int64_t wanted = 0;  // so far
    for (const SequenceRun& run : runs) {
      const int64_t count = static_cast<int64_t>(run.tokens.size());
      const Position first = run.sequence->position();
      sequences.push_back(run.sequence);
      counts.push_back(count);
      layer_runs.push_back({run.sequence, count, std::max(run.logits_rows, run.hidden_rows)});
      wanted += layer_runs.back().wanted;
      for (int64_t i = run.logits_rows; i > 0; --i) logits_rows.push_back(wanted - i);
      for (int64_t i = run.hidden_rows; i > 0; --i) hidden_rows.push_back(wanted - i);
      for (int64_t i = 0; i < count; ++i) {
        tokens.push_back(run.tokens[static_cast<size_t>(i)]);
        positions.push_back(first + i);
      }
    }
  }
  int64_t rows() const { return static_cast<int64_t>(tokens.size()); }
};

Result<std::unique_ptr<const Model>> DecoderModel::Load(DecoderSpec spec, WeightSource& source,
                                                        Backend& backend) {
  auto decoder = std::unique_ptr<DecoderModel>(new DecoderModel(backend));
  KVASIR_TRY(decoder->embedding_,
             source.Matrix("embed_tokens.weight", spec.vocab_size, spec.hidden_size));
  // Where configs leave tie_word_embeddings out readers disagree about what that means; whether the
  // checkpoint has a head does not lie.
  if (!spec.ties_embeddings && (spec.has_own_head || source.Has("lm_head.weight"))) {
    KVASIR_TRY(decoder->head_, source.Matrix("lm_head.weight", spec.vocab_size, spec.hidden_size));
  }
  if (spec.per_layer_size > 0) {
    KVASIR_TRY(decoder->per_layer_, PerLayerInputs::Load(spec, source));
  }
  KVASIR_TRY(decoder->layers_, DecoderLayers::Load(std::move(spec), source, backend));
  return std::unique_ptr<const Model>(std::move(decoder));
}

size_t DecoderModel::weight_bytes() const {
  size_t bytes = 0;
  ForEachMatrix([&](const WeightMatrix& matrix) { bytes += matrix.bytes(); });
  return bytes;
}

int64_t DecoderModel::parameters() const {
  int64_t count = 0;
  ForEachMatrix([&](const WeightMatrix& matrix) { count += matrix.outputs() * matrix.inputs(); });
  return count;
}

// How queries grow.
uint64_t DecoderModel::LaterPositionsSum() const {
  std::vector<double> numbers;
  for (const RopeSpec& rope : spec().ropes) {
    if (rope.query_scale_beta == 0) continue;
    numbers.push_back(rope.query_scale_beta);
    numbers.push_back(static_cast<double>(rope.query_scale_period));
  }
  return numbers.empty() ? 0 : Checksum64(std::as_bytes(std::span(numbers)));
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
    if (run.sequence->position() + count > spec().context_tokens) {
      return {ErrorCode::kInvalidArgument,
              "the sequence would reach " + std::to_string(run.sequence->position() + count) +
                  " tokens; the model's context is " + std::to_string(spec().context_tokens)};
    }
    for (const Token token : run.tokens) {
      if (token < 0 || token >= spec().vocab_size) {
        return {ErrorCode::kInvalidArgument, "token " + std::to_string(token) +
                                                 " is outside the vocabulary of " +
                                                 std::to_string(spec().vocab_size)};
      }
    }
  }
  return {};
}

size_t DecoderModel::ScratchBytes(int64_t rows, int64_t logits_rows) const {
  int64_t kv_size = 0;
  int64_t query_size = 0;
  StepShape shape = {.rows = rows, .logits = logits_rows, .query_heads = spec().query_heads};
  for (const DecoderLayerSpec& layer : spec().layers) {
    if (layer.is_recurrent) continue;
    shape.layers.push_back({layer.kv_heads, layer.head_dim});
    query_size = std::max(query_size, int64_t{spec().query_heads} * layer.head_dim);
    kv_size = std::max(kv_size, int64_t{layer.kv_heads} * layer.head_dim);
  }
  int64_t intermediate =
      std::max(spec().experts.shared_intermediate_size, spec().has_query_gates ? query_size : 0);
  for (const DecoderLayerSpec& layer : spec().layers) {
    intermediate = std::max(intermediate, layer.intermediate_size);
  }
  const RecurrentRow recurrent = RecurrentRowOf(spec());
  query_size = std::max(query_size, recurrent.attended);
  intermediate = std::max(intermediate, recurrent.gate);
  const LatentRow latent = LatentRowOf(spec());
  intermediate = std::max({intermediate, latent.gate, latent.up});
  shape.inputs = std::max({spec().hidden_size, query_size, intermediate, latent.inputs});
  int64_t angles = 0;
  for (const RopeSpec& rope : spec().ropes) {
    angles += 2 * static_cast<int64_t>(rope.inverse_frequencies.size());
  }
  // kHidden, kNormed, kProjected, kStates; kQueries, kAttended; kKeys, kValues; kGate, kUp.
  int64_t row_floats = 4 * spec().hidden_size + 2 * query_size + 2 * kv_size + 2 * intermediate +
                       angles + recurrent.others + latent.others;
  // kPerLayer, kPerLayerContext; kPerLayerGate.
  const auto layers = static_cast<int64_t>(spec().layers.size());
  row_floats += (2 * layers + 1) * spec().per_layer_size;
  const ExpertsSpec& experts = spec().experts;
  if (experts.count > 0) {
    // kExperts, kRouterInput, kRouterScores; Chosen, ChosenWeights; kSharedGate.
    row_floats += 2 * spec().hidden_size + experts.count + 2 * experts.per_token + 1;
    shape.experts_of_row = experts.per_token;
    shape.expert_hidden = spec().hidden_size;
    shape.expert_intermediate = experts.intermediate_size;
  }
  const int64_t logits_floats = spec().hidden_size + spec().vocab_size;  // kSelected, kLogits
  return static_cast<size_t>(4 * (rows * row_floats + logits_rows * logits_floats)) +
         backend_.ScratchBound(shape);
}

void DecoderModel::EmbedTokens(std::span<const Token> tokens, FloatRows out) const {
  backend_.Embed(*embedding_, tokens, spec().embedding_scale, out);
}

Result<ConstFloatRows> DecoderModel::Forward(std::span<const SequenceRun> runs,
                                             Workspace& workspace) const {
  KVASIR_TRY_OK(CheckRuns(runs));
  Step step(runs);
  KVASIR_TRY_OK(KvSequence::ReserveAll(step.sequences, step.counts));
  const FloatRows embedded = workspace.Rows(Buffer::kHidden, step.rows(), spec().hidden_size);
  EmbedTokens(step.tokens, embedded);
  if (per_layer_) per_layer_->Compute(spec(), backend_, workspace, step.tokens, embedded);
  const FloatRows wanted =
      layers_->Run({.runs = step.layer_runs, .positions = step.positions}, workspace);
  for (const SequenceRun& run : runs) {
    run.sequence->Advance(static_cast<int64_t>(run.tokens.size()));
  }
  workspace.SetHiddenStates(Normed(step.hidden_rows, wanted, Buffer::kStates, workspace));
  return WantedLogits(step, wanted, workspace);
}

// The given rows of the residual stream after the final norm.
FloatRows DecoderModel::Normed(std::span<const int64_t> rows, ConstFloatRows hidden, Buffer buffer,
                               Workspace& workspace) const {
  const int64_t count = static_cast<int64_t>(rows.size());
  const FloatRows normed = workspace.Rows(buffer, count, spec().hidden_size);
  if (count == 0) return normed;
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(hidden.row(rows[static_cast<size_t>(i)]), spec().hidden_size, normed.row(i));
  }
  layers_->FinalNorm(normed);
  return normed;
}

ConstFloatRows DecoderModel::WantedLogits(const Step& step, ConstFloatRows hidden,
                                          Workspace& workspace) const {
  const int64_t count = static_cast<int64_t>(step.logits_rows.size());
  const FloatRows logits = workspace.Rows(Buffer::kLogits, count, spec().vocab_size);
  if (count > 0) Logits(Normed(step.logits_rows, hidden, Buffer::kSelected, workspace), logits);
  return logits;
}

void DecoderModel::Logits(ConstFloatRows states, FloatRows out) const {
  const WeightMatrix& head = head_ == nullptr ? *embedding_ : *head_;
  const MatmulJob jobs[] = {{&head, nullptr, out}};
  backend_.Matmul(states, jobs);
  if (spec().logits_scale != 1) backend_.Scale(out, spec().logits_scale);
  if (spec().final_softcap > 0) backend_.Softcap(out, spec().final_softcap);
  for (const Token token : spec().suppressed_tokens) {
    if (token >= out.cols) continue;
    for (int64_t i = 0; i < out.rows; ++i) {
      out.row(i)[token] = -std::numeric_limits<float>::infinity();
    }
  }
}

}  // namespace kvasir
