// TraceSequences: the sequences of a trace by name, in batches as its operations arrange them.
// Deliberately without rows: those are written and compared elsewhere.
#ifndef KVASIR_CLI_TRACE_SEQUENCES_H_
#define KVASIR_CLI_TRACE_SEQUENCES_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_spec.h"

namespace kvasir {

// ERRORS of all: kCorrupt for a name that no sequence has; as the operations of KvBatch.
class TraceSequences {
 public:
  // The pool must outlive it.
  explicit TraceSequences(KvPool* pool) : pool_(pool) {}

  SequenceId IdOf(const std::string& name);
  Result<KvBatch*> BatchOf(const std::string& name);
  Result<KvSequence*> Find(const std::string& name);

  // Empty ones, together.
  Status AddBatch(const std::vector<std::string>& names,
                  const std::shared_ptr<const KvCacheSpec>& spec);
  Status AddAlone(const std::string& name, KvSequence sequence);
  // Drops all but `keep` of the batch that has `any`.
  Status Filter(const std::string& any, const std::vector<std::string>& keep);
  // Adds the batch of `added` to the batch of `into`.
  Status Extend(const std::string& into, const std::string& added);
  // Brings the sequences into one batch, in this order.
  Status Merge(const std::vector<std::string>& names);

 private:
  void DropEmptyBatches();

  KvPool* pool_;
  std::vector<KvBatch> batches_;
  std::map<std::string, SequenceId> ids_;
};

}  // namespace kvasir

#endif  // KVASIR_CLI_TRACE_SEQUENCES_H_
