// Linear: a weight matrix with its bias.
// Deliberately no more than what a matmul's job is made of.
#ifndef KVASIR_MODEL_LINEAR_H_
#define KVASIR_MODEL_LINEAR_H_

#include <memory>
#include <vector>

#include "kvasir/backend/backend.h"

namespace kvasir {

struct Linear {
  std::unique_ptr<const WeightMatrix> weights;
  std::vector<float> bias;  // empty: none

  MatmulJob job(FloatRows out) const {
    return {weights.get(), bias.empty() ? nullptr : bias.data(), out};
  }
};

}  // namespace kvasir

#endif  // KVASIR_MODEL_LINEAR_H_
