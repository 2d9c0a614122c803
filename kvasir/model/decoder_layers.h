// DecoderLayers: the layers of a decoder and its final norm, driven by a DecoderSpec.
// Deliberately the only place that knows the order of a layer's operations, and without embeddings
// and heads: what goes in and what becomes of the result is DecoderModel's, or AssistantModel's.
#ifndef KVASIR_MODEL_DECODER_LAYERS_H_
#define KVASIR_MODEL_DECODER_LAYERS_H_

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kvasir/kv/kv_sequence.h"
#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/expert_mlp.h"
#include "kvasir/model/latent_attention.h"
#include "kvasir/model/linear.h"
#include "kvasir/model/recurrent_layer.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/model/workspace.h"

namespace kvasir {

// Rows of a step that attend to one sequence's cache: those of the positions from
// sequence->position() + skipped on, reserved already, unless the decoder reads another model's.
struct LayerRun {
  const KvSequence* sequence = nullptr;
  int64_t rows = 0;
  int64_t wanted = 0;   // so many of the last rows are asked for; of the others only the cache
  int64_t skipped = 0;  // rows before these, which have been written
};

// Consecutive rows of all runs, and the positions their queries (and keys) are turned to.
struct LayerStep {
  std::span<const LayerRun> runs;
  std::span<const Position> positions;  // [rows]

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
  int64_t wanted_rows() const;
};

class DecoderLayers {
 public:
  // `backend` must outlive the layers; `prefix` is what names of all their tensors begin with.
  // ERRORS: as WeightSource.
  static Result<std::unique_ptr<const DecoderLayers>> Load(DecoderSpec spec, WeightSource& source,
                                                           Backend& backend,
                                                           const std::string& prefix = {});

  const DecoderSpec& spec() const { return spec_; }
  // Takes the residual stream, the workspace's kHidden [rows, hidden_size], through all layers and
  // writes keys and values of layers that have their own. With per_layer_size, kPerLayer holds
  // what PerLayerInputs made. Returns the wanted rows of all runs, one after the other, which are
  // what kHidden holds then: behind the last layer that writes keys and values no others are
  // computed.
  FloatRows Run(const LayerStep& step, Workspace& workspace) const;
  // In place.
  void FinalNorm(FloatRows hidden) const;

  KvCacheSpec CacheSpec(KvCodec codec) const;
  // Calls visit(matrix) for every matrix.
  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    for (const Layer& layer : layers_) {
      for (const Linear* linear :
           {&layer.query, &layer.query_gate, &layer.key, &layer.value, &layer.output, &layer.gate,
            &layer.up, &layer.down, &layer.per_layer_gate, &layer.per_layer_projection}) {
        if (linear->weights != nullptr) visit(*linear->weights);
      }
      if (layer.latent) layer.latent->ForEachMatrix(visit);
      if (layer.experts) layer.experts->ForEachMatrix(visit);
      if (layer.recurrent == nullptr) continue;
      for (const WeightMatrix* matrix : layer.recurrent->Matrices()) visit(*matrix);
    }
  }

 private:
  struct Layer {
    std::vector<float> attention_norm, mlp_norm;            // not kPost
    std::vector<float> post_attention_norm, post_mlp_norm;  // kSandwich and kPost only
    std::vector<float> query_norm, key_norm;  // has_qk_norm only: as many numbers as are normed
    std::vector<float> value_norm;            // has_value_norm only: ones
    std::vector<float> sinks;                 // has_sinks only: [query_heads]
    Linear query, key, value, output;         // key and value are empty when KV is shared
    Linear query_gate;                        // has_query_gates only
    std::optional<LatentAttention> latent;    // in place of query, key and value
    std::unique_ptr<const RecurrentLayer> recurrent;  // in place of all these, or null
    Linear gate, up, down;                            // empty where experts replace them
    std::optional<ExpertMlp> experts;
    std::vector<float> post_dense_norm, pre_experts_norm, post_experts_norm;  // kDenseAndExperts
    Linear per_layer_gate, per_layer_projection;  // per_layer_size > 0 only
    std::vector<float> post_per_layer_norm;
    float scalar = 1;  // multiplies the layer's output
  };
  // A step and its angles.
  struct TurnedStep;
  // The wanted rows of a step.
  struct WantedStep;
  struct LayerLoader;
  struct KvReads;

  DecoderLayers(DecoderSpec spec, Backend& backend) : spec_(std::move(spec)), backend_(backend) {}
  Status LoadLayer(int index, LayerLoader& load, Layer* layer) const;
  Status LoadNorms(LayerLoader& load, Layer* layer) const;
  Status LoadAttention(int index, LayerLoader& load, Layer* layer) const;
  Status LoadMlp(int index, LayerLoader& load, Layer* layer) const;
  Status LoadDenseMlp(int64_t size, LayerLoader& load, Layer* layer) const;
  // The layer from which on only wanted rows are computed, whose keys and values are all rows'
  // nevertheless; the number of layers: none.
  int FirstNarrowLayer(const LayerStep& step) const;
  void RunLayer(int index, const TurnedStep& step, Workspace& workspace) const;
  // What a layer leaves in the cache, and nothing else of it.
  void WriteKv(int index, const TurnedStep& step, Workspace& workspace) const;
  // `hidden` normed into `normed`; `hidden` itself where `norm` is empty.
  ConstFloatRows PreNormed(std::span<const float> norm, FloatRows hidden, FloatRows normed) const;
  void RunRecurrent(int index, const LayerStep& step, Workspace& workspace, ConstFloatRows normed,
                    FloatRows projected) const;
  void Attention(int index, const TurnedStep& step, Workspace& workspace, ConstFloatRows normed,
                 FloatRows projected) const;
  // Multiplies queries by what their positions say, in place.
  void ScaleQueries(const RopeSpec& rope, std::span<const Position> positions,
                    FloatRows queries) const;
  void ProjectQueries(const Layer& layer, Workspace& workspace, ConstFloatRows normed,
                      FloatRows queries) const;
  std::vector<MatmulJob> QueryJobs(const Layer& layer, Workspace& workspace,
                                   FloatRows queries) const;
  // Keys and values of a step, each [rows, kv_heads * head_dim].
  struct KvRows {
    ConstFloatRows keys;
    ConstFloatRows values;
  };
  // `queries` without data: those are not projected.
  KvRows ProjectLatents(int index, const TurnedStep& step, Workspace& workspace,
                        ConstFloatRows normed, FloatRows queries) const;
  KvRows ProjectKv(int index, const TurnedStep& step, Workspace& workspace, ConstFloatRows normed,
                   FloatRows queries) const;
  void Mlp(int index, Workspace& workspace, FloatRows hidden, FloatRows normed,
           FloatRows projected) const;
  void DenseMlp(int index, Workspace& workspace, ConstFloatRows normed, FloatRows projected) const;
  void MixPerLayerInput(int index, Workspace& workspace, ConstFloatRows hidden,
                        FloatRows projected) const;

  const DecoderSpec spec_;
  Backend& backend_;
  std::vector<float> final_norm_;
  std::vector<Layer> layers_;
};

// Rows of `layer` that a query at the sequence's next position sees while its own row is not
// written: what the target's own token there would see beside itself. May be none.
VisibleRows VisibleBefore(const KvSequence& sequence, int layer);

}  // namespace kvasir

#endif  // KVASIR_MODEL_DECODER_LAYERS_H_
