// DecoderModel: one forward pass for every family: tokens become embeddings, DecoderLayers run, a
// head makes logits. Deliberately without an idea of what a layer is.
#ifndef KVASIR_MODEL_DECODER_MODEL_H_
#define KVASIR_MODEL_DECODER_MODEL_H_

#include <memory>
#include <optional>
#include <vector>

#include "kvasir/model/decoder_layers.h"
#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/model.h"
#include "kvasir/model/per_layer_inputs.h"
#include "kvasir/model/weight_source.h"

namespace kvasir {

class DecoderModel final : public Model {
 public:
  // Reads all weights. `backend` must outlive the decoder. ERRORS: as WeightSource.
  static Result<std::unique_ptr<const Model>> Load(DecoderSpec spec, WeightSource& source,
                                                   Backend& backend);

  int64_t vocab_size() const override { return spec().vocab_size; }
  int64_t hidden_size() const override { return spec().hidden_size; }
  int64_t context_tokens() const override { return spec().context_tokens; }
  size_t weight_bytes() const override;
  int64_t parameters() const override;
  uint64_t LaterPositionsSum() const override;
  KvCacheSpec CacheSpec(KvCodec codec) const override { return layers_->CacheSpec(codec); }
  void EmbedTokens(std::span<const Token> tokens, FloatRows out) const override;
  void Logits(ConstFloatRows states, FloatRows out) const override;
  int query_heads() const override { return spec().query_heads; }
  size_t ScratchBytes(int64_t rows, int64_t logits_rows) const override;
  size_t backend_bytes() const override { return backend_.scratch_bytes(); }
  Result<ConstFloatRows> Forward(std::span<const SequenceRun> runs,
                                 Workspace& workspace) const override;

 private:
  // One step: its runs laid out as consecutive rows.
  struct Step;

  explicit DecoderModel(Backend& backend) : backend_(backend) {}
  const DecoderSpec& spec() const { return layers_->spec(); }
  Status CheckRuns(std::span<const SequenceRun> runs) const;
  FloatRows Normed(std::span<const int64_t> rows, ConstFloatRows hidden, Workspace::Buffer buffer,
                   Workspace& workspace) const;
  ConstFloatRows WantedLogits(const Step& step, ConstFloatRows hidden, Workspace& workspace) const;
  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    visit(*embedding_);
    if (head_ != nullptr) visit(*head_);
    if (per_layer_) per_layer_->ForEachMatrix(visit);
    layers_->ForEachMatrix(visit);
  }

  Backend& backend_;
  std::unique_ptr<const DecoderLayers> layers_;
  std::unique_ptr<const WeightMatrix> embedding_;
  std::unique_ptr<const WeightMatrix> head_;  // null: tied to the embedding
  std::optional<PerLayerInputs> per_layer_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_DECODER_MODEL_H_
