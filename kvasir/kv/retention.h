// The rules of a retention: row numbers in, row numbers out (a row's number is its position, unless
// a budget evicted some). It never touches a byte of K or V, so any retention works with any codec.
// Deliberately stateless: the answer for a position is the same whatever happened before, so
// results cannot depend on prefill chunks, batch mates or a restore.
#ifndef KVASIR_KV_RETENTION_H_
#define KVASIR_KV_RETENTION_H_

#include <memory>

#include "kvasir/kv/retention_spec.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

class Retention {
 public:
  // The rules of `spec`.
  // ERRORS: kInvalidArgument, from RetentionSpec::Validate.
  static Result<std::unique_ptr<const Retention>> Make(const RetentionSpec& spec);

  virtual ~Retention() = default;

  // Rows that the query whose own row is `query` attends to, its own included.
  // REQUIRES: query >= 0.
  virtual VisibleRows Visible(int64_t query) const = 0;

  // The lowest row, the head rows aside, that a query at row `next` or later can see: others below
  // are never read again. Does not decrease as `next` grows. REQUIRES: next >= 0.
  virtual int64_t FirstNeeded(int64_t next) const = 0;

  // The lowest row, the head rows aside, that is kept once the rows [run_begin, run_end) were
  // appended at one go: at most FirstNeeded(run_end). REQUIRES: 0 <= run_begin <= run_end.
  virtual int64_t FirstKept(int64_t /*run_begin*/, int64_t run_end) const {
    return FirstNeeded(run_end);
  }

  // The lowest row whose continuation needs no row below `first_held`, the head rows aside, that is
  // the lowest n with FirstNeeded(n) >= first_held: how far a layer that holds [first_held, ...)
  // can go back. REQUIRES: first_held >= 0.
  virtual int64_t EarliestState(int64_t first_held) const = 0;

  // The rows [0, head_rows()) stay in view of every later query.
  virtual int64_t head_rows() const { return 0; }
};

}  // namespace kvasir

#endif  // KVASIR_KV_RETENTION_H_
