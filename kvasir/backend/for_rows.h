// Operations on rows that do not need each other, on several threads where that pays.
#ifndef KVASIR_BACKEND_FOR_ROWS_H_
#define KVASIR_BACKEND_FOR_ROWS_H_

#include <cstddef>
#include <cstdint>

#include "kvasir/base/thread_pool.h"

namespace kvasir {

// Below this many numbers for each thread an elementwise operation is done as soon alone: threads
// that spin between operations begin within a quarter of a microsecond.
inline constexpr int64_t kForkNumbers = 1 << 11;

inline bool IsWorthForking(const ThreadPool& pool, int64_t rows, int64_t cols) {
  return rows > 1 && rows * cols >= kForkNumbers * pool.threads();
}

// Runs body(row) for every row.
template <typename Body>
void ForRows(ThreadPool& pool, int64_t rows, int64_t cols, const Body& body) {
  const auto range = [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) body(static_cast<int64_t>(i));
  };
  if (IsWorthForking(pool, rows, cols)) {
    pool.For(static_cast<size_t>(rows), range);
  } else {
    range(0, static_cast<size_t>(rows));
  }
}

}  // namespace kvasir

#endif  // KVASIR_BACKEND_FOR_ROWS_H_
