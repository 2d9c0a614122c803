#include "kvasir/model/assistant_model.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/model/families.h"

namespace kvasir {
namespace {

using Buffer = Workspace::Buffer;

Error Unfit(const std::string& what, int64_t own, int64_t target) {
  return {ErrorCode::kInvalidArgument, "the assistant is for another model: its " + what + " is " +
                                           std::to_string(own) + ", the model's " +
                                           std::to_string(target) +
                                           "; use the assistant that was published with the model"};
}

// The target's last layer of that kind that has keys and values; -1: none.
int LastOwner(const ModelConfig& target, bool is_full) {
  int last = -1;
  for (int i = 0; i < target.num_hidden_layers; ++i) {
    if (target.owns_kv(i) && !target.is_recurrent(i) && target.is_full(i) == is_full) last = i;
  }
  return last;
}

const char* KindName(bool is_full) { return is_full ? "full" : "sliding"; }

Status CheckLayers(const ModelConfig& own, const ModelConfig& target, bool is_full, int layer) {
  const int owner = LastOwner(target, is_full);
  const std::string kind = KindName(is_full);
  if (owner < 0) {
    return {ErrorCode::kInvalidArgument, "the assistant is for another model: it has a " + kind +
                                             " attention layer, and the model has none to read"};
  }
  if (own.head_dim_of(layer) != target.head_dim_of(owner)) {
    return Unfit("head size of " + kind + " layers", own.head_dim_of(layer),
                 target.head_dim_of(owner));
  }
  if (own.key_value_heads_of(layer) != target.key_value_heads_of(owner)) {
    return Unfit("number of key and value heads of " + kind + " layers",
                 own.key_value_heads_of(layer), target.key_value_heads_of(owner));
  }
  return {};
}

}  // namespace

Status AssistantModel::CheckTarget(const AssistantConfig& config, const ModelConfig& target) {
  const ModelConfig& own = config.text;
  if (config.target_hidden_size != target.hidden_size) {
    return Unfit("backbone_hidden_size", config.target_hidden_size, target.hidden_size);
  }
  if (own.vocab_size != target.vocab_size) {
    return Unfit("vocabulary", own.vocab_size, target.vocab_size);
  }
  for (int i = 0; i < own.num_hidden_layers; ++i) {
    KVASIR_TRY_OK(CheckLayers(own, target, own.is_full(i), i));
  }
  if (own.sliding_window > 0 && own.sliding_window != target.sliding_window) {
    return Unfit("sliding_window", own.sliding_window, target.sliding_window);
  }
  return {};
}

Result<std::unique_ptr<const AssistantModel>> AssistantModel::Load(const AssistantConfig& config,
                                                                   const ModelConfig& target,
                                                                   WeightSource& source,
                                                                   Backend& backend) {
  KVASIR_TRY_OK(CheckTarget(config, target));
  auto assistant = std::unique_ptr<AssistantModel>(new AssistantModel(backend));
  DecoderSpec spec = MakeDecoderSpec(config.text);
  spec.reads_target = true;
  for (int i = 0; i < config.text.num_hidden_layers; ++i) {
    spec.layers[static_cast<size_t>(i)].shares_kv = LastOwner(target, config.text.is_full(i));
  }
  const int64_t hidden = spec.hidden_size;
  const int64_t vocabulary = spec.vocab_size;
  assistant->target_hidden_ = config.target_hidden_size;
  KVASIR_TRY(assistant->before_,
             source.Matrix("pre_projection.weight", hidden, 2 * config.target_hidden_size));
  KVASIR_TRY(assistant->after_,
             source.Matrix("post_projection.weight", config.target_hidden_size, hidden));
  if (config.has_ordered_head) {
    KVASIR_TRY(assistant->ordered_head_, OrderedHead::Load(config, source));
  } else {
    const bool has_own = !spec.ties_embeddings && source.Has("lm_head.weight");
    KVASIR_TRY(assistant->head_, source.Matrix(has_own ? "lm_head.weight" : "embed_tokens.weight",
                                               vocabulary, hidden));
  }
  KVASIR_TRY(assistant->layers_, DecoderLayers::Load(std::move(spec), source, backend));
  return std::unique_ptr<const AssistantModel>(std::move(assistant));
}

size_t AssistantModel::weight_bytes() const {
  size_t bytes = 0;
  ForEachMatrix([&](const WeightMatrix& matrix) { bytes += matrix.bytes(); });
  return bytes;
}

int64_t AssistantModel::parameters() const {
  int64_t count = 0;
  ForEachMatrix([&](const WeightMatrix& matrix) { count += matrix.outputs() * matrix.inputs(); });
  return count;
}

bool AssistantModel::CanRead(const KvSequence& target) const {
  const auto& layers = layers_->spec().layers;
  return target.position() > 0 &&
         std::all_of(layers.begin(), layers.end(), [&](const DecoderLayerSpec& layer) {
           return VisibleBefore(target, layer.shares_kv).count() > 0;
         });
}

AssistantModel::Output AssistantModel::Forward(const Model& target,
                                               std::span<const AssistantQuery> queries,
                                               Workspace& workspace) const {
  const auto rows = static_cast<int64_t>(queries.size());
  const FloatRows joined = workspace.Rows(Buffer::kJoined, rows, 2 * target_hidden_);
  std::vector<Token> tokens;
  std::vector<LayerRun> runs;
  std::vector<Position> positions;
  for (int64_t row = 0; row < rows; ++row) {
    const AssistantQuery& query = queries[static_cast<size_t>(row)];
    std::copy_n(query.state.data(), target_hidden_, joined.row(row) + target_hidden_);
    tokens.push_back(query.token);
    runs.push_back({query.cache, 1, 1});
    positions.push_back(query.position);
  }
  target.EmbedTokens(tokens, {joined.data, rows, target_hidden_, joined.stride});
  const int64_t hidden_size = layers_->spec().hidden_size;
  const FloatRows hidden = workspace.Rows(Buffer::kHidden, rows, hidden_size);
  const MatmulJob in[] = {{before_.get(), nullptr, hidden}};
  backend_.Matmul(joined, in);
  layers_->Run({.runs = runs, .positions = positions}, workspace);
  layers_->FinalNorm(hidden);
  const FloatRows states = workspace.Rows(Buffer::kStates, rows, target_hidden_);
  const FloatRows logits = workspace.Rows(Buffer::kLogits, rows, vocab_size());
  std::vector<MatmulJob> out = {{after_.get(), nullptr, states}};
  if (head_ != nullptr) out.push_back({head_.get(), nullptr, logits});
  backend_.Matmul(hidden, out);
  if (ordered_head_) ordered_head_->Run(backend_, workspace, hidden, logits);
  return {logits, states};
}

}  // namespace kvasir
