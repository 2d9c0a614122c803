// Workspace: the activations of one step, kept between steps so that decoding allocates nothing.
// Deliberately dumb: named buffers that only ever grow to the largest step seen.
#ifndef KVASIR_MODEL_WORKSPACE_H_
#define KVASIR_MODEL_WORKSPACE_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/scratch_vector.h"
#include "kvasir/tensor/float_rows.h"

namespace kvasir {

class Workspace {
 public:
  enum class Buffer {
    kHidden,     // residual stream
    kNormed,     // input of a block's matmuls
    kProjected,  // output of a block, before the residual is added
    kQueries,
    kKeys,
    kValues,
    kAttended,
    kGate,
    kUp,
    kPerLayer,         // [rows, layers * per_layer_size]
    kPerLayerContext,  // the same, while it is computed
    kPerLayerGate,
    kRouterInput,
    kRouterScores,
    kExperts,      // what experts add beside a dense MLP
    kMixed,        // what a recurrent layer convolves, [rows, channels]
    kConvolved,    // the same behind the convolution
    kDeltaSteps,   // [rows, value_heads]
    kDeltaDecays,  // [rows, value_heads]
    kDeltaGates,   // [rows, 2 * value_heads]
    kSharedGate,   // [rows, 1]
    kLatents,      // of latent attention, before their elements are in order
    kHeadInputs,   // of matrices of single heads, [heads * rows, ...]
    kHeadOutputs,
    kSelected,  // hidden rows that need logits
    kStates,    // hidden rows that were asked for, after the final norm
    kJoined,    // a token's embedding and a state side by side, of an assistant
    kLogits,
    kCount,
  };

  // A [rows, cols] view of the buffer, grown if needed; earlier contents are lost when it grows.
  FloatRows Rows(Buffer buffer, int64_t rows, int64_t cols) {
    return View(buffers_[static_cast<size_t>(buffer)], rows, cols);
  }
  // What the last step left of the hidden states that its runs asked for, in run order.
  ConstFloatRows HiddenStates() const { return hidden_states_; }
  void SetHiddenStates(ConstFloatRows states) { hidden_states_ = states; }
  // Angles of rope number `rope`.
  FloatRows Cos(int rope, int64_t rows, int64_t pairs) { return Angles(2 * rope, rows, pairs); }
  FloatRows Sin(int rope, int64_t rows, int64_t pairs) { return Angles(2 * rope + 1, rows, pairs); }

  // The experts that every row goes through, and their weights: [rows * per_row] each.
  std::span<int32_t> Chosen(int64_t count) { return Grown(chosen_, count); }
  std::span<float> ChosenWeights(int64_t count) { return Grown(chosen_weights_, count); }

  size_t bytes() const {
    size_t floats = chosen_.capacity() + chosen_weights_.capacity();
    for (const auto& buffer : buffers_) floats += buffer.capacity();
    for (const auto& buffer : angles_) floats += buffer.capacity();
    return floats * sizeof(float);
  }

 private:
  static FloatRows View(std::vector<float>& buffer, int64_t rows, int64_t cols) {
    const size_t needed = static_cast<size_t>(rows * cols);
    GrowScratch(needed, &buffer);
    return {buffer.data(), rows, cols, cols};
  }
  template <typename T>
  static std::span<T> Grown(std::vector<T>& buffer, int64_t count) {
    const auto needed = static_cast<size_t>(count);
    GrowScratch(needed, &buffer);
    return std::span(buffer).first(needed);
  }
  FloatRows Angles(int index, int64_t rows, int64_t pairs) {
    if (angles_.size() <= static_cast<size_t>(index))
      angles_.resize(static_cast<size_t>(index) + 1);
    return View(angles_[static_cast<size_t>(index)], rows, pairs);
  }

  std::array<std::vector<float>, static_cast<size_t>(Buffer::kCount)> buffers_;
  std::vector<std::vector<float>> angles_;
  ConstFloatRows hidden_states_;
  std::vector<int32_t> chosen_;
  std::vector<float> chosen_weights_;
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_WORKSPACE_H_
