// LatencyHistogram: how often something took how long, in fixed buckets.
// Deliberately without a lock and without names: whoever owns it counts, Metrics writes it down.
#ifndef KVASIR_SERVER_LATENCY_HISTOGRAM_H_
#define KVASIR_SERVER_LATENCY_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace kvasir {

class LatencyHistogram {
 public:
  // Upper ends in seconds: from one token of a small model to a very long prompt.
  static constexpr std::array<double, 15> kBuckets = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0};

  void Add(double seconds) {
    const auto bucket = std::lower_bound(kBuckets.begin(), kBuckets.end(), seconds);
    ++counts_[static_cast<size_t>(bucket - kBuckets.begin())];
    seconds_ += seconds;
  }
  void Merge(const LatencyHistogram& other) {
    for (size_t i = 0; i < counts_.size(); ++i) counts_[i] += other.counts_[i];
    seconds_ += other.seconds_;
  }

  // How many took at most kBuckets[bucket]; `bucket` one behind the last: all.
  int64_t CountUpTo(size_t bucket) const {
    int64_t count = 0;
    for (size_t i = 0; i <= bucket; ++i) count += counts_[i];
    return count;
  }
  int64_t count() const { return CountUpTo(kBuckets.size()); }
  double seconds() const { return seconds_; }

 private:
  std::array<int64_t, kBuckets.size() + 1> counts_{};  // not cumulative
  double seconds_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_LATENCY_HISTOGRAM_H_
