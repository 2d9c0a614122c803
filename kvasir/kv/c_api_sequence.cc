// kvasir_kv.h: sequences and snapshots.
// Deliberately no batches and speculations: those are in c_api_batch.cc.
#include <span>
#include <unordered_set>

#include "kvasir/kv/c_api_handles.h"
#include "kvasir/kv/dlpack_view.h"
#include "kvasir/kv/held_rows.h"

using namespace kvasir;  // NOLINT: the functions below are C and cannot be in a namespace

namespace {

std::string Range(int64_t begin, int64_t end) {
  return std::string("[") + std::to_string(begin) + ", " + std::to_string(end) + ")";
}

// Floats of one row: K and V.
struct RowFloats {
  size_t key;
  size_t value;
};

RowFloats RowFloatsOf(const KvSequence& sequence, int32_t layer) {
  const KvLayout& layout = sequence.spec().layers[static_cast<size_t>(layer)].layout;
  const auto heads = static_cast<size_t>(layout.kv_heads);
  return {heads * static_cast<size_t>(layout.key_dim),
          heads * static_cast<size_t>(layout.value_dim)};
}

Status CheckFloats(const char* what, const float* data, size_t floats, size_t expected) {
  if (data == nullptr && floats != 0) return NotNull(data, what);
  if (floats == expected || (data == nullptr && floats == 0)) return {};
  return InvalidArgument(std::string(what) + " has " + std::to_string(floats) + " floats, " +
                         std::to_string(expected) + " are needed");
}

Result<KvPart> PartOf(kvasir_kv_part part) {
  if (part == KVASIR_KV_KEYS) return KvPart::kKeys;
  if (part == KVASIR_KV_VALUES) return KvPart::kValues;
  return InvalidArgument("part is " + std::to_string(part) + ", it must be keys (0) or values (1)");
}

// A handle for a new sequence of the same pool.
kvasir_kv_sequence* NewHandle(kvasir_kv_pool* pool, KvSequence sequence) {
  return new kvasir_kv_sequence(pool, std::move(sequence));
}

kvasir_kv_snapshot* NewHandle(kvasir_kv_pool* pool, KvSnapshot snapshot) {
  return new kvasir_kv_snapshot{pool->users, pool, std::move(snapshot)};
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
  return sequence != nullptr ? sequence->at->MaxTrim() : -1;
}

int64_t kvasir_kv_sequence_position(const kvasir_kv_sequence* sequence) {
  return sequence != nullptr ? sequence->at->position() : -1;
}

int64_t kvasir_kv_sequence_reserved_end(const kvasir_kv_sequence* sequence) {
  return sequence != nullptr ? sequence->at->reserved_end() : -1;
}

size_t kvasir_kv_sequence_nbytes(const kvasir_kv_sequence* sequence) {
  return sequence != nullptr ? sequence->at->nbytes() : 0;
}

size_t kvasir_kv_sequence_nbytes_exclusive(const kvasir_kv_sequence* sequence) {
  return sequence != nullptr ? sequence->at->nbytes_exclusive() : 0;
}

kvasir_kv_code kvasir_kv_sequence_write_rows(kvasir_kv_sequence* sequence, int32_t layer,
                                             int64_t first_row, const float* keys,
                                             size_t key_floats, const float* values,
                                             size_t value_floats, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KvSequence& at = *sequence->at;
    KVASIR_TRY_OK(CheckLayerHasRows(at.spec(), layer));
    if (!at.spec().layers[static_cast<size_t>(layer)].owns_rows()) {
      return InvalidArgument("layer " + std::to_string(layer) + " shares the rows of layer " +
                             std::to_string(at.spec().layers[layer].shares_layer) +
                             "; write them there");
    }
    const RowFloats row = RowFloatsOf(at, layer);
    const size_t rows = key_floats / row.key;
    KVASIR_TRY_OK(NotNull(keys, "keys"));
    KVASIR_TRY_OK(NotNull(values, "values"));
    KVASIR_TRY_OK(CheckFloats("keys", keys, key_floats, rows * row.key));
    KVASIR_TRY_OK(CheckFloats("values", values, value_floats, rows * row.value));
    const int64_t begin = at.position();
    const int64_t end = at.reserved_end();
    if (first_row < begin || first_row > end || rows > static_cast<size_t>(end - first_row)) {
      return InvalidArgument(std::to_string(rows) + " rows from " + std::to_string(first_row) +
                             " on cannot be written, only those of " + Range(begin, end) +
                             " are reserved");
    }
    at.WriteRows(layer, first_row, {{keys, keys + key_floats}, {values, values + value_floats}});
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_read_rows(const kvasir_kv_sequence* sequence, int32_t layer,
                                            int64_t first_row, int64_t rows, float* keys,
                                            size_t key_floats, float* values, size_t value_floats,
                                            kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    const KvSequence& at = *sequence->at;
    KVASIR_TRY_OK(CheckLayerHasRows(at.spec(), layer));
    KVASIR_TRY_OK(CheckHeld(at, layer, first_row, rows));
    const RowFloats row = RowFloatsOf(at, layer);
    const auto count = static_cast<size_t>(rows);
    KVASIR_TRY_OK(CheckFloats("keys", keys, key_floats, count * row.key));
    KVASIR_TRY_OK(CheckFloats("values", values, value_floats, count * row.value));
    const KvRows read = at.ReadRows(layer, first_row, first_row + rows);
    if (keys != nullptr) std::copy(read.keys.begin(), read.keys.end(), keys);
    if (values != nullptr) std::copy(read.values.begin(), read.values.end(), values);
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_visible(const kvasir_kv_sequence* sequence, int32_t layer,
                                          int64_t query, kvasir_kv_visible* visible,
                                          kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(visible, "visible"));
    KVASIR_TRY_OK(CheckLayerHasRows(sequence->at->spec(), layer));
    if (query < 0 || query >= kMaxPosition) {
      return InvalidArgument("query " + std::to_string(query) + " is not a position");
    }
    const VisibleRows rows = sequence->at->Visible(layer, query);
    *visible = {rows.head_end, rows.begin, rows.end};
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_blocks(kvasir_kv_sequence* sequence, int32_t layer,
                                         kvasir_kv_blocks* blocks, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(CheckLayerHasRows(sequence->at->spec(), layer));
    const KvBlocksView view = sequence->at->Blocks(layer);
    // A pointer to void and one to bytes have the same representation.
    const auto addresses = [](std::span<std::byte* const> list) {
      return reinterpret_cast<void* const*>(list.data());
    };
    return WriteStruct(
        {sizeof(kvasir_kv_blocks), addresses(view.blocks), static_cast<int64_t>(view.blocks.size()),
         view.first_block, addresses(view.head), static_cast<int64_t>(view.head.size())},
        blocks);
  });
}

kvasir_kv_code kvasir_kv_sequence_dlpack_block(const kvasir_kv_sequence* sequence, int32_t layer,
                                               kvasir_kv_part part, int64_t block,
                                               struct DLManagedTensor** tensor,
                                               kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(tensor, "tensor"));
    KVASIR_TRY(const KvPart which, PartOf(part));
    KVASIR_TRY(*tensor, DlpackBlock(*sequence->at, {layer, which, sequence->user}, block));
    return {};
  });
}

kvasir_kv_code kvasir_kv_sequence_dlpack_rows(const kvasir_kv_sequence* sequence, int32_t layer,
                                              kvasir_kv_part part, int64_t begin, int64_t end,
                                              struct DLManagedTensor** tensor,
                                              kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(tensor, "tensor"));
    KVASIR_TRY(const KvPart which, PartOf(part));
    KVASIR_TRY(*tensor, DlpackRows(*sequence->at, {layer, which, sequence->user}, begin, end));
    return {};
  });
}

kvasir_kv_code kvasir_kv_snapshot_take(const kvasir_kv_sequence* sequence, int64_t begin,
                                       int64_t end, kvasir_kv_snapshot** snapshot,
                                       kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    const int64_t position = sequence->at->position();
    if (begin < 0 || begin > end || end > position) {
      return InvalidArgument(Range(begin, end) + " is not within [0, " + std::to_string(position) +
                             "), what the sequence has");
    }
    *snapshot = NewHandle(sequence->pool, sequence->at->Snapshot(begin, end));
    return {};
  });
}

void kvasir_kv_snapshot_destroy(kvasir_kv_snapshot* snapshot) { delete snapshot; }

int64_t kvasir_kv_snapshot_begin(const kvasir_kv_snapshot* snapshot) {
  return snapshot != nullptr ? snapshot->snapshot.begin() : -1;
}

int64_t kvasir_kv_snapshot_end(const kvasir_kv_snapshot* snapshot) {
  return snapshot != nullptr ? snapshot->snapshot.end() : -1;
}

size_t kvasir_kv_snapshot_nbytes(const kvasir_kv_snapshot* snapshot) {
  return snapshot != nullptr ? snapshot->snapshot.nbytes() : 0;
}

size_t kvasir_kv_snapshot_nbytes_exclusive(const kvasir_kv_snapshot* snapshot) {
  return snapshot != nullptr ? snapshot->snapshot.nbytes_exclusive() : 0;
}

kvasir_kv_code kvasir_kv_snapshot_split(const kvasir_kv_snapshot* snapshot, int64_t at,
                                        kvasir_kv_snapshot** left, kvasir_kv_snapshot** right,
                                        kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    KVASIR_TRY_OK(NotNull(left, "left"));
    KVASIR_TRY_OK(NotNull(right, "right"));
    KVASIR_TRY(auto parts, snapshot->snapshot.Split(at));
    std::unique_ptr<kvasir_kv_snapshot> first(NewHandle(snapshot->pool, std::move(parts.first)));
    *right = NewHandle(snapshot->pool, std::move(parts.second));
    *left = first.release();
    return {};
  });
}

kvasir_kv_code kvasir_kv_snapshot_merge(const kvasir_kv_snapshot* a, const kvasir_kv_snapshot* b,
                                        kvasir_kv_snapshot** merged, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(a, "a"));
    KVASIR_TRY_OK(NotNull(b, "b"));
    KVASIR_TRY_OK(NotNull(merged, "merged"));
    KVASIR_TRY(KvSnapshot both, KvSnapshot::Merge(a->snapshot, b->snapshot));
    *merged = NewHandle(a->pool, std::move(both));
    return {};
  });
}

kvasir_kv_code kvasir_kv_snapshot_restore(const kvasir_kv_snapshot* snapshot,
                                          kvasir_kv_sequence** sequence, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY(KvSequence restored, KvSequence::Restore(&snapshot->pool->pool, snapshot->snapshot));
    *sequence = NewHandle(snapshot->pool, std::move(restored));
    return {};
  });
}
