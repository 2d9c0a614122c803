// Measures how fast this machine reads memory now: the limit that decoding is compared with.
// Deliberately a pass at a time, so that it can be measured between the steps of what is compared:
// on shared machines it halves and doubles within seconds.
#ifndef KVASIR_CLI_BANDWIDTH_H_
#define KVASIR_CLI_BANDWIDTH_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "kvasir/base/thread_pool.h"
#include "kvasir/tensor/aligned_buffer.h"

namespace kvasir {

class BandwidthMeter {
 public:
  // Takes a buffer far larger than the caches. Where there is no memory for it bytes() is 0 and
  // nothing is measured.
  explicit BandwidthMeter(int threads);

  // Each thread reads its part of the next half of the buffer.
  void Pass();
  // Bytes per second of all passes since the last Reset together, 0 if there were none.
  double bytes_per_second() const { return seconds_ == 0 ? 0 : bytes_read_ / seconds_; }
  void Reset() { bytes_read_ = seconds_ = 0; }
  // Of the buffer, resident from the start.
  size_t bytes() const { return buffer_.size_bytes(); }

 private:
  ThreadPool pool_;
  AlignedBuffer buffer_;
  size_t next_word_ = 0;
  double bytes_read_ = 0;
  double seconds_ = 0;
  std::atomic<uint64_t> sink_{0};  // so that reading cannot be left out
};

}  // namespace kvasir

#endif  // KVASIR_CLI_BANDWIDTH_H_
