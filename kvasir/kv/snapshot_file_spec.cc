#include "kvasir/kv/snapshot_file_spec.h"

#include <cmath>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {
namespace {

std::string LayerName(size_t layer) { return "layer " + std::to_string(layer); }

Result<Json> FloatsToJson(std::string_view member, const std::vector<float>& values) {
  Json json = Json::Array();
  for (const float value : values) {
    if (!std::isfinite(value)) {
      return {ErrorCode::kInvalidArgument,
              std::string(member) + " holds a number that is not finite, which cannot be saved"};
    }
    // A double holds every float, and its shortest text gives the same double back.
    json.Append(static_cast<double>(value));
  }
  return json;
}

Result<std::vector<float>> FloatsFromJson(const Json& layer, std::string_view member) {
  const Json* json = layer.Find(member);
  if (json == nullptr || !json->is_array()) {
    return {ErrorCode::kCorrupt, "field '" + std::string(member) + "' must be an array"};
  }
  std::vector<float> values;
  for (const Json& value : json->as_array()) {
    const double number = value.is_number() ? value.as_double() : HUGE_VAL;
    if (!(std::fabs(number) <= std::numeric_limits<float>::max())) {
      return {ErrorCode::kCorrupt, "field '" + std::string(member) + "' must hold finite numbers"};
    }
    values.push_back(static_cast<float>(number));
  }
  return values;
}

Result<int> IntFromJson(const Json& layer, std::string_view member) {
  KVASIR_TRY(const int64_t value, layer.GetInt(member));
  if (value < std::numeric_limits<int>::min() || value > std::numeric_limits<int>::max()) {
    return {ErrorCode::kCorrupt,
            "field '" + std::string(member) + "' is " + std::to_string(value) + ", out of range"};
  }
  return static_cast<int>(value);
}

Result<KvCodec> CodecFromJson(const Json& layer, std::string_view member) {
  KVASIR_TRY(const std::string name, layer.GetString(member));
  const auto codec = KvCodec::FromName(name);
  if (!codec.ok()) return Error{ErrorCode::kCorrupt, codec.error().message};
  return *codec;
}

Result<Json> LayerToJson(const KvLayerSpec& layer) {
  const KvLayout& layout = layer.layout;
  Json json;
  json.Set("kv_heads", layout.kv_heads);
  json.Set("key_dim", layout.key_dim);
  json.Set("value_dim", layout.value_dim);
  json.Set("key_codec", layout.key_codec.name());
  json.Set("value_codec", layout.value_codec.name());
  json.Set("dense_start", layout.dense_start);
  json.Set("dense_recent", layout.dense_recent);
  json.Set("dense_codec", layout.dense_codec.name());
  json.Set("key_norms", layout.key_norms);
  json.Set("query_floats", layout.query_floats);
  json.Set("observed_block", layout.observed_block);
  json.Set("retention", layer.retention.name());
  json.Set("shares_layer", layer.shares_layer);
  json.Set("state_bytes", static_cast<uint64_t>(layer.state_bytes));
  KVASIR_TRY(Json attention_scale, FloatsToJson("attention_scale", {layer.attention_scale}));
  json.Set("attention_scale", attention_scale.as_array()[0]);
  KVASIR_TRY(Json inv_freq, FloatsToJson("inv_freq", layer.inv_freq));
  KVASIR_TRY(Json key_norm, FloatsToJson("key_norm", layer.key_norm));
  json.Set("inv_freq", std::move(inv_freq));
  json.Set("key_norm", std::move(key_norm));
  return json;
}

Result<KvLayerSpec> LayerFromJson(const Json& json) {
  KvLayerSpec layer;
  KvLayout& layout = layer.layout;
  KVASIR_TRY(layout.kv_heads, IntFromJson(json, "kv_heads"));
  KVASIR_TRY(layout.key_dim, IntFromJson(json, "key_dim"));
  KVASIR_TRY(layout.value_dim, IntFromJson(json, "value_dim"));
  KVASIR_TRY(layout.key_codec, CodecFromJson(json, "key_codec"));
  KVASIR_TRY(layout.value_codec, CodecFromJson(json, "value_codec"));
  KVASIR_TRY(layout.dense_start, json.GetInt("dense_start"));
  KVASIR_TRY(layout.dense_recent, json.GetInt("dense_recent"));
  KVASIR_TRY(layout.dense_codec, CodecFromJson(json, "dense_codec"));
  KVASIR_TRY(layout.key_norms, json.GetBool("key_norms"));
  KVASIR_TRY(layout.query_floats, IntFromJson(json, "query_floats"));
  KVASIR_TRY(layout.observed_block, json.GetInt("observed_block"));
  KVASIR_TRY(const std::string retention, json.GetString("retention"));
  const auto retention_spec = RetentionSpec::FromName(retention);
  if (!retention_spec.ok()) return Error{ErrorCode::kCorrupt, retention_spec.error().message};
  layer.retention = *retention_spec;
  KVASIR_TRY(layer.shares_layer, IntFromJson(json, "shares_layer"));
  KVASIR_TRY(const int64_t state_bytes, json.GetInt("state_bytes"));
  if (state_bytes < 0) return {ErrorCode::kCorrupt, "field 'state_bytes' is negative"};
  layer.state_bytes = static_cast<size_t>(state_bytes);
  KVASIR_TRY(const double attention_scale, json.GetDouble("attention_scale"));
  if (!(attention_scale >= 0 && attention_scale <= std::numeric_limits<float>::max())) {
    return {ErrorCode::kCorrupt, "field 'attention_scale' must be a finite number, 0 or more"};
  }
  layer.attention_scale = static_cast<float>(attention_scale);
  KVASIR_TRY(layer.inv_freq, FloatsFromJson(json, "inv_freq"));
  KVASIR_TRY(layer.key_norm, FloatsFromJson(json, "key_norm"));
  return layer;
}

}  // namespace

Result<Json> KvSpecToJson(const KvCacheSpec& spec) {
  Json json = Json::Array();
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto layer = LayerToJson(spec.layers[i]);
    if (!layer.ok()) return WithContext(layer.error(), LayerName(i));
    json.Append(*std::move(layer));
  }
  return json;
}

Result<KvCacheSpec> KvSpecFromJson(const Json& json) {
  if (!json.is_array()) return {ErrorCode::kCorrupt, "field 'layers' must be an array"};
  KvCacheSpec spec;
  for (size_t i = 0; i < json.as_array().size(); ++i) {
    auto layer = LayerFromJson(json.as_array()[i]);
    if (!layer.ok()) return WithContext(layer.error(), LayerName(i));
    spec.layers.push_back(*std::move(layer));
  }
  if (const Status status = spec.Validate(); !status.ok()) {
    return {ErrorCode::kCorrupt, status.error().message};
  }
  return spec;
}

}  // namespace kvasir
