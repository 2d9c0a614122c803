#include "kvasir/backend/softmax_state.h"

#include "kvasir/base/scalar_math.h"

namespace kvasir {

namespace {

// e^x, of which 1 is the usual one: only one of two maxima moves.
float Factor(float x) { return x == 0 ? 1.0f : scalar::Exp(x); }

}  // namespace

void MergeSoftmax(const KernelTable& kernels, const SoftmaxState& total,
                  const SoftmaxState& partial, int64_t rows, int64_t value_dim) {
  for (int64_t r = 0; r < rows; ++r) {
    if (partial.sum[r] == 0) continue;  // nothing visible in that partition
    const float max = std::max(total.max[r], partial.max[r]);
    const float keep = total.sum[r] == 0 ? 0.0f : Factor(total.max[r] - max);
    const float take = Factor(partial.max[r] - max);
    total.max[r] = max;
    total.sum[r] = total.sum[r] * keep + partial.sum[r] * take;
    kernels.merge(total.accumulator + r * value_dim, keep, partial.accumulator + r * value_dim,
                  take, value_dim);
  }
}

void AddSink(const KernelTable& kernels, const SoftmaxState& total, int64_t row, int64_t value_dim,
             float sink) {
  const float max = std::max(total.max[row], sink);
  const float keep = Factor(total.max[row] - max);
  total.max[row] = max;
  total.sum[row] = total.sum[row] * keep + Factor(sink - max);
  if (keep != 1) kernels.scale(total.accumulator + row * value_dim, keep, value_dim);
}

}  // namespace kvasir
