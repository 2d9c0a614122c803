// kvasir_kv.h: reporting, pool and spec.
// Deliberately nothing of sequences: those are in c_api_sequence.cc.
#include <cstdio>

#include "kvasir/kv/c_api_handles.h"
#include "kvasir/kv/held_rows.h"

namespace kvasir {
namespace {

// An absent name means the neutral value of T.
template <typename T>
Result<T> FromNameOr(const char* name, T neutral) {
  if (name == nullptr) return neutral;
  return T::FromName(name);
}

Result<KvLayerSpec> LayerOf(const kvasir_kv_layer_options& options) {
  KvLayerSpec layer;
  KvLayout& layout = layer.layout;
  layout.kv_heads = options.kv_heads;
  layout.key_dim = options.key_dim;
  layout.value_dim = options.value_dim != 0 ? options.value_dim : options.key_dim;
  layout.key_norms = options.key_norms != 0;
  KVASIR_TRY(layout.key_codec, FromNameOr(options.key_codec, KvCodec{}));
  KVASIR_TRY(layout.value_codec, FromNameOr(options.value_codec, KvCodec{}));
  KVASIR_TRY(layout.dense_codec, FromNameOr(options.dense_codec, KvCodec{}));
  KVASIR_TRY(layer.retention, FromNameOr(options.retention, RetentionSpec::All()));
  layout.dense_start = options.dense_start;
  layout.dense_recent = options.dense_recent;
  layout.query_floats = options.query_floats;
  layout.observed_block = options.query_floats != 0 ? options.observed_block : -1;
  KVASIR_TRY_OK(layout.Validate());
  if (options.inv_freq != nullptr) {
    layer.inv_freq.assign(options.inv_freq, options.inv_freq + layout.key_dim / 2);
  }
  if (options.key_norm != nullptr) {
    layer.key_norm.assign(options.key_norm, options.key_norm + layout.key_dim);
  }
  return layer;
}

}  // namespace

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
    std::snprintf(error->message, sizeof(error->message), "%s", message);
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
  if (struct_size >= sizeof(size_t) && struct_size <= kMaxStructSize) return {};
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

kvasir_kv_code kvasir_kv_spec_create(kvasir_kv_spec** spec, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    *spec = new kvasir_kv_spec;
    return {};
  });
}

void kvasir_kv_spec_destroy(kvasir_kv_spec* spec) { delete spec; }

kvasir_kv_code kvasir_kv_spec_add_layer(kvasir_kv_spec* spec,
                                        const kvasir_kv_layer_options* options,
                                        kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    KVASIR_TRY(const kvasir_kv_layer_options given, ReadOptions(options));
    KVASIR_TRY(KvLayerSpec layer, LayerOf(given));
    spec->spec.layers.push_back(std::move(layer));
    return {};
  });
}

kvasir_kv_code kvasir_kv_spec_add_shared_layer(kvasir_kv_spec* spec, int32_t layer,
                                               kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    KVASIR_TRY_OK(CheckLayerHasRows(spec->spec, layer));
    KvLayerSpec shared = spec->spec.layers[static_cast<size_t>(layer)];
    shared.shares_layer = layer;
    spec->spec.layers.push_back(std::move(shared));
    return {};
  });
}

kvasir_kv_code kvasir_kv_spec_add_recurrent_layer(kvasir_kv_spec* spec, size_t state_bytes,
                                                  kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    if (state_bytes == 0) return InvalidArgument("state_bytes is 0; give the size of the state");
    KvLayerSpec layer;
    layer.state_bytes = state_bytes;
    spec->spec.layers.push_back(std::move(layer));
    return {};
  });
}

int32_t kvasir_kv_spec_layer_count(const kvasir_kv_spec* spec) {
  return spec != nullptr ? static_cast<int32_t>(spec->spec.layers.size()) : -1;
}

kvasir_kv_code kvasir_kv_spec_validate(const kvasir_kv_spec* spec, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    return spec->spec.Validate();
  });
}

size_t kvasir_kv_spec_token_bytes(const kvasir_kv_spec* spec) {
  return spec != nullptr ? spec->spec.TokenBytes() : 0;
}

size_t kvasir_kv_spec_bytes_at(const kvasir_kv_spec* spec, int64_t position) {
  size_t bytes = 0;
  Guarded(nullptr, [&]() -> Status {
    if (spec == nullptr || position < 0 || position > kMaxPosition) return {};
    KVASIR_TRY_OK(spec->spec.Validate());
    bytes = spec->spec.BytesAt(position);
    return {};
  });
  return bytes;
}

kvasir_kv_code kvasir_kv_spec_block_layout(const kvasir_kv_spec* spec, int32_t layer, int64_t block,
                                           kvasir_kv_block_layout* layout, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    KVASIR_TRY_OK(CheckLayerHasRows(spec->spec, layer));
    if (block < 0 || block > kMaxPosition / kBlockTokens) {
      return InvalidArgument("block " + std::to_string(block) + " does not exist");
    }
    const KvBlockLayout at = spec->spec.layers[static_cast<size_t>(layer)].layout.BlockAt(block);
    kvasir_kv_block_layout result = {sizeof(kvasir_kv_block_layout),
                                     at.BlockBytes(),
                                     at.KeyHeadBytes(),
                                     at.KeyPlaneBytes(),
                                     at.ValueHeadBytes(),
                                     at.NormsOffset(),
                                     at.QueriesOffset(),
                                     {},
                                     {}};
    std::snprintf(result.key_codec, sizeof(result.key_codec), "%s", at.key_codec.name().c_str());
    std::snprintf(result.value_codec, sizeof(result.value_codec), "%s",
                  at.value_codec.name().c_str());
    return WriteStruct(result, layout);
  });
}
