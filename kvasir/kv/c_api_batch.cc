// kvasir_kv.h: batches and speculations.
// Deliberately keeps one handle per sequence for its whole life, in a batch or out of it.
#include <span>
#include <unordered_set>

#include "kvasir/kv/c_api_handles.h"

using namespace kvasir;  // NOLINT: the functions below are C and cannot be in a namespace

namespace {

Status NotSpeculating(const kvasir_kv_sequence* sequence) {
  if (sequence == nullptr || sequence->speculation == nullptr) return {};
  return {ErrorCode::kFailedPrecondition,
          "a sequence is in an open speculation; commit or roll back first"};
}

// The members may move and end again. REQUIRES: the speculation itself is closed.
void Release(kvasir_kv_speculation& speculation) {
  for (kvasir_kv_sequence* member : speculation.members) member->speculation = nullptr;
  speculation.members.clear();
  speculation.speculation.reset();
}

}  // namespace

kvasir_kv_code kvasir_kv_batch_create(kvasir_kv_batch** batch, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(batch, "batch"));
    *batch = new kvasir_kv_batch;
    return {};
  });
}

kvasir_kv_code kvasir_kv_batch_destroy(kvasir_kv_batch* batch, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    if (batch == nullptr) return {};
    for (const auto& [id, handle] : batch->handles) KVASIR_TRY_OK(NotSpeculating(handle.get()));
    delete batch;
    return {};
  });
}

int64_t kvasir_kv_batch_size(const kvasir_kv_batch* batch) {
  return batch != nullptr ? static_cast<int64_t>(batch->batch.size()) : -1;
}

int64_t kvasir_kv_batch_ids(const kvasir_kv_batch* batch, uint64_t* ids, size_t capacity) {
  int64_t size = -1;
  Guarded(nullptr, [&]() -> Status {
    if (batch == nullptr || (ids == nullptr && capacity > 0)) return {};
    const std::vector<SequenceId> all = batch->batch.ids();
    std::copy_n(all.begin(), std::min(capacity, all.size()), ids);
    size = static_cast<int64_t>(all.size());
    return {};
  });
  return size;
}

kvasir_kv_sequence* kvasir_kv_batch_find(const kvasir_kv_batch* batch, uint64_t id) {
  if (batch == nullptr) return nullptr;
  const auto found = batch->handles.find(id);
  return found != batch->handles.end() ? found->second.get() : nullptr;
}

kvasir_kv_code kvasir_kv_batch_add(kvasir_kv_batch* batch, uint64_t id,
                                   kvasir_kv_sequence* sequence, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(batch, "batch"));
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotSpeculating(sequence));
    if (sequence->batch != nullptr) {
      return {ErrorCode::kFailedPrecondition, "the sequence is in a batch; extract it first"};
    }
    // The place for the handle first: once the sequence has moved nothing may fail.
    const auto place = batch->handles.try_emplace(id).first;
    const auto forget = [&] {
      if (place->second == nullptr) batch->handles.erase(place);
    };
    try {
      if (const Status added = batch->batch.Add(id, std::move(*sequence->own)); !added.ok()) {
        forget();
        return added.error();
      }
    } catch (...) {
      forget();
      throw;
    }
    place->second.reset(sequence);
    sequence->own.reset();
    sequence->at = batch->batch.Find(id);
    sequence->batch = batch;
    return {};
  });
}

kvasir_kv_code kvasir_kv_batch_filter(kvasir_kv_batch* batch, const uint64_t* ids, size_t count,
                                      kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(batch, "batch"));
    if (count > 0) KVASIR_TRY_OK(NotNull(ids, "ids"));
    const std::span<const uint64_t> keep(ids, count);
    const std::unordered_set<uint64_t> kept(keep.begin(), keep.end());
    for (const auto& [id, handle] : batch->handles) {
      if (!kept.contains(id)) KVASIR_TRY_OK(NotSpeculating(handle.get()));
    }
    KVASIR_TRY_OK(batch->batch.Filter(keep));
    std::erase_if(batch->handles, [&](const auto& entry) { return !kept.contains(entry.first); });
    return {};
  });
}

kvasir_kv_code kvasir_kv_batch_extend(kvasir_kv_batch* batch, kvasir_kv_batch* other,
                                      kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(batch, "batch"));
    KVASIR_TRY_OK(NotNull(other, "other"));
    KVASIR_TRY_OK(batch->batch.Extend(std::move(other->batch)));
    for (auto& [id, handle] : other->handles) handle->batch = batch;
    batch->handles.merge(other->handles);
    return {};
  });
}

kvasir_kv_code kvasir_kv_batch_extract(kvasir_kv_batch* batch, uint64_t id,
                                       kvasir_kv_sequence** sequence, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(batch, "batch"));
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    const auto found = batch->handles.find(id);
    if (found != batch->handles.end()) KVASIR_TRY_OK(NotSpeculating(found->second.get()));
    KVASIR_TRY(KvSequence extracted, batch->batch.Extract(id));
    kvasir_kv_sequence* handle = found->second.release();
    batch->handles.erase(found);
    handle->own.emplace(std::move(extracted));
    handle->at = &*handle->own;
    handle->batch = nullptr;
    *sequence = handle;
    return {};
  });
}

kvasir_kv_code kvasir_kv_batch_reserve_each(kvasir_kv_batch* batch, const int64_t* tokens,
                                            size_t count, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(batch, "batch"));
    if (count > 0) KVASIR_TRY_OK(NotNull(tokens, "tokens"));
    if (count == 0 && batch->batch.empty()) return {};
    return batch->batch.ReserveEach({tokens, count});
  });
}

kvasir_kv_code kvasir_kv_batch_trim_each(kvasir_kv_batch* batch, const int64_t* counts,
                                         size_t count, kvasir_kv_trim_report* reports,
                                         kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(batch, "batch"));
    if (count > 0) KVASIR_TRY_OK(NotNull(counts, "counts"));
    if (count > 0) KVASIR_TRY_OK(NotNull(reports, "reports"));
    KVASIR_TRY(const std::vector<TrimReport> trimmed, batch->batch.TrimEach({counts, count}));
    for (size_t i = 0; i < trimmed.size(); ++i) {
      reports[i].id = trimmed[i].id;
      reports[i].trimmed = trimmed[i].trimmed;
      Report(&reports[i].refusal, trimmed[i].status);
    }
    return {};
  });
}

size_t kvasir_kv_batch_nbytes(const kvasir_kv_batch* batch) {
  size_t bytes = 0;
  Guarded(nullptr, [&]() -> Status {
    if (batch != nullptr) bytes = batch->batch.nbytes();
    return {};
  });
  return bytes;
}

kvasir_kv_code kvasir_kv_speculation_begin(kvasir_kv_sequence* const* sequences, size_t count,
                                           kvasir_kv_speculation** speculation,
                                           kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(speculation, "speculation"));
    if (count > 0) KVASIR_TRY_OK(NotNull(sequences, "sequences"));
    auto handle = std::make_unique<kvasir_kv_speculation>();
    std::vector<KvSequence*> all;
    for (kvasir_kv_sequence* sequence : std::span(sequences, count)) {
      KVASIR_TRY_OK(NotNull(sequence, "a sequence"));
      all.push_back(sequence->at);
      handle->members.push_back(sequence);
    }
    KVASIR_TRY(Speculation begun, Speculation::Begin(all));
    handle->speculation.emplace(std::move(begun));
    for (kvasir_kv_sequence* member : handle->members) member->speculation = handle.get();
    *speculation = handle.release();
    return {};
  });
}

int64_t kvasir_kv_speculation_appended(const kvasir_kv_speculation* speculation, size_t i) {
  if (speculation == nullptr || i >= speculation->members.size()) return -1;
  return speculation->speculation->appended(i);
}

kvasir_kv_code kvasir_kv_speculation_commit(kvasir_kv_speculation* speculation,
                                            const int64_t* accepted, size_t count,
                                            kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(speculation, "speculation"));
    if (count > 0) KVASIR_TRY_OK(NotNull(accepted, "accepted"));
    if (!speculation->speculation) {
      return {ErrorCode::kFailedPrecondition, "speculation: it is closed already"};
    }
    KVASIR_TRY_OK(speculation->speculation->Commit({accepted, count}));
    Release(*speculation);
    return {};
  });
}

void kvasir_kv_speculation_rollback(kvasir_kv_speculation* speculation) {
  if (speculation == nullptr || !speculation->speculation) return;
  Guarded(nullptr, [&]() -> Status {
    speculation->speculation->Rollback();
    return {};
  });
  Release(*speculation);
}

void kvasir_kv_speculation_destroy(kvasir_kv_speculation* speculation) {
  kvasir_kv_speculation_rollback(speculation);
  delete speculation;
}
