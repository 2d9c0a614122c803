#include "kvasir/backend/softmax_state.h"

#include "kvasir/base/scalar_math.h"

namespace kvasir {

void MergeSoftmax(const SoftmaxState& total, const SoftmaxState& partial, int64_t rows,
                  int64_t value_dim) {
  for (int64_t r = 0; r < rows; ++r) {
    if (partial.sum[r] == 0) continue;  // nothing visible in that partition
    const float max = std::max(total.max[r], partial.max[r]);
    const float keep = total.sum[r] == 0 ? 0.0f : scalar::Exp(total.max[r] - max);
    const float take = scalar::Exp(partial.max[r] - max);
    total.max[r] = max;
    total.sum[r] = total.sum[r] * keep + partial.sum[r] * take;
    float* const out = total.accumulator + r * value_dim;
    const float* const in = partial.accumulator + r * value_dim;
    for (int64_t d = 0; d < value_dim; ++d) out[d] = out[d] * keep + in[d] * take;
  }
}

}  // namespace kvasir
