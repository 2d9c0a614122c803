#include "kvasir/cli/trace_tensor.h"

#include <limits>

namespace kvasir {
namespace {

// Keeps the arithmetic of generated tensors within 64 bits.
constexpr int64_t kMaxGenerated = int64_t{1} << 32;
constexpr int64_t kMaxElements = int64_t{1} << 28;

Result<std::vector<int64_t>> ReadShape(const Json& json) {
  KVASIR_TRY(const Json* shape, TraceMember(json, "shape"));
  if (!shape->is_array()) return MalformedTrace("'shape' must be a list");
  std::vector<int64_t> extents;
  int64_t count = 1;
  for (const Json& extent : shape->as_array()) {
    if (!extent.is_int() || extent.as_int() < 0 || extent.as_int() > (1 << 24)) {
      return MalformedTrace("a shape must hold small integers");
    }
    extents.push_back(extent.as_int());
    count *= extent.as_int();
    if (count > kMaxElements) return MalformedTrace("a tensor is too large");
  }
  return extents;
}

Result<std::vector<float>> Generate(const Json& json, const std::vector<int64_t>& shape) {
  KVASIR_TRY(const int64_t salt, json.GetInt("salt"));
  KVASIR_TRY(const int64_t position, json.GetInt("pos"));
  if (shape.size() != 3) return MalformedTrace("a generated tensor has 3 dimensions");
  if (salt < 0 || salt > kMaxGenerated || position < 0 || position > kMaxGenerated) {
    return MalformedTrace("'salt' and 'pos' must be small and not negative");
  }
  std::vector<float> data;
  for (int64_t i = 0; i < shape[0]; ++i) {
    for (int64_t h = 0; h < shape[1]; ++h) {
      for (int64_t d = 0; d < shape[2]; ++d) {
        const int64_t value = ((position + i) * 131 + h * 31 + d * 17 + salt) % 257 - 128;
        data.push_back(static_cast<float>(value) / 64);
      }
    }
  }
  return data;
}

// The numbers of 'data', as many as the shape says.
Result<const Json::Array*> ReadData(const Json& json, const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t extent : shape) count *= extent;
  KVASIR_TRY(const Json* data, TraceMember(json, "data"));
  if (!data->is_array() || static_cast<int64_t>(data->as_array().size()) != count) {
    return MalformedTrace("'data' does not fit 'shape'");
  }
  for (const Json& value : data->as_array()) {
    if (!value.is_number()) return MalformedTrace("'data' must hold numbers");
  }
  return &data->as_array();
}

}  // namespace

Error MalformedTrace(const std::string& what) { return {ErrorCode::kCorrupt, "trace: " + what}; }

Result<const Json*> TraceMember(const Json& object, std::string_view key) {
  const Json* member = object.Find(key);
  if (member == nullptr) return MalformedTrace("field '" + std::string(key) + "' is missing");
  return member;
}

Result<std::vector<std::string>> TraceNames(const Json& array) {
  std::vector<std::string> out;
  if (!array.is_array()) return MalformedTrace("a list of ids is expected");
  for (const Json& item : array.as_array()) {
    if (!item.is_string()) return MalformedTrace("an id must be a string");
    out.push_back(item.as_string());
  }
  return out;
}

Result<TraceTensor<float>> ReadFloatTensor(const Json& json) {
  TraceTensor<float> tensor;
  KVASIR_TRY(tensor.shape, ReadShape(json));
  if (json.Find("gen") != nullptr) {
    KVASIR_TRY(tensor.data, Generate(json, tensor.shape));
    return tensor;
  }
  KVASIR_TRY(const Json::Array* data, ReadData(json, tensor.shape));
  for (const Json& value : *data) tensor.data.push_back(static_cast<float>(value.as_double()));
  return tensor;
}

Result<TraceTensor<uint32_t>> ReadWordTensor(const Json& json) {
  TraceTensor<uint32_t> tensor;
  KVASIR_TRY(tensor.shape, ReadShape(json));
  KVASIR_TRY(const Json::Array* data, ReadData(json, tensor.shape));
  for (const Json& value : *data) {
    if (!value.is_int() || value.as_int() < 0 ||
        value.as_int() > std::numeric_limits<uint32_t>::max()) {
      return MalformedTrace("words must be integers below 2^32");
    }
    tensor.data.push_back(static_cast<uint32_t>(value.as_int()));
  }
  return tensor;
}

}  // namespace kvasir
