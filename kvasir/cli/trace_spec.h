// TraceSpec: what a cache trace is about: the "spec" of kvasir-trace/1 (testdata/traces/README.md).
// Deliberately no operation: trace.cc runs those.
#ifndef KVASIR_CLI_TRACE_SPEC_H_
#define KVASIR_CLI_TRACE_SPEC_H_

#include <cstdint>
#include <memory>
#include <string>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/kv/kv_spec.h"

namespace kvasir {

struct TraceSpec {
  std::shared_ptr<const KvCacheSpec> cache;  // all layers alike
  int layers = 1;
  int query_heads = 1;
  float scale = 1;         // of the scores
  int64_t hysteresis = 0;  // of a budget: rows above it before any is evicted
  // Names a codec, retention or score that does not exist here; then the rest means nothing.
  std::string not_yet;

  // ERRORS: kCorrupt.
  static Result<TraceSpec> Read(const Json& spec);
};

}  // namespace kvasir

#endif  // KVASIR_CLI_TRACE_SPEC_H_
