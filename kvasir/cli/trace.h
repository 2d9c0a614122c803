// Replays a storage-agnostic cache trace (kvasir-trace/1, testdata/traces/README.md) against our
// caches and compares everything it expects: rows to the bit, attention within its tolerance.
// Deliberately strict: whatever a trace contains that we cannot do yet is said by name.
#ifndef KVASIR_CLI_TRACE_H_
#define KVASIR_CLI_TRACE_H_

#include <string>

#include "kvasir/backend/backend.h"
#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

struct TraceResult {
  enum class Outcome {
    kHolds,
    kFails,   // message says which operation, sequence and number
    kNotYet,  // message names the codec, retention or operation that does not exist yet
  };
  Outcome outcome = Outcome::kHolds;
  std::string message;
  int64_t operations = 0;  // operations that were run and compared
};

// ERRORS: kCorrupt for a trace that is malformed. Files of save_load go to `scratch_folder`.
Result<TraceResult> ReplayTrace(const Json& trace, Backend& backend,
                                const std::string& scratch_folder);

}  // namespace kvasir

#endif  // KVASIR_CLI_TRACE_H_
