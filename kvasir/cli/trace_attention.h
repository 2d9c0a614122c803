// TraceAttention: what a trace's queries see, compared with what it expects within a tolerance.
// Deliberately reads only, and knows no operation: trace.cc runs those.
#ifndef KVASIR_CLI_TRACE_ATTENTION_H_
#define KVASIR_CLI_TRACE_ATTENTION_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvasir/backend/backend.h"
#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/cli/trace_spec.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir {

// The queries of new rows that are written and not advanced over yet.
struct TraceQueries {
  const std::string& name;  // of the sequence
  const Json& queries;
  const Json& expect;  // of the operation
  const KvSequence& sequence;
  std::span<const KvRun> runs;  // the new rows, by layer
};

class TraceAttention {
 public:
  // Both must outlive it.
  TraceAttention(Backend& backend, const TraceSpec& spec, double tolerance)
      : backend_(backend), spec_(spec), tolerance_(tolerance) {}

  // The first difference, or an empty string. ERRORS: kCorrupt if the trace does not fit itself.
  Result<std::string> Compare(const TraceQueries& asked) const;

 private:
  // Which of the n queries the expectation holds.
  static Result<std::vector<int64_t>> RowsAt(const Json& entry, const std::string& name, int64_t n);
  std::vector<float> Attend(const KvSequence& sequence, int layer, const KvRun& run,
                            std::span<const float> queries) const;

  const KvLayout& layout() const { return spec_.cache->layers[0].layout; }
  int64_t QueryCols() const { return int64_t{spec_.query_heads} * layout().key_dim; }
  int64_t OutCols() const { return int64_t{spec_.query_heads} * layout().value_dim; }

  Backend& backend_;
  const TraceSpec& spec_;
  const double tolerance_;
};

}  // namespace kvasir

#endif  // KVASIR_CLI_TRACE_ATTENTION_H_
