// ExpertMlp: the mixture of experts of one layer: a router and the experts it chooses from.
// Deliberately without norms and residual: decoder_layers.cc knows where the layer has those.
#ifndef KVASIR_MODEL_EXPERT_MLP_H_
#define KVASIR_MODEL_EXPERT_MLP_H_

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/model/decoder_spec.h"
#include "kvasir/model/weight_source.h"
#include "kvasir/model/workspace.h"

namespace kvasir {

class ExpertMlp {
 public:
  // Reads the tensors under `prefix` ("layers.3."): experts stacked into one tensor, with gate and
  // up fused into one or apart, or one tensor for each. ERRORS: as WeightSource.
  static Result<ExpertMlp> Load(const DecoderSpec& spec, const std::string& prefix,
                                WeightSource& source);

  // out = sum of the chosen experts of x. The router reads `hidden` where it has a norm of its
  // own, else x. All [rows, hidden_size]; out may not be x.
  void Run(const DecoderSpec& spec, Backend& backend, Workspace& workspace, ConstFloatRows hidden,
           ConstFloatRows x, FloatRows out) const;

  // Calls visit(matrix) for the router and every expert's three.
  template <typename Visit>
  void ForEachMatrix(const Visit& visit) const {
    visit(*router_);
    for (const auto& matrix : matrices_) visit(*matrix);
    for (const Matrix* matrix : {&shared_.switch_, &shared_.gate, &shared_.up, &shared_.down}) {
      if (*matrix != nullptr) visit(**matrix);
    }
  }

 private:
  using Matrix = std::unique_ptr<const WeightMatrix>;
  // The expert that every token goes through, and what it is gated by. Null: there is none.
  struct Shared {
    Matrix switch_;  // [1, hidden_size]
    Matrix gate, up, down;
  };

  Status LoadShared(const DecoderSpec& spec, const std::string& prefix, WeightSource& source);
  void AddShared(const DecoderSpec& spec, Backend& backend, Workspace& workspace, ConstFloatRows x,
                 FloatRows out) const;

  Matrix router_;
  Shared shared_;
  std::vector<float> router_norm_;            // [hidden_size]; empty: the router reads x
  std::vector<float> expert_scales_;          // [experts]; empty: all 1
  std::vector<float> router_bias_;            // [experts]; empty: none
  std::vector<float> choice_biases_;          // [experts]; empty: none
  std::array<std::vector<float>, 3> biases_;  // of gates, ups and downs, [experts, outputs]
  std::vector<Matrix> matrices_;
  std::vector<ExpertWeights> experts_;  // into matrices_ and biases_
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_EXPERT_MLP_H_
