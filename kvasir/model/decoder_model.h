// DecoderModel: one forward pass for every family, driven by a DecoderSpec.
// Deliberately the only place that knows the order of a layer's operations.
#ifndef KVASIR_MODEL_DECODER_MODEL_H_
#define KVASIR_MODEL_DECODER_MODEL_H_

#include <memory>
#include <optional>
#include <vector>

#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/expert_mlp.h"
#include "kvasir/model/model.h"
#include "kvasir/model/per_layer_inputs.h"
#include "kvasir/model/weight_source.h"

namespace kvasir {

class DecoderModel final : public Model {
 public:
  // Reads all weights. `backend` must outlive the decoder. ERRORS: as WeightSource.
  static Result<std::unique_ptr<const Model>> Load(DecoderSpec spec, WeightSource& source,
                                                   Backend& backend);

  int64_t vocab_size() const override { return spec_.vocab_size; }
  int64_t hidden_size() const override { return spec_.hidden_size; }
  int64_t context_tokens() const override { return spec_.context_tokens; }
  size_t weight_bytes() const override;
  int64_t parameters() const override;
  KvCacheSpec CacheSpec(KvCodec codec) const override;
  int query_heads() const override { return spec_.query_heads; }
  size_t ScratchBytes(int64_t rows, int64_t logits_rows) const override;
  Result<ConstFloatRows> Forward(std::span<const SequenceRun> runs,
                                 Workspace& workspace) const override;

 private:
  struct Linear {
    std::unique_ptr<const WeightMatrix> weights;
    std::vector<float> bias;  // empty: none

    MatmulJob job(FloatRows out) const {
      return {weights.get(), bias.empty() ? nullptr : bias.data(), out};
    }
  };
  struct Layer {
    std::vector<float> attention_norm, mlp_norm;
    std::vector<float> post_attention_norm, post_mlp_norm;  // kSandwich only
    std::vector<float> query_norm, key_norm;                // has_qk_norm only
    std::vector<float> value_norm;                          // has_value_norm only: ones
    Linear query, key, value, output;  // key and value are empty when KV is shared
    Linear gate, up, down;             // empty where experts replace them
    std::optional<ExpertMlp> experts;
    std::vector<float> post_dense_norm, pre_experts_norm, post_experts_norm;  // kDenseAndExperts
    Linear per_layer_gate, per_layer_projection;  // per_layer_size > 0 only
    std::vector<float> post_per_layer_norm;
    float scalar = 1;  // multiplies the layer's output
  };
  // One step: its runs laid out as consecutive rows.
  struct Step;
  struct LayerLoader;
  struct KvReads;

  DecoderModel(DecoderSpec spec, Backend& backend) : spec_(std::move(spec)), backend_(backend) {}
  Status LoadLayer(int index, WeightSource& source, Layer* layer) const;
  Status LoadAttention(int index, LayerLoader& load, Layer* layer) const;
  Status LoadMlp(int index, LayerLoader& load, Layer* layer) const;
  Status CheckRuns(std::span<const SequenceRun> runs) const;
  void RunLayer(int index, const Step& step, Workspace& workspace) const;
  void Attention(int index, const Step& step, Workspace& workspace, ConstFloatRows normed,
                 FloatRows projected) const;
  void WriteKv(int index, const Step& step, const KvReads& reads, Workspace& workspace,
               ConstFloatRows normed, FloatRows queries) const;
  void Mlp(int index, Workspace& workspace, ConstFloatRows hidden, FloatRows normed,
           FloatRows projected) const;
  void DenseMlp(int index, Workspace& workspace, ConstFloatRows normed, FloatRows projected) const;
  void MixPerLayerInput(int index, Workspace& workspace, ConstFloatRows hidden,
                        FloatRows projected) const;
  FloatRows Normed(std::span<const int64_t> rows, const Step& step, Workspace::Buffer buffer,
                   Workspace& workspace) const;
  ConstFloatRows Logits(const Step& step, Workspace& workspace) const;
  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const;

  DecoderSpec spec_;
  Backend& backend_;
  std::unique_ptr<const WeightMatrix> embedding_;
  std::unique_ptr<const WeightMatrix> head_;  // null: tied to the embedding
  std::optional<PerLayerInputs> per_layer_;
  std::vector<float> final_norm_;
  std::vector<Layer> layers_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_DECODER_MODEL_H_
