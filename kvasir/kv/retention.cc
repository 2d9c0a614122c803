#include "kvasir/kv/retention.h"

#include "kvasir/kv/retention_kinds.h"

namespace kvasir {
namespace {

struct RetentionKind {
  RetentionSpec::Kind kind;
  std::unique_ptr<const Retention> (*make)(const RetentionSpec& spec);
};

constexpr RetentionKind kRetentionKinds[] = {
    {RetentionSpec::Kind::kAll, MakeAllRetention},
    {RetentionSpec::Kind::kWindow, MakeWindowRetention},
    {RetentionSpec::Kind::kChunk, MakeChunkRetention},
    // Among the rows that are stored a budget hides none: what it evicts is no row any more.
    {RetentionSpec::Kind::kBudget, MakeAllRetention},
};

}  // namespace

Result<std::unique_ptr<const Retention>> Retention::Make(const RetentionSpec& spec) {
  KVASIR_TRY_OK(spec.Validate());
  for (const RetentionKind& kind : kRetentionKinds) {
    if (kind.kind == spec.kind) return kind.make(spec);
  }
  return {ErrorCode::kUnsupported, "retention '" + spec.name() + "' is not in this build"};
}

}  // namespace kvasir
