// kvasir_kv.h: sequences.
// Deliberately not what they hold: rows and states are in c_api_rows.cc.
#include <algorithm>
#include <functional>
#include <span>
#include <unordered_set>
#include <utility>
#include <vector>

#include "kvasir/kv/c_api_handles.h"

using namespace kvasir;  // NOLINT: the functions below are C and cannot be in a namespace

namespace {

// Whether its recurrent states may be half written.
bool StatesAreOpen(const KvSequence& sequence) {
  const auto& layers = sequence.spec().layers;
  return sequence.reserved_end() > sequence.position() &&
         std::any_of(layers.begin(), layers.end(),
                     [](const KvLayerSpec& layer) { return layer.is_recurrent(); });
}

// A handle for a new sequence of the same pool.
kvasir_kv_sequence* NewHandle(kvasir_kv_pool* pool, KvSequence sequence) {
  return new kvasir_kv_sequence(pool, std::move(sequence));
}

}  // namespace

kvasir_kv_code kvasir_kv_sequence_create(kvasir_kv_pool* pool, const kvasir_kv_spec* spec,
                                         kvasir_kv_sequence** sequence, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(pool, "pool"));
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY(KvSequence created,
               KvSequence::Create(&pool->pool, std::make_shared<const KvCacheSpec>(spec->spec)));
    *sequence = NewHandle(pool, std::move(created));
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_destroy(kvasir_kv_sequence* sequence, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    if (sequence == nullptr) return {};
    if (sequence->batch != nullptr) {
      return {ErrorCode::kFailedPrecondition, "sequence: a batch owns it; extract it first"};
    }
    if (sequence->speculation != nullptr) {
      return {ErrorCode::kFailedPrecondition,
              "sequence: it is in an open speculation; commit or roll back first"};
    }
    delete sequence;
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_fork(const kvasir_kv_sequence* sequence,
                                       kvasir_kv_sequence** fork, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(fork, "fork"));
    if (StatesAreOpen(*sequence->at)) {
      return {ErrorCode::kFailedPrecondition,
              "sequence: tokens are reserved, so recurrent states may be half written; advance, or "
              "trim to a checkpoint that was taken before"};
    }
    *fork = NewHandle(sequence->pool, sequence->at->Fork());
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_reserve(kvasir_kv_sequence* sequence, int64_t tokens,
                                          kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    return sequence->at->Reserve(tokens);
  });
}

kvasir_kv_code kvasir_kv_reserve_all(kvasir_kv_sequence* const* sequences, const int64_t* tokens,
                                     size_t count, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    if (count == 0) return {};
    KVASIR_TRY_OK(NotNull(sequences, "sequences"));
    KVASIR_TRY_OK(NotNull(tokens, "tokens"));
    std::vector<KvSequence*> all;
    std::unordered_set<const KvSequence*> seen;
    for (kvasir_kv_sequence* sequence : std::span(sequences, count)) {
      KVASIR_TRY_OK(NotNull(sequence, "a sequence"));
      if (sequence->pool != sequences[0]->pool) {
        return InvalidArgument("the sequences are of different pools; reserve for each pool");
      }
      if (!seen.insert(sequence->at).second) {
        return InvalidArgument("a sequence is named twice; name it once");
      }
      all.push_back(sequence->at);
    }
    return KvSequence::ReserveAll(all, {tokens, count});
  });
}

void kvasir_kv_sequence_unreserve(kvasir_kv_sequence* sequence) {
  if (sequence != nullptr) sequence->at->Unreserve();
}

kvasir_kv_code kvasir_kv_sequence_advance(kvasir_kv_sequence* sequence, int64_t tokens,
                                          kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    const int64_t reserved = sequence->at->reserved_end() - sequence->at->position();
    if (tokens < 0 || tokens > reserved) {
      return InvalidArgument("sequence: it cannot advance by " + std::to_string(tokens) +
                             " tokens, " + std::to_string(reserved) + " are reserved");
    }
    sequence->at->Advance(tokens);
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_trim(kvasir_kv_sequence* sequence, int64_t tokens,
                                       int64_t* trimmed, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY(const int64_t removed, sequence->at->Trim(tokens));
    if (trimmed != nullptr) *trimmed = removed;
    return {};
  });
}

int64_t kvasir_kv_sequence_max_trim(const kvasir_kv_sequence* sequence) {
  return ValueOr<int64_t>(-1, sequence, [](const auto& handle) { return handle.at->MaxTrim(); });
}

int64_t kvasir_kv_sequence_position(const kvasir_kv_sequence* sequence) {
  return sequence != nullptr ? sequence->at->position() : -1;
}

int64_t kvasir_kv_sequence_reserved_end(const kvasir_kv_sequence* sequence) {
  return sequence != nullptr ? sequence->at->reserved_end() : -1;
}

int64_t kvasir_kv_sequence_run_limit(const kvasir_kv_sequence* sequence) {
  return ValueOr<int64_t>(-1, sequence, [](const auto& handle) { return handle.at->RunLimit(); });
}

size_t kvasir_kv_sequence_nbytes(const kvasir_kv_sequence* sequence) {
  return ValueOr<size_t>(0, sequence, [](const auto& handle) { return handle.at->nbytes(); });
}

size_t kvasir_kv_sequence_nbytes_exclusive(const kvasir_kv_sequence* sequence) {
  return ValueOr<size_t>(0, sequence,
                         [](const auto& handle) { return handle.at->nbytes_exclusive(); });
}

kvasir_kv_code kvasir_kv_sequence_compact(kvasir_kv_sequence* sequence, int64_t slack_rows,
                                          int32_t* compacted, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY(const bool any, sequence->at->Compact(slack_rows));
    if (compacted != nullptr) *compacted = any ? 1 : 0;
    return {};
  });
}

int32_t kvasir_kv_sequence_evicted(const kvasir_kv_sequence* sequence) {
  return ValueOr<int32_t>(-1, sequence, [](const auto& handle) { return handle.at->evicted(); });
}

kvasir_kv_code kvasir_kv_sequence_keep_states_at(kvasir_kv_sequence* sequence,
                                                 const int64_t* positions, size_t count,
                                                 kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    if (count > 0) KVASIR_TRY_OK(NotNull(positions, "positions"));
    std::vector<Position> kept(positions, positions + count);
    if (std::ranges::adjacent_find(kept, std::ranges::greater_equal()) != kept.end()) {
      return {ErrorCode::kInvalidArgument, "positions: they must be strictly ascending"};
    }
    if (sequence->at->reserved_end() > sequence->at->position()) {
      return {ErrorCode::kFailedPrecondition,
              "sequence: tokens are reserved, so memory for states is taken; advance, or give them "
              "back, before asking for others"};
    }
    sequence->at->KeepStatesAt(std::move(kept));
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_checkpoint(kvasir_kv_sequence* sequence, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    return sequence->at->Checkpoint();
  });
}

void kvasir_kv_sequence_drop_checkpoints(kvasir_kv_sequence* sequence, int64_t position) {
  if (sequence != nullptr) sequence->at->DropCheckpoints(position);
}
