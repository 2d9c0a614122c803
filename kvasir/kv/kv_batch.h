// An ordered set of sequences under the caller's ids.
// Deliberately not a tensor: no padding, no common length, no copies. Every operation moves
// handles.
#ifndef KVASIR_KV_KV_BATCH_H_
#define KVASIR_KV_KV_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_sequence.h"

namespace kvasir {

// Chosen by the caller, unique within a batch.
using SequenceId = uint64_t;

// What TrimEach did to one sequence.
struct TrimReport {
  SequenceId id = 0;
  int64_t trimmed = 0;  // tokens removed
  Status status;        // an error if the sequence refused (nothing was removed from it)
};

// Sequences of one spec and pool. Every operation that can fail checks first and changes nothing
// when it fails. Addresses of sequences stay valid until they leave the batch.
class KvBatch {
 public:
  KvBatch() = default;
  KvBatch(KvBatch&&) noexcept = default;
  KvBatch& operator=(KvBatch&&) noexcept = default;

  size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  // In order of the batch.
  std::vector<SequenceId> ids() const;
  std::vector<KvSequence*> sequences() const;
  // Null if there is none.
  KvSequence* Find(SequenceId id) const;

  // Appends. `sequence` is moved from only on success.
  // ERRORS: kInvalidArgument if the id exists, or spec or pool differ from the batch's.
  Status Add(SequenceId id, KvSequence&& sequence);
  // Keeps exactly `keep`, in that order; the others end and give their blocks back.
  // ERRORS: kInvalidArgument for an unknown or repeated id.
  Status Filter(std::span<const SequenceId> keep);
  // Appends all sequences of `other`, which is empty afterwards (and as before on an error).
  // ERRORS: as Add, for any of them.
  Status Extend(KvBatch&& other);
  // Takes a sequence out. (Leave it in and take its Fork() for a copy.)
  // ERRORS: kNotFound.
  Result<KvSequence> Extract(SequenceId id);
  // One batch of all sequences of all parts, in order. The parts are moved from only on success.
  // ERRORS: as Add, for any of them.
  static Result<KvBatch> Merge(std::span<KvBatch> parts);

  // KvSequence::ReserveAll of tokens[i] for the i-th sequence: all or none.
  // ERRORS: as there; kInvalidArgument unless there is a count for every sequence.
  Status ReserveEach(std::span<const int64_t> tokens);
  // Trims the i-th sequence by counts[i]; one that refuses does not keep others from it.
  // ERRORS: kInvalidArgument unless there is a count >= 0 for every sequence.
  Result<std::vector<TrimReport>> TrimEach(std::span<const int64_t> counts);

  // Bytes of blocks referenced by any sequence; a block shared between them counts once.
  size_t nbytes() const;

 private:
  struct Entry {
    SequenceId id = 0;
    std::unique_ptr<KvSequence> sequence;
  };

  Status CheckAdd(SequenceId id, const KvSequence& sequence) const;

  std::vector<Entry> entries_;
};

}  // namespace kvasir

#endif  // KVASIR_KV_KV_BATCH_H_
