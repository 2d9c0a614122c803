// kvasir_kv.h: snapshots.
// Deliberately without the sequences they come from: a snapshot outlives them.
#include "kvasir/kv/c_api_handles.h"

using namespace kvasir;  // NOLINT: the functions below are C and cannot be in a namespace

namespace {

kvasir_kv_snapshot* NewHandle(kvasir_kv_pool* pool, KvSnapshot snapshot) {
  return new kvasir_kv_snapshot{pool->users, pool, std::move(snapshot)};
}

}  // namespace

kvasir_kv_code kvasir_kv_snapshot_take(const kvasir_kv_sequence* sequence, int64_t begin,
                                       int64_t end, kvasir_kv_snapshot** snapshot,
                                       kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(sequence, "sequence"));
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    const int64_t position = sequence->at->position();
    if (begin < 0 || begin > end || end > position) {
      return InvalidArgument("from " + std::to_string(begin) + " to " + std::to_string(end) +
                             " is not within [0, " + std::to_string(position) +
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

int32_t kvasir_kv_snapshot_evicted(const kvasir_kv_snapshot* snapshot) {
  return snapshot != nullptr ? snapshot->snapshot.evicted() : -1;
}

size_t kvasir_kv_snapshot_nbytes(const kvasir_kv_snapshot* snapshot) {
  return ValueOr<size_t>(0, snapshot, [](const auto& handle) { return handle.snapshot.nbytes(); });
}

size_t kvasir_kv_snapshot_nbytes_exclusive(const kvasir_kv_snapshot* snapshot) {
  return ValueOr<size_t>(0, snapshot,
                         [](const auto& handle) { return handle.snapshot.nbytes_exclusive(); });
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
    *sequence = new kvasir_kv_sequence(snapshot->pool, std::move(restored));
    return {};
  });
}

kvasir_kv_code kvasir_kv_snapshot_set_tokens(kvasir_kv_snapshot* snapshot, const int32_t* tokens,
                                             size_t count, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    if (count > 0) KVASIR_TRY_OK(NotNull(tokens, "tokens"));
    const int64_t length = snapshot->snapshot.end() - snapshot->snapshot.begin();
    if (count != 0 && count != static_cast<size_t>(length)) {
      return InvalidArgument(std::to_string(count) + " tokens for a snapshot of " +
                             std::to_string(length));
    }
    snapshot->meta.tokens.assign(tokens, tokens + count);
    return {};
  });
}

kvasir_kv_code kvasir_kv_snapshot_set_value(kvasir_kv_snapshot* snapshot, const char* name,
                                            const char* value, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    KVASIR_TRY_OK(NotNull(name, "name"));
    if (value != nullptr) {
      snapshot->meta.values[name] = value;
    } else {
      snapshot->meta.values.erase(name);
    }
    return {};
  });
}

int64_t kvasir_kv_snapshot_tokens(const kvasir_kv_snapshot* snapshot, int32_t* tokens,
                                  size_t capacity) {
  if (snapshot == nullptr || (tokens == nullptr && capacity > 0)) return -1;
  const std::vector<Token>& all = snapshot->meta.tokens;
  std::copy_n(all.begin(), std::min(capacity, all.size()), tokens);
  return static_cast<int64_t>(all.size());
}

const char* kvasir_kv_snapshot_value(const kvasir_kv_snapshot* snapshot, const char* name) {
  if (name == nullptr) return nullptr;
  return ValueOr<const char*>(nullptr, snapshot, [&](const auto& handle) -> const char* {
    const auto found = handle.meta.values.find(name);
    return found != handle.meta.values.end() ? found->second.c_str() : nullptr;
  });
}

kvasir_kv_code kvasir_kv_snapshot_save(const kvasir_kv_snapshot* snapshot, const char* path,
                                       kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    KVASIR_TRY_OK(NotNull(path, "path"));
    return SaveSnapshot(snapshot->snapshot, path, snapshot->meta);
  });
}

kvasir_kv_code kvasir_kv_snapshot_load(kvasir_kv_pool* pool, const char* path,
                                       kvasir_kv_snapshot** snapshot, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(pool, "pool"));
    KVASIR_TRY_OK(NotNull(path, "path"));
    KVASIR_TRY_OK(NotNull(snapshot, "snapshot"));
    KVASIR_TRY(LoadedKvSnapshot loaded, LoadSnapshot(&pool->pool, path));
    std::unique_ptr<kvasir_kv_snapshot> handle(NewHandle(pool, std::move(loaded.snapshot)));
    handle->meta = std::move(loaded.meta);
    *snapshot = handle.release();
    return {};
  });
}
