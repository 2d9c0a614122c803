#include "kvasir/cli/bandwidth.h"

#include <algorithm>
#include <chrono>

#include "kvasir/base/aligned_vector.h"
#include "kvasir/kernels/prefetching.h"

namespace kvasir {
namespace {

constexpr size_t kBufferBytes = size_t{512} << 20;  // a pass is 8 times a large last-level cache
constexpr size_t kPassBytes = kBufferBytes / 2;

constexpr size_t kLineWords = kCacheLineBytes / sizeof(uint64_t);

// Eight independent chains, so that loads and not additions are what takes time. `kStreams` parts
// are read at once, `fetch(line)` before each line.
template <size_t kStreams, typename Fetch>
uint64_t ReadAll(const uint64_t* words, size_t count, const Fetch& fetch) {
  uint64_t sums[kLineWords] = {};
  const size_t part = count / kStreams;
  for (size_t i = 0; i + kLineWords <= part; i += kLineWords) {
    for (size_t stream = 0; stream < kStreams; ++stream) {
      const uint64_t* const line = words + stream * part + i;
      fetch(line);
      for (size_t j = 0; j < kLineWords; ++j) sums[j] += line[j];
    }
  }
  uint64_t sum = 0;
  for (const uint64_t part_sum : sums) sum += part_sum;
  return sum;
}

// As kernels read weights on this CPU: one stream, or as many as there are panels in a tile with
// hints as far ahead. Hints beyond the end are harmless.
uint64_t ReadFastest(const uint64_t* words, size_t count) {
  constexpr size_t kAheadWords = 4096 / sizeof(uint64_t);
  const Prefetching prefetching = PreferredPrefetching();
  if (prefetching.streams_weights) return ReadAll<1>(words, count, [](const uint64_t*) {});
  if (prefetching.weights == CacheLevel::kFirst) {
    return ReadAll<4>(words, count, [](const uint64_t* line) {
      FetchLine(line + kAheadWords, CacheLevel::kFirst);
    });
  }
  return ReadAll<4>(words, count, [](const uint64_t* line) {
    FetchLine(line + kAheadWords, CacheLevel::kSecond);
  });
}

}  // namespace

BandwidthMeter::BandwidthMeter(int threads) : pool_(threads) {
  auto buffer = AlignedBuffer::AllocateHuge(kBufferBytes);
  if (!buffer.ok()) return;
  buffer_ = *std::move(buffer);
  uint64_t* const words = buffer_.as<uint64_t>();
  pool_.For(kBufferBytes / sizeof(uint64_t),
            [&](size_t begin, size_t end) { std::fill(words + begin, words + end, begin); });
}

void BandwidthMeter::Pass() {
  if (bytes() == 0) return;
  constexpr size_t kPassWords = kPassBytes / sizeof(uint64_t);
  const uint64_t* const words = buffer_.as<uint64_t>() + next_word_;
  next_word_ = (next_word_ + kPassWords) % (kBufferBytes / sizeof(uint64_t));
  const auto start = std::chrono::steady_clock::now();
  pool_.For(kPassWords, [&](size_t begin, size_t end) {
    sink_.fetch_add(ReadFastest(words + begin, end - begin), std::memory_order_relaxed);
  });
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  bytes_read_ += static_cast<double>(kPassBytes);
}

}  // namespace kvasir
