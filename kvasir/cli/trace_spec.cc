#include "kvasir/cli/trace_spec.h"

#include "kvasir/cli/trace_tensor.h"

namespace kvasir {
namespace {

Status ReadCodec(const Json& spec, const char* key, KvCodec* codec, TraceSpec* to) {
  KVASIR_TRY(const Json* json, TraceMember(spec, key));
  KVASIR_TRY(std::string name, json->GetString("codec"));
  if (name == "affine") {
    KVASIR_TRY(const int64_t bits, json->GetInt("bits"));
    KVASIR_TRY(const int64_t group, json->GetInt("group"));
    // Traces are of float32 caches, and MLX stores scales in the type of its input.
    name += std::to_string(bits) + ":" + std::to_string(group) + "+f32";
  }
  const auto known = KvCodec::FromName(name);
  if (known.ok()) {
    *codec = *known;
  } else if (to->not_yet.empty()) {
    to->not_yet = "codec " + name;
  }
  return {};
}

// Without an interval: rows are evicted by the operation `compact` only.
Status ReadBudget(const Json& json, RetentionSpec* retention, TraceSpec* to) {
  retention->kind = RetentionSpec::Kind::kBudget;
  KVASIR_TRY(retention->size, json.GetInt("tokens"));
  KVASIR_TRY(retention->recent, json.GetIntOr("keep_recent", 0));
  KVASIR_TRY(to->hysteresis, json.GetIntOr("hysteresis", 0));
  KVASIR_TRY(const std::string score, json.GetString("score"));
  const auto known = RowScoreFromName(score == "knorm-low" ? "knorm" : score);
  if (!known.ok() && to->not_yet.empty()) to->not_yet = "score " + score;
  if (known.ok()) retention->score = *known;
  return {};
}

Status ReadRetention(const Json& spec, RetentionSpec* retention, TraceSpec* to) {
  KVASIR_TRY(const Json* json, TraceMember(spec, "retention"));
  KVASIR_TRY(const std::string kind, json->GetString("kind"));
  KVASIR_TRY(const int64_t size, json->GetIntOr("size", 0));
  KVASIR_TRY(const int64_t keep, json->GetIntOr("keep", 0));
  if (kind == "all") {
    *retention = RetentionSpec::All();
  } else if (kind == "window") {
    *retention = RetentionSpec::Window(size, keep);
  } else if (kind == "chunk") {
    *retention = RetentionSpec::Chunk(size);
  } else if (kind == "budget") {
    return ReadBudget(*json, retention, to);
  } else if (to->not_yet.empty()) {
    to->not_yet = "retention " + kind;
  }
  return {};
}

}  // namespace

Result<TraceSpec> TraceSpec::Read(const Json& spec) {
  KVASIR_TRY(const int64_t kv_heads, spec.GetInt("kv_heads"));
  KVASIR_TRY(const int64_t query_heads, spec.GetInt("q_heads"));
  KVASIR_TRY(const int64_t head_dim, spec.GetInt("head_dim"));
  KVASIR_TRY(const int64_t value_dim, spec.GetIntOr("value_dim", head_dim));
  KVASIR_TRY(const double scale, spec.GetDouble("scale"));
  KVASIR_TRY(const int64_t layers, spec.GetIntOr("layers", 1));
  for (const int64_t size : {kv_heads, query_heads, head_dim, value_dim}) {
    if (size < 1 || size > 4096) return MalformedTrace("'spec' has an absurd size");
  }
  if (query_heads % kv_heads != 0) return MalformedTrace("'q_heads' is no multiple of 'kv_heads'");
  TraceSpec read;
  read.query_heads = static_cast<int>(query_heads);
  read.scale = static_cast<float>(scale);
  KvLayerSpec layer;
  layer.layout = {
      static_cast<int>(kv_heads), static_cast<int>(head_dim), static_cast<int>(value_dim), {}, {}};
  KVASIR_TRY_OK(ReadCodec(spec, "keys", &layer.layout.key_codec, &read));
  KVASIR_TRY_OK(ReadCodec(spec, "values", &layer.layout.value_codec, &read));
  KVASIR_TRY_OK(ReadRetention(spec, &layer.retention, &read));
  if (layers < 1 || layers > 4096) return MalformedTrace("'layers' is absurd");
  read.layers = static_cast<int>(layers);
  // Norms that rows carry are those of the keys as they came; a trace's are of what is stored.
  layer.layout.key_norms = layer.retention.kind == RetentionSpec::Kind::kBudget &&
                           layer.layout.key_codec == KvCodec{KvCodec::Kind::kF32};
  read.cache = std::make_shared<const KvCacheSpec>(KvCacheSpec::Uniform(read.layers, layer));
  KVASIR_TRY_OK(read.cache->Validate());
  return read;
}

}  // namespace kvasir
