// PerLayerInputs: numbers that every layer gets for itself from a token's second embedding and from
// what the first one says about all layers (Gemma 4 E2B, E4B; per-layer embeddings of Gemma 3n).
// Deliberately only makes them, once per step: layers mix them in (decoder_layers.cc).
#ifndef KVASIR_MODEL_PER_LAYER_INPUTS_H_
#define KVASIR_MODEL_PER_LAYER_INPUTS_H_

#include <memory>
#include <span>
#include <vector>

#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/model/workspace.h"

namespace kvasir {

class PerLayerInputs {
 public:
  // REQUIRES: spec.per_layer_size > 0. ERRORS: as WeightSource.
  static Result<PerLayerInputs> Load(const DecoderSpec& spec, WeightSource& source);

  // For all layers of all tokens, from their scaled embeddings [rows, hidden_size]; into the
  // workspace's kPerLayer.
  void Compute(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
               std::span<const Token> tokens, ConstFloatRows embedded) const;

  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    visit(*table_);
    visit(*projection_);
  }

 private:
  std::unique_ptr<const WeightMatrix> table_;       // [vocab_size, layers * per_layer_size]
  std::unique_ptr<const WeightMatrix> projection_;  // [layers * per_layer_size, hidden_size]
  std::vector<float> norm_;                         // [per_layer_size]
};

// What Compute made: [rows, layers * per_layer_size], and for one layer: [rows, per_layer_size].
FloatRows AllPerLayerInputs(const DecoderSpec& spec, Workspace& workspace, int64_t rows);
FloatRows PerLayerInput(const DecoderSpec& spec, Workspace& workspace, int64_t rows, int layer);

}  // namespace kvasir

#endif  // KVASIR_MODEL_PER_LAYER_INPUTS_H_
