#include "kvasir/formats/gguf_metadata.h"

#include <charconv>
#include <limits>
#include <utility>

namespace kvasir {
namespace {

constexpr uint64_t kMaxKeyBytes = 65535;
// Vocabularies have a quarter of a million tokens and as many merges. One byte in the file may cost
// sixteen in memory, so this bounds what a hostile file can take to 256 MB.
constexpr uint64_t kMaxElements = uint64_t{1} << 24;

enum ValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

Result<std::string_view> ReadString(BytesReader* reader, std::string_view what) {
  KVASIR_TRY(const uint64_t size_bytes, reader->Read<uint64_t>(what));
  KVASIR_TRY(const auto bytes, reader->ReadSpan(size_bytes, what));
  return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

template <typename T>
Result<int64_t> ReadAs(BytesReader* reader) {
  KVASIR_TRY(const T value, reader->Read<T>("an integer"));
  return static_cast<int64_t>(value);
}

bool IsInteger(uint32_t type) { return type <= kI32 || type == kU64 || type == kI64; }
bool IsFloat(uint32_t type) { return type == kF32 || type == kF64; }

Result<int64_t> ReadInteger(uint32_t type, BytesReader* reader) {
  switch (type) {
    case kU8:
    case kBool:
      return ReadAs<uint8_t>(reader);
    case kI8:
      return ReadAs<int8_t>(reader);
    case kU16:
      return ReadAs<uint16_t>(reader);
    case kI16:
      return ReadAs<int16_t>(reader);
    case kU32:
      return ReadAs<uint32_t>(reader);
    case kI32:
      return ReadAs<int32_t>(reader);
    case kI64:
      return ReadAs<int64_t>(reader);
    default:
      break;
  }
  KVASIR_TRY(const uint64_t value, reader->Read<uint64_t>("an integer"));
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return {ErrorCode::kUnsupported, "is above 2^63 - 1"};
  }
  return static_cast<int64_t>(value);
}

Result<double> ReadNumber(uint32_t type, BytesReader* reader) {
  if (type == kF64) return reader->Read<double>("a number");
  KVASIR_TRY(const float value, reader->Read<float>("a number"));
  return static_cast<double>(value);
}

template <typename T, typename ReadOne>
Result<GgufValue> ReadElements(uint64_t count, const ReadOne& read_one) {
  std::vector<T> values;
  for (uint64_t i = 0; i < count; ++i) {
    KVASIR_TRY(T value, read_one());
    values.push_back(std::move(value));
  }
  return GgufValue(std::move(values));
}

Result<GgufValue> ReadArray(BytesReader* reader, uint64_t* elements_left) {
  KVASIR_TRY(const uint32_t type, reader->Read<uint32_t>("an array's type"));
  KVASIR_TRY(const uint64_t count, reader->Read<uint64_t>("an array's length"));
  if (type == kArray) return {ErrorCode::kUnsupported, "holds arrays in an array"};
  if (count > *elements_left) {
    return {ErrorCode::kUnsupported, "has " + std::to_string(count) + " elements, and a file's " +
                                         "arrays may have " + std::to_string(kMaxElements) +
                                         " in all"};
  }
  *elements_left -= count;
  if (type == kString) {
    return ReadElements<std::string_view>(
        count, [&] { return ReadString(reader, "a string of an array"); });
  }
  if (IsInteger(type) || type == kBool) {
    return ReadElements<int64_t>(count, [&] { return ReadInteger(type, reader); });
  }
  if (IsFloat(type)) {
    return ReadElements<double>(count, [&] { return ReadNumber(type, reader); });
  }
  return {ErrorCode::kCorrupt, "is an array of the unknown type " + std::to_string(type)};
}

Result<GgufValue> ReadValue(BytesReader* reader, uint64_t* elements_left) {
  KVASIR_TRY(const uint32_t type, reader->Read<uint32_t>("a value's type"));
  if (type == kArray) return ReadArray(reader, elements_left);
  if (type == kString) {
    KVASIR_TRY(const std::string_view text, ReadString(reader, "a string"));
    return GgufValue(text);
  }
  if (type == kBool) {
    KVASIR_TRY(const uint8_t flag, reader->Read<uint8_t>("a bool"));
    if (flag > 1) return {ErrorCode::kCorrupt, "is a bool of " + std::to_string(flag)};
    return GgufValue(flag == 1);
  }
  if (IsInteger(type)) {
    KVASIR_TRY(const int64_t value, ReadInteger(type, reader));
    return GgufValue(value);
  }
  if (IsFloat(type)) {
    KVASIR_TRY(const double value, ReadNumber(type, reader));
    return GgufValue(value);
  }
  return {ErrorCode::kCorrupt, "has the unknown type " + std::to_string(type)};
}

std::string KeyText(std::string_view key) {
  return "metadata '" + std::string(key.substr(0, 100)) + "'";
}

Error WrongType(std::string_view key, std::string_view wanted) {
  return {ErrorCode::kCorrupt, KeyText(key) + " must be " + std::string(wanted)};
}

Error Missing(std::string_view key) { return {ErrorCode::kCorrupt, KeyText(key) + " is missing"}; }

}  // namespace

double ShortestDecimal(double value) {
  const auto narrow = static_cast<float>(value);
  if (static_cast<double>(narrow) != value) return value;
  char digits[32];
  const auto end = std::to_chars(digits, digits + sizeof(digits), narrow).ptr;
  std::from_chars(digits, end, value);
  return value;
}

Result<GgufMetadata> GgufMetadata::Read(uint64_t count, BytesReader* reader) {
  GgufMetadata metadata;
  uint64_t elements_left = kMaxElements;
  for (uint64_t i = 0; i < count; ++i) {
    KVASIR_TRY(const std::string_view key, ReadString(reader, "a metadata key"));
    if (key.empty() || key.size() > kMaxKeyBytes) {
      return {ErrorCode::kCorrupt, "metadata key " + std::to_string(i) + " has " +
                                       std::to_string(key.size()) +
                                       " bytes; 1 to 65535 are allowed"};
    }
    auto value = ReadValue(reader, &elements_left);
    if (!value.ok()) return WithContext(value.error(), KeyText(key));
    if (!metadata.values_.emplace(key, *std::move(value)).second) {
      return {ErrorCode::kCorrupt, KeyText(key) + " occurs twice"};
    }
  }
  return metadata;
}

const GgufValue* GgufMetadata::Find(std::string_view key) const {
  const auto found = values_.find(key);
  return found == values_.end() ? nullptr : &found->second;
}

Result<int64_t> GgufMetadata::IntOr(std::string_view key, int64_t otherwise) const {
  return Has(key) ? Int(key) : Result<int64_t>(otherwise);
}

Result<int64_t> GgufMetadata::Int(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* integer = std::get_if<int64_t>(value)) return *integer;
  return WrongType(key, "an integer");
}

Result<double> GgufMetadata::NumberOr(std::string_view key, double otherwise) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return otherwise;
  if (const auto* number = std::get_if<double>(value)) return ShortestDecimal(*number);
  if (const auto* integer = std::get_if<int64_t>(value)) return static_cast<double>(*integer);
  return WrongType(key, "a number");
}

Result<double> GgufMetadata::Number(std::string_view key) const {
  if (!Has(key)) return Missing(key);
  return NumberOr(key, 0.0);
}

Result<bool> GgufMetadata::FlagOr(std::string_view key, bool otherwise) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return otherwise;
  if (const auto* flag = std::get_if<bool>(value)) return *flag;
  return WrongType(key, "a bool");
}

Result<std::string> GgufMetadata::TextOr(std::string_view key, std::string_view otherwise) const {
  return Has(key) ? Text(key) : Result<std::string>(std::string(otherwise));
}

Result<std::string> GgufMetadata::Text(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return Missing(key);
  if (const auto* text = std::get_if<std::string_view>(value)) return std::string(*text);
  return WrongType(key, "a string");
}

Result<int64_t> GgufMetadata::SameInt(std::string_view key) const {
  const GgufValue* value = Find(key);
  const auto* list = value == nullptr ? nullptr : std::get_if<std::vector<int64_t>>(value);
  if (list == nullptr) return Int(key);
  if (list->empty()) return WrongType(key, "an integer or one for each layer");
  for (const int64_t element : *list) {
    if (element != list->front()) {
      return {ErrorCode::kUnsupported,
              KeyText(key) + " differs from layer to layer, which no supported family does"};
    }
  }
  return list->front();
}

Result<std::vector<std::string_view>> GgufMetadata::Strings(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::vector<std::string_view>();
  if (const auto* list = std::get_if<std::vector<std::string_view>>(value)) return *list;
  return WrongType(key, "an array of strings");
}

Result<std::vector<int64_t>> GgufMetadata::Ints(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::vector<int64_t>();
  if (const auto* list = std::get_if<std::vector<int64_t>>(value)) return *list;
  return WrongType(key, "an array of integers");
}

Result<std::vector<double>> GgufMetadata::Numbers(std::string_view key) const {
  const GgufValue* value = Find(key);
  if (value == nullptr) return std::vector<double>();
  if (const auto* list = std::get_if<std::vector<double>>(value)) return *list;
  return WrongType(key, "an array of numbers");
}

}  // namespace kvasir
