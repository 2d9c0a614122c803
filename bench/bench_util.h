// What the programs here need time and again: the value of a Result, medians. Deliberately without
// a library: it is included by programs that link little else.
#ifndef KVASIR_BENCH_BENCH_UTIL_H_
#define KVASIR_BENCH_BENCH_UTIL_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"

namespace kvasir {

// Prints what is wrong and ends the program.
template <typename T>
T Must(Result<T> result) {
  if (!result.ok()) {
    std::fprintf(stderr, "%s\n", result.error().message.c_str());
    std::exit(1);
  }
  return std::move(result).value();
}

// Of an even number the upper one; 0 of none.
inline double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

// Of `work(i)`, each after a `prepare(i)` that is not timed.
template <typename Prepare, typename Work>
double MedianMicroseconds(int repeats, Prepare prepare, Work work) {
  std::vector<double> times;
  for (int i = 0; i < repeats; ++i) {
    prepare(i);
    const auto start = std::chrono::steady_clock::now();
    work(i);
    const std::chrono::duration<double, std::micro> time = std::chrono::steady_clock::now() - start;
    times.push_back(time.count());
  }
  return Median(std::move(times));
}

}  // namespace kvasir

#endif  // KVASIR_BENCH_BENCH_UTIL_H_
