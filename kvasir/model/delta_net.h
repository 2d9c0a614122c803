// DeltaNet: the gated delta net of one layer (Yang et al., arXiv 2412.06464), as Qwen3.5 and
// Qwen3-Next have it: projections, what the backend does with the state, a gated norm, and the way
// back. Deliberately without the layer's norm and residual, which decoder_layers.cc knows.
#ifndef KVASIR_MODEL_DELTA_NET_H_
#define KVASIR_MODEL_DELTA_NET_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/model/workspace.h"

namespace kvasir {

class DeltaNet {
 public:
  // Reads the tensors under `prefix` ("layers.3."), with projections apart or joined by key head
  // (Qwen3-Next). ERRORS: as WeightSource.
  static Result<DeltaNet> Load(const DecoderSpec& spec, const std::string& prefix,
                               WeightSource& source);

  // Takes states through rows of x [rows, hidden_size]; out, of the same size: what they read of
  // them. `rounds`: runs of different sequences each, one round after the other.
  void Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
           std::span<const std::vector<DeltaRun>> rounds, ConstFloatRows x, FloatRows out) const;

  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    for (const auto& matrix : {mixed_.get(), gate_.get(), step_.get(), decay_.get(), out_.get()}) {
      visit(*matrix);
    }
  }

 private:
  using Matrix = std::unique_ptr<const WeightMatrix>;

  struct Loader;

  Matrix mixed_;                     // queries, keys and values, [channels, hidden_size]
  Matrix gate_;                      // of the output, [value_heads * value_dim, hidden_size]
  Matrix step_;                      // [value_heads, hidden_size]: how much of a token is written
  Matrix decay_;                     // [value_heads, hidden_size]: how much of the state goes
  Matrix out_;                       // [hidden_size, value_heads * value_dim]
  std::vector<float> conv_;          // [conv_width, channels]
  std::vector<float> decay_rates_;   // [value_heads]
  std::vector<float> decay_biases_;  // [value_heads]
  std::vector<float> norm_;          // [value_dim]
};

// Floats of a row that Run takes in the workspace, but for kGate and kAttended.
int64_t DeltaNetRowFloats(const DeltaShape& shape);

}  // namespace kvasir

#endif  // KVASIR_MODEL_DELTA_NET_H_
