// DeltaNet: the gated delta net of one layer (Yang et al., arXiv 2412.06464), as Qwen3.5 and
// Qwen3-Next have it: projections, what the backend does with the state, a gated norm, and the way
// back. Deliberately only what is the net's own: recurrent_layer.h has what it is to the decoder.
#ifndef KVASIR_MODEL_DELTA_NET_H_
#define KVASIR_MODEL_DELTA_NET_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/model/recurrent_layer.h"

namespace kvasir {

class DeltaNet final : public RecurrentLayer {
 public:
  // With projections apart or joined by key head (Qwen3-Next).
  static Result<std::unique_ptr<const RecurrentLayer>> Load(const DecoderSpec& spec,
                                                            const std::string& prefix,
                                                            WeightSource& source);

  void Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
           std::span<const std::vector<StateRun>> rounds, ConstFloatRows x,
           FloatRows out) const override;

  std::vector<const WeightMatrix*> Matrices() const override {
    return {mixed_.get(), gate_.get(), step_.get(), decay_.get(), out_.get()};
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

}  // namespace kvasir

#endif  // KVASIR_MODEL_DELTA_NET_H_
