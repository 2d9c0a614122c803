// Metrics: the server's counters in Prometheus' text format.
// Deliberately counts what has ended; what is going on is asked of the service when they are read.
#ifndef KVASIR_SERVER_METRICS_H_
#define KVASIR_SERVER_METRICS_H_

#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/engine/engine_picture.h"
#include "kvasir/server/completion_service.h"
#include "kvasir/server/latency_histogram.h"
#include "kvasir/server/request_record.h"

namespace kvasir {

// THREADS: any number at once.
class Metrics {
 public:
  void Add(const RequestRecord& record);
  // An HTTP response has begun. `route`: a path of the table of routes, "other" for a path that is
  // not there, "none" for what was no request yet. Refusals count here like answers.
  void AddResponse(std::string_view route, int status);
  // Text format 0.0.4.
  std::string Render(const ServiceStatus& status, const EnginePicture& picture) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, int64_t> requests_;  // by status; 0: the client had gone
  int64_t prompt_tokens_ = 0;
  int64_t cached_tokens_ = 0;
  int64_t generated_tokens_ = 0;
  std::map<std::pair<std::string, int>, int64_t> responses_;  // by route and status
  LatencyHistogram first_tokens_;
  LatencyHistogram token_gaps_;
};

}  // namespace kvasir

#endif  // KVASIR_SERVER_METRICS_H_
