// What is behind the opaque handles of kvasir_kv.h, and how its functions report. Internal to the
// c_api files.
// Deliberately no rule of the cache itself: the C layer only refuses what the C++ layer REQUIRES.
#ifndef KVASIR_KV_C_API_HANDLES_H_
#define KVASIR_KV_C_API_HANDLES_H_

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/kvasir_kv.h"
#include "kvasir/kv/snapshot_file.h"
#include "kvasir/kv/speculation.h"

struct kvasir_kv_pool {
  explicit kvasir_kv_pool(kvasir::KvPoolOptions options) : pool(std::move(options)) {}

  kvasir::KvPool pool;
  // Every user of the pool holds a copy; the pool ends only when no copy is left.
  std::shared_ptr<const kvasir_kv_pool> users{this, [](const kvasir_kv_pool*) {}};
};

struct kvasir_kv_spec {
  kvasir::KvCacheSpec spec;
};

struct kvasir_kv_snapshot {
  std::shared_ptr<const kvasir_kv_pool> user;
  kvasir_kv_pool* pool;
  kvasir::KvSnapshot snapshot;
  kvasir::KvSnapshotMeta meta = {};
};

struct kvasir_kv_sequence {
  kvasir_kv_sequence(kvasir_kv_pool* pool, kvasir::KvSequence sequence)
      : user(pool->users), pool(pool), own(std::move(sequence)), at(&*own) {}

  // First, so that it goes after the blocks have gone.
  std::shared_ptr<const kvasir_kv_pool> user;
  kvasir_kv_pool* pool;
  std::optional<kvasir::KvSequence> own;  // none while a batch owns it
  kvasir::KvSequence* at;                 // own or the batch's
  kvasir_kv_batch* batch = nullptr;
  kvasir_kv_speculation* speculation = nullptr;  // open
};

struct kvasir_kv_batch {
  std::map<uint64_t, std::unique_ptr<kvasir_kv_sequence>> handles;
  kvasir::KvBatch batch;
};

struct kvasir_kv_speculation {
  std::vector<kvasir_kv_sequence*> members;
  std::optional<kvasir::Speculation> speculation;  // none once closed
};

namespace kvasir {

kvasir_kv_code CodeOf(ErrorCode code);
// Fills *error if there is one; returns the code.
kvasir_kv_code Report(kvasir_kv_error* error, kvasir_kv_code code, const char* message) noexcept;
kvasir_kv_code Report(kvasir_kv_error* error, const Status& status) noexcept;

// Runs `body`, which returns a Status, and lets no exception out.
template <typename Body>
kvasir_kv_code Guarded(kvasir_kv_error* error, Body&& body) noexcept {
  try {
    return Report(error, body());
  } catch (const std::bad_alloc&) {
    return Report(error, KVASIR_KV_RESOURCE_EXHAUSTED, "the system is out of memory");
  } catch (...) {
    return Report(error, KVASIR_KV_INTERNAL, "an unexpected exception; please report this defect");
  }
}

// What `read` returns; `otherwise` for a null handle and on an exception.
template <typename Value, typename Handle, typename Read>
Value ValueOr(Value otherwise, const Handle* handle, Read&& read) noexcept {
  if (handle == nullptr) return otherwise;
  try {
    return read(*handle);
  } catch (...) {
    return otherwise;
  }
}

Error InvalidArgument(std::string message);
// OK unless `pointer` is null.
Status NotNull(const void* pointer, const char* name);

// Larger is no struct of this library but garbage.
inline constexpr size_t kMaxStructSize = 4096;

Status CheckStructSize(size_t struct_size);

// The options as this version knows them: what the caller's version lacks is zero.
// ERRORS: kInvalidArgument for a null pointer or an impossible size; kUnsupported if the caller's
// version has options this one lacks and they are set.
template <typename Options>
Result<Options> ReadOptions(const Options* given) {
  KVASIR_TRY_OK(NotNull(given, "options"));
  KVASIR_TRY_OK(CheckStructSize(given->struct_size));
  const auto* bytes = reinterpret_cast<const char*>(given);
  const size_t known = std::min(given->struct_size, sizeof(Options));
  if (std::any_of(bytes + known, bytes + given->struct_size, [](char byte) { return byte != 0; })) {
    return {ErrorCode::kUnsupported,
            "options have fields that this version of the library does not know; update it"};
  }
  Options options{};
  std::memcpy(&options, given, known);
  return options;
}

// Fills as much of *out as the caller's version knows.
// ERRORS: kInvalidArgument for a null pointer or an impossible size.
template <typename Struct>
Status WriteStruct(const Struct& value, Struct* out) {
  KVASIR_TRY_OK(NotNull(out, "the struct to fill"));
  KVASIR_TRY_OK(CheckStructSize(out->struct_size));
  const size_t struct_size = out->struct_size;
  std::memset(static_cast<void*>(out), 0, struct_size);
  std::memcpy(static_cast<void*>(out), &value, std::min(struct_size, sizeof(Struct)));
  out->struct_size = struct_size;
  return {};
}

}  // namespace kvasir

#endif  // KVASIR_KV_C_API_HANDLES_H_
