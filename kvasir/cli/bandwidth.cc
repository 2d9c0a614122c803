#include "kvasir/cli/bandwidth.h"

#include <algorithm>
#include <chrono>

namespace kvasir {
namespace {

constexpr size_t kBufferBytes = size_t{512} << 20;  // a pass is 8 times a large last-level cache
constexpr size_t kPassBytes = kBufferBytes / 2;

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
    sink_.fetch_add(ReadAll(words + begin, end - begin), std::memory_order_relaxed);
  });
  seconds_ += std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  bytes_read_ += static_cast<double>(kPassBytes);
}

}  // namespace kvasir
