#include "kvasir/cli/bandwidth.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>

#include "kvasir/base/thread_pool.h"
#include "kvasir/tensor/aligned_buffer.h"

namespace kvasir {
namespace {

constexpr size_t kBufferBytes = size_t{512} << 20;  // 16 times a large last-level cache
constexpr int kPasses = 5;

// Eight independent chains, so that loads and not additions are what takes time.
uint64_t ReadAll(const uint64_t* words, size_t count) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i + 8 <= count; i += 8) {
    for (size_t j = 0; j < 8; ++j) sums[j] += words[i + j];
  }
  uint64_t sum = 0;
  for (const uint64_t part : sums) sum += part;
  return sum;
}

}  // namespace

double MeasureReadBandwidth(int threads) {
  auto buffer = AlignedBuffer::Allocate(kBufferBytes);
  if (!buffer.ok()) return 0;
  uint64_t* const words = buffer->as<uint64_t>();
  const size_t count = kBufferBytes / sizeof(uint64_t);
  ThreadPool pool(threads);
  pool.For(count, [&](size_t begin, size_t end) { std::fill(words + begin, words + end, begin); });
  std::atomic<uint64_t> sink{0};
  double best = 0;
  for (int pass = 0; pass < kPasses; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.For(count, [&](size_t begin, size_t end) { sink += ReadAll(words + begin, end - begin); });
    const double seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    best = std::max(best, static_cast<double>(kBufferBytes) / seconds);
  }
  return best;
}

}  // namespace kvasir
