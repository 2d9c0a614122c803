// Fold: one value of many, in an order that vectors of any width can keep.
#ifndef KVASIR_TENSOR_FOLD_H_
#define KVASIR_TENSOR_FOLD_H_

#include <array>
#include <cstddef>

namespace kvasir {

// Combines the first half with the second, element by element, until one is left.
// REQUIRES: count is a power of two.
template <typename T, size_t count, typename Combine>
T Fold(const std::array<T, count>& values, const Combine& combine) {
  static_assert(count > 0 && (count & (count - 1)) == 0);
  if constexpr (count == 1) {
    return values[0];
  } else {
    std::array<T, count / 2> halves;
    for (size_t i = 0; i < count / 2; ++i) halves[i] = combine(values[i], values[i + count / 2]);
    return Fold(halves, combine);
  }
}

template <typename T, size_t count>
T Sum(const std::array<T, count>& values) {
  return Fold(values, [](T a, T b) { return a + b; });
}

}  // namespace kvasir

#endif  // KVASIR_TENSOR_FOLD_H_
