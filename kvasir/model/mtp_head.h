// MtpHead: the layer for multi-token prediction that checkpoints of Qwen3.5, 3.6 and Qwen3-Next
// ("mtp.*"), of DeepSeek-V3 and of GLM-4.5 to 4.7 (the layer behind the last one) bring along
// (docs/speculation.md, "Heads with a cache of their own"): a projection that
// joins a token's embedding with the state before it, one layer with attention, a norm, and the
// model's own head.
// Deliberately without a cache and without drafts: those are PairDrafter's.
#ifndef KVASIR_MODEL_MTP_HEAD_H_
#define KVASIR_MODEL_MTP_HEAD_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvasir/formats/model_config.h"
#include "kvasir/model/decoder_layers.h"
#include "kvasir/model/model.h"
#include "kvasir/model/pair_head.h"

namespace kvasir {

class MtpHead final : public PairHead {
 public:
  // Whether models of this family may have such a layer.
  static bool IsKnownTo(ModelFamily family) {
    return family == ModelFamily::kQwen35 || HasCopies(family);
  }
  // OK if the model of this config has one in `source`. ERRORS: kNotFound where there is none;
  // kInvalidArgument for a family that has none; kUnsupported for more than one layer, embeddings
  // or a head of its own, or a model without any layer with attention for it to be like.
  static Status Check(const ModelConfig& config, const WeightSource& source);
  // `target`, the model of `config`, and `backend` must outlive the head.
  // ERRORS: as Check and WeightSource.
  static Result<std::unique_ptr<const MtpHead>> Load(const ModelConfig& config, const Model& target,
                                                     WeightSource& source, Backend& backend);

  int64_t vocab_size() const override { return target_.vocab_size(); }
  int64_t state_size() const override { return target_.hidden_size(); }
  size_t weight_bytes() const;
  // Of its layer, every row stored in `codec`.
  KvCacheSpec CacheSpec(KvCodec codec) const { return layers_->CacheSpec(codec); }
  // States are the target's after its final norm, and the head's after its own.
  // REQUIRES: tokens of the target's vocabulary.
  Result<Output> Forward(std::span<const PairRun> runs, int64_t tokens,
                         Workspace& workspace) const override;

 private:
  // Whether checkpoints have the model's embeddings and its head with the layer once more, which
  // are the model's by definition (DeepSeek-V3) and not read.
  static bool HasCopies(ModelFamily family) {
    return family == ModelFamily::kDeepSeek || family == ModelFamily::kGlm4Moe;
  }
  MtpHead(const Model& target, Backend& backend) : target_(target), backend_(backend) {}
  // Of all pairs, one after the other, into the workspace's residual stream.
  void Join(std::span<const PairRun> runs, int64_t rows, Workspace& workspace) const;

  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    visit(*join_);
    layers_->ForEachMatrix(visit);
  }

  const Model& target_;
  Backend& backend_;
  float norm_eps_ = 0;
  std::vector<float> embedding_norm_;
  std::vector<float> state_norm_;
  std::unique_ptr<const WeightMatrix> join_;  // [hidden_size, 2 * hidden_size]
  std::unique_ptr<const DecoderLayers> layers_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_MTP_HEAD_H_
