// Running softmaxes of a tile of queries and how those of its partitions are merged.
// Deliberately only the arithmetic of states: query_tile.h says what a partition is.
#ifndef KVASIR_BACKEND_SOFTMAX_STATE_H_
#define KVASIR_BACKEND_SOFTMAX_STATE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "kvasir/base/aligned_vector.h"
#include "kvasir/kernels/kernels.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// Running softmax of `rows` queries: [rows] max, [rows] sum, [rows, value_dim] accumulator, which
// comes first in memory so that it begins at a cache line where the memory does.
struct SoftmaxState {
  float* max;
  float* sum;
  float* accumulator;

  static size_t Floats(int64_t rows, int64_t value_dim) {
    constexpr size_t kLine = kCacheLineBytes / sizeof(float);
    return (static_cast<size_t>(rows * (2 + value_dim)) + kLine - 1) / kLine * kLine;
  }
  static SoftmaxState At(float* memory, int64_t rows, int64_t value_dim) {
    float* const max = memory + rows * value_dim;
    return {max, max + rows, memory};
  }
  void Reset(int64_t rows, int64_t value_dim) const {
    std::fill_n(max, rows, -std::numeric_limits<float>::infinity());
    std::fill_n(sum, rows, 0.0f);
    std::fill_n(accumulator, rows * value_dim, 0.0f);
  }
};

// total = total + partial, as if the partial's rows had come after the total's. The order of
// merges is the order of partitions, so it is a function of the sequence alone.
void MergeSoftmax(const KernelTable& kernels, const SoftmaxState& total,
                  const SoftmaxState& partial, int64_t rows, int64_t value_dim);

// Query `row` also sees a score of `sink`, whose value is 0.
void AddSink(const KernelTable& kernels, const SoftmaxState& total, int64_t row, int64_t value_dim,
             float sink);

// The sum of a tile's partitions. Those whose values are stored rotated are summed apart, rotated
// back once per row and merged last, whatever their place among the others.
struct SoftmaxTotals {
  SoftmaxState plain;
  SoftmaxState rotated;
  int64_t rows;
  int64_t value_dim;
  bool rotates;

  static size_t Floats(int64_t rows, const KvLayout& layout) {
    return SoftmaxState::Floats(rows, layout.value_dim) * (layout.value_codec.rotates() ? 2 : 1);
  }
  static SoftmaxTotals At(float* memory, int64_t rows, const KvLayout& layout) {
    SoftmaxTotals totals = {
        SoftmaxState::At(memory, rows, layout.value_dim), {}, rows, layout.value_dim, false};
    totals.rotates = layout.value_codec.rotates();
    totals.plain.Reset(rows, layout.value_dim);
    if (totals.rotates) {
      totals.rotated = SoftmaxState::At(memory + SoftmaxState::Floats(rows, layout.value_dim), rows,
                                        layout.value_dim);
      totals.rotated.Reset(rows, layout.value_dim);
    }
    return totals;
  }
  void Add(const KernelTable& kernels, const KvBlockLayout& layout,
           const SoftmaxState& partial) const {
    MergeSoftmax(kernels, layout.value_codec.rotates() ? rotated : plain, partial, rows, value_dim);
  }
  // REQUIRES: called once, after the last Add.
  const SoftmaxState& Finish(const KernelTable& kernels) const {
    if (rotates) {
      kernels.rotate_back(rotated.accumulator, value_dim, rows, value_dim);
      MergeSoftmax(kernels, plain, rotated, rows, value_dim);
    }
    return plain;
  }
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_SOFTMAX_STATE_H_
