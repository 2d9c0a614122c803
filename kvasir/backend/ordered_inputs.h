// OrderedInputs: rows of activations for matrices whose inputs are in another order than theirs
// (GPTQ in the order of activations), gathered once for all matmuls of a step that want the same.
// Deliberately nothing where no matrix wants it: x stays what it is.
#ifndef KVASIR_BACKEND_ORDERED_INPUTS_H_
#define KVASIR_BACKEND_ORDERED_INPUTS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/thread_pool.h"
#include "kvasir/tensor/float_rows.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// Rows [row_begin, row_begin + rows) of x, in an order; null: as they are.
struct OrderedPart {
  const std::vector<int32_t>* order = nullptr;
  int64_t row_begin = 0;
  int64_t rows = 0;
};

class OrderedInputs {
 public:
  explicit OrderedInputs(ThreadPool& pool) : pool_(pool) {}

  // The rows of all parts one after the other, equal ones once, and where each of them begins now:
  // row_begin of the parts is set. Valid until the next call. THREADS: the pool's caller only.
  ConstFloatRows Gather(ConstFloatRows x, std::span<OrderedPart> parts);

  size_t bytes() const { return gathered_.capacity() * sizeof(float); }

 private:
  struct Source {
    const std::vector<int32_t>* order;
    int64_t row;
  };

  ThreadPool& pool_;
  std::vector<float> gathered_;  // only ever grows
  std::vector<Source> sources_;  // of each row there
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_ORDERED_INPUTS_H_
