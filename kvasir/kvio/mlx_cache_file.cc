#include "kvasir/kvio/mlx_cache_file.h"

#include <charconv>
#include <cstring>
#include <limits>
#include <numeric>
#include <string_view>
#include <utility>

#include "kvasir/kv/kv_sequence.h"

namespace kvasir {
namespace {

Error Corrupt(std::string what) { return {ErrorCode::kCorrupt, std::move(what)}; }

// Finds the parts of one cache of the list.
class LayerReader {
 public:
  LayerReader(const MlxTensors& tensors, const MlxMetadata& metadata, MlxCacheVersion version,
              size_t index)
      : tensors_(tensors), metadata_(metadata), version_(version), index_(index) {}

  Result<MlxLayerCache> Read(const std::string& class_name) {
    MlxLayerCache layer;
    if (class_name == "KVCache") {
      layer.kind = MlxLayerCache::Kind::kAll;
    } else if (class_name == "RotatingKVCache") {
      layer.kind = MlxLayerCache::Kind::kRotating;
    } else if (class_name == "QuantizedKVCache") {
      layer.kind = MlxLayerCache::Kind::kQuantized;
    } else {
      return {ErrorCode::kUnsupported,
              "cache " + std::to_string(index_) + " is a " + class_name +
                  "; KVCache, RotatingKVCache and QuantizedKVCache can be read"};
    }
    const bool quantized = layer.kind == MlxLayerCache::Kind::kQuantized;
    KVASIR_TRY(layer.keys, ReadPlane("0", quantized));
    KVASIR_TRY(layer.values, ReadPlane("1", quantized));
    KVASIR_TRY_OK(CheckPair(layer));
    if (quantized) {
      KVASIR_TRY_OK(ReadQuantized(&layer));
    } else {
      KVASIR_TRY_OK(ReadDense(&layer));
    }
    const Status status = layer.layout.Validate();
    if (!status.ok()) return Corrupt(Name("") + ": " + status.error().message);
    return layer;
  }

 private:
  // "3.0.1"
  std::string Name(const std::string& part) const {
    return std::to_string(index_) + (part.empty() ? "" : "." + part);
  }

  Result<TensorView> Tensor(const std::string& part) const {
    const auto found = tensors_.find(Name(part));
    if (found == tensors_.end()) return Corrupt("tensor " + Name(part) + " is missing");
    const TensorView& tensor = found->second;
    if (tensor.shape.size() != 4 || tensor.shape[0] != 1 || tensor.elements() == 0) {
      return Corrupt("tensor " + Name(part) + " is " + ShapeString(tensor.shape) +
                     ", it must be [1, heads, rows, size] and not empty");
    }
    return tensor;
  }

  Result<MlxPlane> ReadPlane(const std::string& part, bool quantized) const {
    MlxPlane plane;
    KVASIR_TRY(plane.rows, Tensor(quantized ? part + ".0" : part));
    if (!quantized) return plane;
    KVASIR_TRY(plane.scales, Tensor(part + ".1"));
    KVASIR_TRY(plane.biases, Tensor(part + ".2"));
    if (plane.rows.dtype != DType::kU32) {
      return Corrupt("tensor " + Name(part + ".0") + " must be U32");
    }
    if (plane.scales.shape != plane.biases.shape || plane.scales.dtype != plane.biases.dtype ||
        plane.scales.shape[1] != plane.rows.shape[1] ||
        plane.scales.shape[2] != plane.rows.shape[2]) {
      return Corrupt("tensors " + Name(part + ".0") + ", .1 and .2 do not fit together");
    }
    return plane;
  }

  Status CheckPair(const MlxLayerCache& layer) const {
    const std::vector<int64_t>& keys = layer.keys.rows.shape;
    const std::vector<int64_t>& values = layer.values.rows.shape;
    constexpr int64_t kMax = std::numeric_limits<int>::max();
    if (keys[1] == values[1] && keys[2] == values[2] && keys[1] <= kMax && keys[3] <= kMax &&
        values[3] <= kMax) {
      return {};
    }
    return Corrupt("keys " + ShapeString(keys) + " and values " + ShapeString(values) +
                   " of cache " + Name("") + " do not fit together");
  }

  // Number `scalar` of the state's, `meta` of the meta state's.
  Result<int64_t> Number(int scalar, int meta, std::string_view what) const {
    if (version_ == MlxCacheVersion::kScalars) return ScalarNumber(scalar, what);
    const std::string key = "0." + Name(std::to_string(meta));
    const auto found = metadata_.find(key);
    if (found == metadata_.end()) {
      return Corrupt("metadata " + key + " (" + std::string(what) + ") is missing");
    }
    const std::string& text = found->second;
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size()) {
      return Corrupt("metadata " + key + " (" + std::string(what) + ") is '" + text +
                     "', it must be a number");
    }
    return value;
  }

  Result<int64_t> ScalarNumber(int scalar, std::string_view what) const {
    const std::string name = Name(std::to_string(scalar));
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      return Corrupt("tensor " + name + " (" + std::string(what) + ") is missing");
    }
    const TensorView& tensor = found->second;
    if (tensor.elements() == 1 && tensor.dtype == DType::kI32) {
      int32_t value;
      std::memcpy(&value, tensor.data, sizeof(value));
      return value;
    }
    if (tensor.elements() == 1 && tensor.dtype == DType::kI64) {
      int64_t value;
      std::memcpy(&value, tensor.data, sizeof(value));
      return value;
    }
    return Corrupt("tensor " + name + " (" + std::string(what) + ") must be one I32 or I64");
  }

  Status ReadDense(MlxLayerCache* layer) const {
    KvLayout& layout = layer->layout;
    KVASIR_TRY(layout.key_codec, DenseCodec("0", layer->keys.rows.dtype));
    KVASIR_TRY(layout.value_codec, DenseCodec("1", layer->values.rows.dtype));
    layout.kv_heads = static_cast<int>(layer->keys.rows.shape[1]);
    layout.key_dim = static_cast<int>(layer->keys.rows.shape[3]);
    layout.value_dim = static_cast<int>(layer->values.rows.shape[3]);
    if (layer->kind == MlxLayerCache::Kind::kRotating) return ReadRotating(layer);
    layer->offset = layer->keys.buffer_rows();
    if (version_ == MlxCacheVersion::kScalars) {
      KVASIR_TRY(layer->offset, Number(2, 0, "offset"));
    }
    return OrderAll(layer);
  }

  Result<KvCodec> DenseCodec(const std::string& part, DType dtype) const {
    if (dtype == DType::kF32) return KvCodec{KvCodec::Kind::kF32};
    if (dtype == DType::kF16) return KvCodec{KvCodec::Kind::kF16};
    if (dtype == DType::kBf16) return KvCodec{KvCodec::Kind::kBf16};
    return Corrupt("tensor " + Name(part) + " is " + std::string(DTypeName(dtype)) +
                   ", it must be f32, f16 or bf16");
  }

  // The rows are the first `offset` of the buffer.
  Status OrderAll(MlxLayerCache* layer) const {
    if (layer->offset < 1 || layer->offset > layer->keys.buffer_rows()) {
      return Corrupt("cache " + Name("") + " has offset " + std::to_string(layer->offset) + " in " +
                     std::to_string(layer->keys.buffer_rows()) + " rows");
    }
    layer->order.resize(static_cast<size_t>(layer->offset));
    std::iota(layer->order.begin(), layer->order.end(), 0);
    return {};
  }

  Status ReadRotating(MlxLayerCache* layer) const {
    KVASIR_TRY(layer->offset, Number(2, 2, "offset"));
    KVASIR_TRY(layer->keep, Number(3, 0, "keep"));
    KVASIR_TRY(layer->max_size, Number(4, 1, "max_size"));
    KVASIR_TRY(const int64_t next_slot, Number(5, 3, "_idx"));
    const std::string numbers =
        "cache " + Name("") + " with offset " + std::to_string(layer->offset) + ", keep " +
        std::to_string(layer->keep) + ", max_size " + std::to_string(layer->max_size) +
        " and _idx " + std::to_string(next_slot);
    const int64_t rows = layer->keys.buffer_rows();
    if (layer->offset < 1 || layer->offset > kMaxPosition || layer->keep < 0 ||
        layer->keep >= layer->max_size || layer->max_size > kMaxRetentionTokens || next_slot < 1 ||
        next_slot > rows || next_slot > layer->offset) {
      return Corrupt(numbers + " cannot be");
    }
    // The three cases of mlx-lm's _temporal_order.
    std::vector<int64_t>& order = layer->order;
    const auto add = [&order](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) order.push_back(row);
    };
    if (next_slot == rows || next_slot == layer->offset) {
      add(0, next_slot);
    } else {
      if (next_slot < layer->keep) return Corrupt(numbers + " writes into the rows to keep");
      add(0, layer->keep);
      add(next_slot, rows);
      add(layer->keep, next_slot);
    }
    const auto held = static_cast<int64_t>(order.size());
    if (held > layer->offset || (held < layer->offset && held < layer->max_size)) {
      return Corrupt(numbers + " cannot hold " + std::to_string(held) + " rows");
    }
    if (held < layer->offset) layer->head_rows = layer->keep;
    return {};
  }

  Status ReadQuantized(MlxLayerCache* layer) const {
    KVASIR_TRY(layer->offset, Number(2, 0, "offset"));
    KVASIR_TRY(const int64_t group, Number(3, 1, "group_size"));
    KVASIR_TRY(const int64_t bits, Number(4, 2, "bits"));
    KvLayout& layout = layer->layout;
    layout.kv_heads = static_cast<int>(layer->keys.rows.shape[1]);
    KVASIR_TRY(layout.key_codec, AffineCodec("0", layer->keys, bits, group, &layout.key_dim));
    KVASIR_TRY(layout.value_codec, AffineCodec("1", layer->values, bits, group, &layout.value_dim));
    return OrderAll(layer);
  }

  Result<KvCodec> AffineCodec(const std::string& part, const MlxPlane& plane, int64_t bits,
                              int64_t group, int* dim) const {
    const bool half = plane.scales.dtype == DType::kF16;
    if (!IsFloatType(plane.scales.dtype)) {
      return Corrupt("tensor " + Name(part + ".1") + " must be f32, f16 or bf16");
    }
    // A bf16 is an f32 whose lower half is zero: widened, it is the same number.
    const auto codec = KvCodec::FromName("affine" + std::to_string(bits) + ":" +
                                         std::to_string(group) + (half ? "" : "+f32"));
    const int64_t words = plane.rows.shape[3];
    const int64_t groups = plane.scales.shape[3];
    constexpr int64_t kMaxDim = 1 << 16;
    if (!codec.ok() || groups > kMaxDim / group || words * 32 != groups * group * bits) {
      return Corrupt("tensor " + Name(part + ".0") + " with " + std::to_string(words) +
                     " words and " + std::to_string(groups) + " groups a row cannot have " +
                     std::to_string(bits) + " bits in groups of " + std::to_string(group));
    }
    *dim = static_cast<int>(groups * group);
    return *codec;
  }

  const MlxTensors& tensors_;
  const MlxMetadata& metadata_;
  MlxCacheVersion version_;
  size_t index_;
};

// The entries "<prefix><rest>" as rest -> value.
std::map<std::string, std::string> Below(const MlxMetadata& metadata, const std::string& prefix) {
  std::map<std::string, std::string> found;
  for (auto it = metadata.lower_bound(prefix); it != metadata.end(); ++it) {
    if (!it->first.starts_with(prefix)) break;
    found.emplace(it->first.substr(prefix.size()), it->second);
  }
  return found;
}

}  // namespace

bool IsMlxCache(const MlxMetadata& metadata) {
  // The class of the first cache, which is under 1 or 2.
  for (const char* key : {"1.0", "2.0"}) {
    const auto found = metadata.find(key);
    if (found == metadata.end()) continue;
    if (found->second.ends_with("Cache") || found->second == "CacheList") return true;
  }
  return false;
}

Result<MlxCache> ParseMlxCache(const MlxTensors& tensors, const MlxMetadata& metadata) {
  const auto third = metadata.find("2.0");
  if (!IsMlxCache(metadata) || third == metadata.end()) {
    return Corrupt("it is no prompt cache of mlx-lm: its metadata names no cache classes");
  }
  MlxCache cache;
  // The third tree is a list of scalars that begins with "", or the list of classes.
  cache.version = third->second.empty() ? MlxCacheVersion::kScalars : MlxCacheVersion::kMetaState;
  const bool scalars = cache.version == MlxCacheVersion::kScalars;
  cache.metadata = Below(metadata, scalars ? "0." : "1.");
  const std::map<std::string, std::string> classes = Below(metadata, scalars ? "1." : "2.");
  for (size_t i = 0; i < classes.size(); ++i) {
    const auto name = classes.find(std::to_string(i));
    if (name == classes.end()) {
      return Corrupt("the class of cache " + std::to_string(i) + " is missing");
    }
    KVASIR_TRY(MlxLayerCache layer,
               LayerReader(tensors, metadata, cache.version, i).Read(name->second));
    if (i > 0 && layer.offset != cache.layers[0].offset) {
      return Corrupt("cache " + std::to_string(i) + " is at offset " +
                     std::to_string(layer.offset) + ", the first at " +
                     std::to_string(cache.layers[0].offset));
    }
    cache.layers.push_back(std::move(layer));
  }
  return cache;
}

}  // namespace kvasir
