// RequestRecord: what a log line and the metrics say of one request.
// Deliberately without what was said: prompts and answers are never logged.
#ifndef KVASIR_SERVER_REQUEST_RECORD_H_
#define KVASIR_SERVER_REQUEST_RECORD_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "kvasir/base/json.h"
#include "kvasir/server/latency_histogram.h"

namespace kvasir {

struct RequestRecord {
  std::string path;
  int status = 200;
  std::string finish;  // finish reason of the first choice; "the client is gone"
  std::string error;   // its message, or empty
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;  // of the prompt
  int64_t known_tokens = 0;   // where it parted from all that was cached; at least cached_tokens
  int64_t generated_tokens = 0;
  std::optional<double> first_token_ms;  // from the arrival of the request
  double decode_tokens_per_second = 0;
  double total_ms = 0;
  LatencyHistogram token_gaps;  // between tokens of one choice
};

// What the log says of a request beside its record, as it begins and ends.
enum class RequestLogDetail {
  kNone,
  kParameters,
  kTokens,  // the ids of prompt and answer too: whoever reads the log reads what was said
};

// Called once per request that reached the service. THREADS: any.
using RequestObserver = std::function<void(const RequestRecord&)>;

// "/v1/completions 200: 54 prompt tokens (30 cached, 24 new), 8 generated, ..."
std::string RecordLine(const RequestRecord& record);
Json RecordJson(const RequestRecord& record);

}  // namespace kvasir

#endif  // KVASIR_SERVER_REQUEST_RECORD_H_
