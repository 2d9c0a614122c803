// The rules of a retention: integers in, integers out. It never touches a byte of K or V, so any
// retention works with any codec.
// Deliberately stateless: the answer for a position is the same whatever happened before, so
// results cannot depend on prefill chunks, batch mates or a restore.
#ifndef KVASIR_KV_RETENTION_H_
#define KVASIR_KV_RETENTION_H_

#include <memory>

#include "kvasir/base/token.h"
#include "kvasir/kv/retention_spec.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

class Retention {
 public:
  // The rules of `spec`.
  // ERRORS: kInvalidArgument, from RetentionSpec::Validate.
  static Result<std::unique_ptr<const Retention>> Make(const RetentionSpec& spec);

  virtual ~Retention() = default;

  // Rows that a query at position `query` attends to, its own included.
  // REQUIRES: query >= 0.
  virtual VisibleRows Visible(Position query) const = 0;

  // The lowest row that a query at `next` or later can see: rows below are never read again.
  // Does not decrease as `next` grows. REQUIRES: next >= 0.
  virtual Position FirstNeeded(Position next) const = 0;

  // The lowest position whose continuation needs no row below `first_held`, that is the lowest p
  // with FirstNeeded(p) >= first_held: how far a layer that holds [first_held, ...) can go back.
  // REQUIRES: first_held >= 0.
  virtual Position EarliestState(Position first_held) const = 0;
};

}  // namespace kvasir

#endif  // KVASIR_KV_RETENTION_H_
