// kvasir_kv.h: specs.
// Deliberately no checks of its own: KvCacheSpec::Validate and KvPolicy have them.
#include <cstdio>

#include "kvasir/kv/c_api_handles.h"
#include "kvasir/kv/held_rows.h"
#include "kvasir/kv/kv_policy.h"
#include "kvasir/kv/kv_policy_flags.h"

using namespace kvasir;  // NOLINT: the functions below are C and cannot be in a namespace

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

kvasir_kv_block_layout BlockLayoutOf(const KvBlockLayout& at) {
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
  return result;
}

// -1 stands for 0, 0 for the default.
std::optional<int64_t> NumberOf(int64_t option) {
  if (option == 0) return std::nullopt;
  return option == -1 ? 0 : option;
}

std::string TextOf(const char* option) { return option != nullptr ? option : ""; }

KvPolicyFlags FlagsOf(const kvasir_kv_policy_options& options) {
  KvPolicyFlags flags;
  flags.kv_bits = TextOf(options.bits);
  flags.kv_key_bits = TextOf(options.key_bits);
  flags.kv_value_bits = TextOf(options.value_bits);
  flags.kv_quant_scheme = TextOf(options.quant_scheme);
  flags.kv_dtype = TextOf(options.dtype);
  flags.kv_key_dtype = TextOf(options.key_dtype);
  flags.kv_value_dtype = TextOf(options.value_dtype);
  flags.kv_dense_layers = TextOf(options.dense_layers);
  flags.kv_window_layers = TextOf(options.window_layers);
  flags.kv_group_size = NumberOf(options.group_size);
  flags.quantized_kv_start = NumberOf(options.quantized_start);
  flags.kv_recent = NumberOf(options.dense_recent);
  flags.compact_kv_budget = NumberOf(options.budget);
  flags.kv_keep_first = NumberOf(options.keep_first);
  flags.kv_keep_recent = NumberOf(options.keep_recent);
  flags.kv_compact_interval = NumberOf(options.compact_interval);
  flags.kv_score = TextOf(options.score);
  flags.kv_budget_skip_layers = TextOf(options.budget_skip_layers);
  flags.kv_budget_per_layer = options.budget_per_layer != 0;
  return flags;
}

}  // namespace

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
    const KvLayerSpec& spec_of = spec->spec.layers[static_cast<size_t>(layer)];
    return WriteStruct(BlockLayoutOf(spec_of.layout.BlockAt(block)), layout);
  });
}

kvasir_kv_code kvasir_kv_spec_recent_layout(const kvasir_kv_spec* spec, int32_t layer,
                                            kvasir_kv_block_layout* layout,
                                            kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    KVASIR_TRY_OK(CheckLayerHasRows(spec->spec, layer));
    const KvLayerSpec& spec_of = spec->spec.layers[static_cast<size_t>(layer)];
    if (spec_of.layout.dense_recent == 0) {
      return InvalidArgument("layer " + std::to_string(layer) + " has no dense_recent");
    }
    return WriteStruct(BlockLayoutOf(spec_of.layout.RecentBlock()), layout);
  });
}

kvasir_kv_code kvasir_kv_spec_apply_policy(kvasir_kv_spec* spec,
                                           const kvasir_kv_policy_options* options,
                                           int32_t query_heads, kvasir_kv_error* error) {
  return Guarded(error, [&]() -> Status {
    KVASIR_TRY_OK(NotNull(spec, "spec"));
    KVASIR_TRY(const kvasir_kv_policy_options given, ReadOptions(options));
    KVASIR_TRY_OK(spec->spec.Validate());
    KVASIR_TRY(const KvPolicy policy, KvPolicy::FromFlags(FlagsOf(given)));
    KVASIR_TRY(spec->spec, policy.Apply(spec->spec, query_heads));
    return {};
  });
}
