// Metrics: the server's counters in Prometheus' text format.
// Deliberately counts what has ended; what is going on is asked of the service when they are read.
#ifndef KVASIR_SERVER_METRICS_H_
#define KVASIR_SERVER_METRICS_H_

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "kvasir/server/completion_service.h"
#include "kvasir/server/request_record.h"

namespace kvasir {

// THREADS: any number at once.
class Metrics {
 public:
  void Add(const RequestRecord& record);
  // Text format 0.0.4.
  std::string Render(const ServiceStatus& status) const;

 private:
  // Seconds; from what a cached prompt takes to what a very long one does.
  static constexpr std::array<double, 12> kBuckets = {0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                                      1.0,  2.5,   5.0,  10., 30.,  60.};

  mutable std::mutex mutex_;
  std::map<int, int64_t> requests_;  // by status; 0: the client had gone
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  std::array<int64_t, kBuckets.size()> first_token_counts_{};  // not cumulative
  int64_t first_token_count_ = 0;
  double first_token_seconds_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_METRICS_H_
