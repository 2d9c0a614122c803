// MatmulInputs: a step's activations in the forms that quantized weights are multiplied with, made
// once for all matmuls that read them.
// Deliberately twice where one thread made them: its own are in its cache, and the copy for the
// others is one that it need not wait for.
#ifndef KVASIR_BACKEND_MATMUL_INPUTS_H_
#define KVASIR_BACKEND_MATMUL_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kvasir/base/aligned_vector.h"
#include "kvasir/base/thread_pool.h"
#include "kvasir/kernels/kernels.h"
#include "kvasir/tensor/float_rows.h"
#include "kvasir/tensor/weight_format.h"

namespace kvasir {

// What some formats of weights want beside x itself.
struct InputForms {
  bool rounded = false;    // round_rows
  bool codes = false;      // quantize_rows
  bool half_sums = false;  // the sum of the first half of each group's codes

  void Add(WeightFormat format);
};

class MatmulInputs {
 public:
  MatmulInputs(const KernelTable& kernels, ThreadPool& pool) : kernels_(kernels), pool_(pool) {}

  // THREADS: the pool's caller only.
  void Make(ConstFloatRows x, const InputForms& forms);

  // Sets what `thread` of the pool reads in a matmul of x from row `row` on; null where a form was
  // not made.
  void Give(int thread, int64_t row, MatmulArgs* args) const;

  size_t bytes() const { return own_.capacity() + copy_.capacity(); }

 private:
  // Where each form begins, and the end of all.
  struct Places {
    size_t rounded = 0, codes = 0, scales = 0, sums = 0, half_sums = 0, end = 0;
  };
  Places Lay() const;
  void MakeRow(const float* x, int64_t row);

  // The numbers of a form of which each row has `row_numbers`, from row `row` on.
  template <typename T>
  static T* At(std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>* base,
               size_t place, int64_t row, int64_t row_numbers) {
    return reinterpret_cast<T*>(base + place) + row * row_numbers;
  }

  const KernelTable& kernels_;
  ThreadPool& pool_;
  InputForms forms_;
  int64_t rows_ = 0;
  int64_t inputs_ = 0;
  int64_t groups_ = 0;
  Places places_;
  AlignedVector<std::byte> own_;   // only ever grow
  AlignedVector<std::byte> copy_;  // for the helpers
  bool is_copied_ = false;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_MATMUL_INPUTS_H_
