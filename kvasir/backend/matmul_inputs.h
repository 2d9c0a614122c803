// MatmulInputs: a step's activations in the forms that quantized weights are multiplied with, made
// once for all matmuls that read them.
// Deliberately twice where they are few: who makes them writes to memory of its own, which is in
// its cache, and copies for the others past the caches, which it need not wait for.
#ifndef KVASIR_BACKEND_MATMUL_INPUTS_H_
#define KVASIR_BACKEND_MATMUL_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

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

  // Upper bound of bytes() for matmuls of so many rows at most, in every form.
  static size_t Bound(int64_t rows, int64_t inputs, int threads);
  size_t bytes() const;

 private:
  // Where rows of a form lie, one after the other.
  struct Place {
    size_t begin = 0;
    int64_t row_bytes = 0;  // 0 where the form is not made
  };
  enum Form { kRounded, kCodes, kScales, kSums, kHalfSums, kForms };
  struct Places {
    Place of[kForms];
    size_t end = 0;
  };
  Places Lay(int64_t rows) const;

  template <typename T>
  static T* At(std::conditional_t<std::is_const_v<T>, const std::byte, std::byte>* base,
               const Place& place, int64_t row) {
    return reinterpret_cast<T*>(base + place.begin + row * place.row_bytes);
  }

  // Row `row` of those that lie at `base` as `places` says.
  void MakeRow(const float* x, const Places& places, int64_t row, std::byte* base) const;
  void MakeAlone(ConstFloatRows x);
  void MakeTogether(ConstFloatRows x);
  // As MakeTogether, but each thread makes rows in memory of its own and streams them to `copy_`.
  // REQUIRES: rows are whole cache lines.
  void StreamTogether(ConstFloatRows x);

  const KernelTable& kernels_;
  ThreadPool& pool_;
  InputForms forms_;
  int64_t inputs_ = 0;
  Places places_;
  // These only ever grow.
  AlignedVector<std::byte> own_;                   // the caller's, or everybody's
  AlignedVector<std::byte> copy_;                  // the helpers', or everybody's
  std::vector<AlignedVector<std::byte>> rows_of_;  // a row that each thread makes
  const std::byte* callers_ = nullptr;
  const std::byte* helpers_ = nullptr;
};

}  // namespace kvasir

#endif  // KVASIR_BACKEND_MATMUL_INPUTS_H_
