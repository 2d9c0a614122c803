// kvasir_kv.h: reporting, and the pool.
// Deliberately nothing of what lives in a pool: see the c_api_* files.
#include <string.h>  // NOLINT: strnlen is POSIX

#include <cstdio>

#include "kvasir/kv/c_api_handles.h"

namespace kvasir {

kvasir_kv_code CodeOf(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return KVASIR_KV_INVALID_ARGUMENT;
    case ErrorCode::kNotFound:
      return KVASIR_KV_NOT_FOUND;
    case ErrorCode::kCorrupt:
      return KVASIR_KV_CORRUPT;
    case ErrorCode::kUnsupported:
      return KVASIR_KV_UNSUPPORTED;
    case ErrorCode::kResourceExhausted:
      return KVASIR_KV_RESOURCE_EXHAUSTED;
    case ErrorCode::kFailedPrecondition:
      return KVASIR_KV_FAILED_PRECONDITION;
    case ErrorCode::kIo:
      return KVASIR_KV_IO;
    case ErrorCode::kCancelled:
      return KVASIR_KV_CANCELLED;
  }
  return KVASIR_KV_INTERNAL;
}

kvasir_kv_code Report(kvasir_kv_error* error, kvasir_kv_code code, const char* message) noexcept {
  if (error != nullptr) {
    error->code = code;
    // Never in the middle of a character: bytes that go one on are 10xxxxxx.
    size_t length = strnlen(message, sizeof(error->message));
    if (length == sizeof(error->message)) {
      while (--length > 0 && (static_cast<unsigned char>(message[length]) & 0xC0) == 0x80) {
      }
    }
    std::memcpy(error->message, message, length);
    error->message[length] = '\0';
  }
  return code;
}

kvasir_kv_code Report(kvasir_kv_error* error, const Status& status) noexcept {
  if (status.ok()) return Report(error, KVASIR_KV_OK, "");
  return Report(error, CodeOf(status.error().code), status.error().message.c_str());
}

Error InvalidArgument(std::string message) {
  return {ErrorCode::kInvalidArgument, std::move(message)};
}

Status NotNull(const void* pointer, const char* name) {
  if (pointer != nullptr) return {};
  return InvalidArgument(std::string(name) + " is NULL");
}

Status CheckStructSize(size_t struct_size) {
  // No version of any of them ends within a field.
  const bool is_whole = struct_size % alignof(size_t) == 0;
  if (is_whole && struct_size >= sizeof(size_t) && struct_size <= kMaxStructSize) return {};
  return InvalidArgument("struct_size is " + std::to_string(struct_size) +
                         "; set it to the sizeof of the struct");
}

}  // namespace kvasir

using namespace kvasir;  // NOLINT: the functions below are C and cannot be in a namespace

int32_t kvasir_kv_abi_version(void) { return KVASIR_KV_ABI_VERSION; }

kvasir_kv_code kvasir_kv_pool_create(const kvasir_kv_pool_options* options, kvasir_kv_pool** pool,
                                     kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(pool, "pool"));
    KVASIR_TRY(const kvasir_kv_pool_options given, ReadOptions(options));
    KvPoolOptions pool_options;
    pool_options.budget_bytes = given.budget_bytes;
    if (given.max_slab_bytes != 0) pool_options.max_slab_bytes = given.max_slab_bytes;
    *pool = new kvasir_kv_pool(std::move(pool_options));
    return {};
  });
}

kvasir_kv_code kvasir_kv_pool_destroy(kvasir_kv_pool* pool, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    if (pool != nullptr && pool->users.use_count() > 1) {
      return {ErrorCode::kFailedPrecondition,
              "KV pool: " + std::to_string(pool->users.use_count() - 1) +
                  " sequences, snapshots or tensors still use it; destroy them first"};
    }
    delete pool;
    return {};
  });
}

kvasir_kv_code kvasir_kv_pool_get_stats(const kvasir_kv_pool* pool, kvasir_kv_pool_stats* stats,
                                        kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(pool, "pool"));
    const KvPoolStats now = pool->pool.Stats();
    return WriteStruct({sizeof(kvasir_kv_pool_stats), now.budget_bytes, now.reserved_bytes,
                        now.used_bytes, now.peak_used_bytes, now.copied_bytes, now.growth_events},
                       stats);
  });
}

size_t kvasir_kv_pool_release_free_slabs(kvasir_kv_pool* pool) {
  return pool != nullptr ? pool->pool.ReleaseFreeSlabs() : 0;
}
