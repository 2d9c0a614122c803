// Mamba: the Mamba-2 mixer of one layer (Dao, Gu, arXiv 2405.21060), as Granite 4's hybrids have
// it: projections, what the backend does with the state, a gated norm, and the way back.
// Deliberately only what is its own: recurrent_layer.h has what it is to the decoder, and the
// backend sees it as linear attention (DeltaShape).
#ifndef KVASIR_MODEL_MAMBA_H_
#define KVASIR_MODEL_MAMBA_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/model/recurrent_layer.h"

namespace kvasir {

class Mamba final : public RecurrentLayer {
 public:
  static Result<std::unique_ptr<const RecurrentLayer>> Load(const DecoderSpec& spec,
                                                            const std::string& prefix,
                                                            WeightSource& source);

  void Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
           std::span<const std::vector<StateRun>> rounds, ConstFloatRows x,
           FloatRows out) const override;

  std::vector<const WeightMatrix*> Matrices() const override {
    return {mixed_.get(), gate_.get(), step_.get(), out_.get()};
  }

 private:
  using Matrix = std::unique_ptr<const WeightMatrix>;

  struct Loader;

  Matrix mixed_;                    // C, B and x, [channels, hidden_size]
  Matrix gate_;                     // of the output, z, [value_heads * value_dim, hidden_size]
  Matrix step_;                     // dt, [value_heads, hidden_size]
  Matrix out_;                      // [hidden_size, value_heads * value_dim]
  std::vector<float> conv_;         // [conv_width, channels]
  std::vector<float> conv_biases_;  // [channels]; empty: none
  std::vector<float> decay_rates_;  // [value_heads]
  std::vector<float> step_biases_;  // [value_heads]
  std::vector<float> skips_;        // [value_heads]
  // [value_heads * value_dim], a norm for each group of heads that share keys.
  std::vector<float> norm_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_MAMBA_H_
