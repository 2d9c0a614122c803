// ShortConv: the gated short convolution of LFM2: three projections b, c and x of the same input,
// a causal depthwise convolution over time of b x, times c, and the way back.
// Deliberately only what is its own: recurrent_layer.h has what it is to the decoder.
#ifndef KVASIR_MODEL_SHORT_CONV_H_
#define KVASIR_MODEL_SHORT_CONV_H_

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/model/linear.h"
#include "kvasir/model/recurrent_layer.h"

namespace kvasir {

class ShortConv final : public RecurrentLayer {
 public:
  static Result<std::unique_ptr<const RecurrentLayer>> Load(const DecoderSpec& spec,
                                                            const std::string& prefix,
                                                            WeightSource& source);

  void Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace,
           std::span<const std::vector<StateRun>> rounds, ConstFloatRows x,
           FloatRows out) const override;

  std::vector<const WeightMatrix*> Matrices() const override {
    return {before_.weights.get(), after_.weights.get(), value_.weights.get(), out_.weights.get()};
  }

 private:
  // Gates before and after the convolution, and what goes through it; all of them, and the way
  // back, [hidden_size, hidden_size].
  Linear before_, after_, value_;
  Linear out_;
  std::vector<float> conv_;         // [width, hidden_size]
  std::vector<float> conv_biases_;  // [hidden_size]; empty: none
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_SHORT_CONV_H_
