#include "kvasir/model/mtp_head.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/model/families.h"

namespace kvasir {
namespace {

using Buffer = Workspace::Buffer;

const std::string kPrefix = "mtp.";
const std::string kJoin = kPrefix + "fc.weight";

bool HasAttention(const DecoderLayerSpec& layer) { return !layer.is_recurrent; }

// One layer like the model's last with attention; which of both MLPs it has the tensors say.
DecoderSpec LayerSpec(const ModelConfig& config, const WeightSource& source) {
  DecoderSpec spec = MakeDecoderSpec(config);
  DecoderLayerSpec layer = *std::find_if(spec.layers.rbegin(), spec.layers.rend(), HasAttention);
  const bool is_dense =
      spec.experts.count == 0 || !source.Shape(kPrefix + "layers.0.mlp.gate_proj.weight").empty();
  layer.mlp = is_dense ? MlpKind::kDense : MlpKind::kExperts;
  spec.layers = {layer};
  spec.delta_net = {};
  return spec;
}

}  // namespace

Status MtpHead::Check(const ModelConfig& config, const WeightSource& source) {
  if (!IsKnownTo(config.family)) {
    return {ErrorCode::kInvalidArgument,
            "only models like Qwen3.5, DeepSeek-V3 and GLM-4.5 have a layer of their own that "
            "drafts; name a draft model"};
  }
  if (!source.Has(kJoin)) {
    return {ErrorCode::kNotFound,
            "the model came without its layer that drafts (tensor '" + kJoin +
                "', of DeepSeek's and GLM's 'layers.N.eh_proj.weight', in a GGUF file "
                "'blk.N.nextn.eh_proj.weight'); take files that have it, or name "
                "a draft model"};
  }
  for (const char* more :
       {"layers.1.input_layernorm.weight", "embed_tokens.weight", "shared_head.head.weight"}) {
    const bool is_copy = HasCopies(config.family) && !std::string_view(more).starts_with("layers.");
    if (is_copy || source.Shape(kPrefix + more).empty()) continue;
    return {ErrorCode::kUnsupported, "the model's layer that drafts has a tensor '" + kPrefix +
                                         more +
                                         "'; only one layer is read, which has the model's "
                                         "embeddings and its head"};
  }
  if (config.draft_layers > 1) {
    return {ErrorCode::kUnsupported, "the model has " + std::to_string(config.draft_layers) +
                                         " layers that draft; only one is read"};
  }
  const DecoderSpec spec = MakeDecoderSpec(config);
  if (std::ranges::none_of(spec.layers, HasAttention)) {
    return {ErrorCode::kUnsupported,
            "the model has no layer with attention for its layer that drafts to be like"};
  }
  return {};
}

Result<std::unique_ptr<const MtpHead>> MtpHead::Load(const ModelConfig& config, const Model& target,
                                                     WeightSource& source, Backend& backend) {
  KVASIR_TRY_OK(Check(config, source));
  auto head = std::unique_ptr<MtpHead>(new MtpHead(target, backend));
  DecoderSpec spec = LayerSpec(config, source);
  const int64_t size = spec.hidden_size;
  head->norm_eps_ = spec.norm_eps;
  KVASIR_TRY(head->embedding_norm_,
             source.Vector(kPrefix + "pre_fc_norm_embedding.weight", size, spec.norm_offset));
  KVASIR_TRY(head->state_norm_,
             source.Vector(kPrefix + "pre_fc_norm_hidden.weight", size, spec.norm_offset));
  KVASIR_TRY(head->join_, source.Matrix(kJoin, size, 2 * size));
  KVASIR_TRY(head->layers_, DecoderLayers::Load(std::move(spec), source, backend, kPrefix));
  return std::unique_ptr<const MtpHead>(std::move(head));
}

size_t MtpHead::weight_bytes() const {
  size_t bytes = 0;
  ForEachMatrix([&](const WeightMatrix& matrix) { bytes += matrix.bytes(); });
  return bytes;
}

void MtpHead::Join(std::span<const PairRun> runs, int64_t rows, Workspace& workspace) const {
  const int64_t size = state_size();
  const FloatRows joined = workspace.Rows(Buffer::kJoined, rows, 2 * size);
  const FloatRows embedded = {joined.data, rows, size, joined.stride};
  const FloatRows states = {joined.data + size, rows, size, joined.stride};
  std::vector<Token> tokens;
  for (const PairRun& run : runs) {
    for (int64_t i = 0; i < run.states.rows; ++i) {
      std::copy_n(run.states.row(i), size, states.row(static_cast<int64_t>(tokens.size())));
      tokens.push_back(run.tokens[static_cast<size_t>(i)]);
    }
  }
  target_.EmbedTokens(tokens, embedded);
  backend_.RmsNorm(embedded, embedding_norm_, norm_eps_, embedded);
  backend_.RmsNorm(states, state_norm_, norm_eps_, states);
  const MatmulJob jobs[] = {{join_.get(), nullptr, workspace.Rows(Buffer::kHidden, rows, size)}};
  backend_.Matmul(joined, jobs);
}

Result<PairHead::Output> MtpHead::Forward(std::span<const PairRun> runs, int64_t tokens,
                                          Workspace& workspace) const {
  std::vector<KvSequence*> caches;
  std::vector<int64_t> counts;
  std::vector<LayerRun> layer_runs;
  std::vector<Position> positions;
  for (const PairRun& run : runs) {
    const auto count = static_cast<int64_t>(run.tokens.size());
    caches.push_back(run.cache);
    counts.push_back(count);
    layer_runs.push_back({run.cache, count, 1});
    for (int64_t i = 0; i < count; ++i) positions.push_back(run.cache->position() + i);
  }
  KVASIR_TRY_OK(KvSequence::ReserveAll(caches, counts));
  Join(runs, static_cast<int64_t>(positions.size()), workspace);
  const FloatRows last = layers_->Run({.runs = layer_runs, .positions = positions}, workspace);
  for (size_t i = 0; i < caches.size(); ++i) caches[i]->Advance(counts[i]);
  layers_->FinalNorm(last);
  const FloatRows states = workspace.Rows(Buffer::kStates, last.rows, state_size());
  for (int64_t i = 0; i < last.rows; ++i) std::copy_n(last.row(i), state_size(), states.row(i));
  const FloatRows logits = workspace.Rows(Buffer::kLogits, last.rows, tokens);
  if (tokens > 0) target_.Logits(states, logits);
  return Output{logits, states};
}

}  // namespace kvasir
