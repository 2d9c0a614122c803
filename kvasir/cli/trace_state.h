// Compares what a sequence holds with what a trace expects, to the bit.
// Deliberately reads only: operations are trace.cc's.
#ifndef KVASIR_CLI_TRACE_STATE_H_
#define KVASIR_CLI_TRACE_STATE_H_

#include <string>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir {

// The first difference between `sequence` and `state` (position, rows, their positions, keys,
// values, packed words, samples and sums), or an empty string. All layers are compared.
// ERRORS: kCorrupt if the trace does not fit itself.
Result<std::string> CompareTraceState(const KvSequence& sequence, const Json& state);

// Rows of `layer` that a query at the next position sees without its own, by ascending position.
std::vector<int64_t> TraceRows(const KvSequence& sequence, int layer);

}  // namespace kvasir

#endif  // KVASIR_CLI_TRACE_STATE_H_
