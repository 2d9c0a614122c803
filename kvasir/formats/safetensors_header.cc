#include "kvasir/formats/safetensors_header.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/json.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {
namespace {

// The reference reader's limit.
constexpr uint64_t kMaxHeaderBytes = 100'000'000;
// A tensor's own JSON is about 100 bytes; a bound keeps the parsed form small whatever it holds.
constexpr size_t kMaxEntryBytes = 16 << 10;
// Training tools keep whole logs in the metadata: some megabytes have been seen.
constexpr size_t kMaxMetadataBytes = 16 << 20;

constexpr std::array<std::pair<std::string_view, DType>, 16> kDTypeNames = {{
    {"F32", DType::kF32},
    {"F16", DType::kF16},
    {"BF16", DType::kBf16},
    {"U8", DType::kU8},
    {"I8", DType::kI8},
    {"I16", DType::kI16},
    {"U16", DType::kU16},
    {"I32", DType::kI32},
    {"U32", DType::kU32},
    {"I64", DType::kI64},
    {"U64", DType::kU64},
    {"F64", DType::kF64},
    {"BOOL", DType::kBool},
    {"F8_E4M3", DType::kF8E4m3},
    {"F8_E5M2", DType::kF8E5m2},
    {"F8_E8M0", DType::kF8E8m0},
}};

Error Corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

// Walks the members of one JSON object and leaves keys and values to Json::Parse, one at a time:
// repeated names stay visible, and memory stays in proportion to what the file really declares.
class MemberScanner {
 public:
  explicit MemberScanner(std::string_view text) : text_(text) {}

  // REQUIRES: called once, before Next.
  Status Open() { return Take('{') ? Status() : Bad("an object was expected"); }

  // False at the end of the object. Key and value are slices of the text, the key with its quotes.
  Result<bool> Next(std::string_view* key, std::string_view* value) {
    if (Take('}')) return AtEnd();
    if (!first_ && !Take(',')) return Bad("',' or '}' was expected").error();
    first_ = false;
    SkipSpace();
    *key = ScanString();
    if (key->empty()) return Bad("a quoted name was expected").error();
    if (!Take(':')) return Bad("':' was expected").error();
    SkipSpace();
    *value = ScanValue();
    return true;
  }

 private:
  Status Bad(std::string_view reason) const {
    return Corrupt("header: " + std::string(reason) + " at byte " + std::to_string(at_));
  }
  Result<bool> AtEnd() {
    SkipSpace();
    if (at_ != text_.size()) return Bad("nothing may follow the object").error();
    return false;
  }
  void SkipSpace() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }
  bool Take(char wanted) {
    SkipSpace();
    if (at_ >= text_.size() || text_[at_] != wanted) return false;
    ++at_;
    return true;
  }
  // Empty when there is no complete string.
  std::string_view ScanString() {
    const size_t begin = at_;
    if (at_ >= text_.size() || text_[at_] != '"') return {};
    for (size_t i = at_ + 1; i < text_.size(); ++i) {
      if (text_[i] == '\\') {
        ++i;
      } else if (text_[i] == '"') {
        at_ = i + 1;
        return text_.substr(begin, at_ - begin);
      }
    }
    return {};
  }
  // Up to the ',' or '}' that ends this member; what is inside is Json::Parse's business.
  std::string_view ScanValue() {
    const size_t begin = at_;
    int64_t depth = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '"') {
        if (ScanString().empty()) at_ = text_.size();
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}')) break;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++at_;
    }
    return text_.substr(begin, at_ - begin);
  }

  std::string_view text_;
  size_t at_ = 0;
  bool first_ = true;
};

Result<std::vector<int64_t>> ReadIntegers(const Json& entry, std::string_view field) {
  const Json* list = entry.Find(field);
  const std::string name(field);
  if (list == nullptr) return Corrupt("field '" + name + "' is missing");
  if (!list->is_array()) return Corrupt("field '" + name + "' must be a list of integers");
  std::vector<int64_t> values;
  for (const Json& element : list->as_array()) {
    if (!element.is_int() || element.as_int() < 0) {
      return Corrupt("field '" + name + "' must hold integers that are not negative");
    }
    values.push_back(element.as_int());
  }
  return values;
}

Result<SafetensorsEntry> ParseEntry(std::string_view text) {
  if (text.size() > kMaxEntryBytes) return Corrupt("its header entry is longer than 16 KiB");
  KVASIR_TRY(const Json json, Json::Parse(text));
  if (!json.is_object()) return Corrupt("its header entry must be an object");
  SafetensorsEntry entry;
  KVASIR_TRY(const std::string dtype, json.GetString("dtype"));
  KVASIR_TRY(entry.dtype, DTypeFromSafetensors(dtype));
  KVASIR_TRY(entry.shape, ReadIntegers(json, "shape"));
  KVASIR_TRY(const std::vector<int64_t> offsets, ReadIntegers(json, "data_offsets"));
  if (offsets.size() != 2) return Corrupt("field 'data_offsets' must hold begin and end");
  entry.begin = static_cast<uint64_t>(offsets[0]);
  entry.end = static_cast<uint64_t>(offsets[1]);
  if (entry.begin > entry.end) return Corrupt("field 'data_offsets' ends before it begins");
  KVASIR_TRY(const uint64_t bytes, DenseTensorBytes(entry.dtype, entry.shape));
  if (bytes != entry.end - entry.begin) {
    return Corrupt("data_offsets span " + std::to_string(entry.end - entry.begin) + " bytes, but " +
                   dtype + " " + ShapeString(entry.shape) + " takes " + std::to_string(bytes));
  }
  return entry;
}

Status ParseMetadata(std::string_view text,
                     std::map<std::string, std::string, std::less<>>* metadata) {
  if (text.size() > kMaxMetadataBytes) return Corrupt("__metadata__ is larger than 16 MiB");
  KVASIR_TRY(Json json, Json::Parse(text));
  if (!json.is_object()) return Corrupt("__metadata__ must be an object of strings");
  for (auto& [key, value] : json.as_object()) {
    if (!value.is_string()) return Corrupt("__metadata__ field '" + key + "' must be a string");
    (*metadata)[key] = value.as_string();
  }
  return {};
}

// Names in messages are cut: a hostile one may be megabytes long.
std::string Quoted(std::string_view name) {
  constexpr size_t kShown = 200;
  if (name.size() <= kShown) return "tensor '" + std::string(name) + "'";
  return "tensor '" + std::string(name.substr(0, kShown)) + "...'";
}

// No holes, no overlaps, nothing after the last tensor: the reference reader's rules.
Status CheckLayout(const std::vector<SafetensorsEntry>& entries, uint64_t data_bytes) {
  uint64_t expected = 0;
  for (const SafetensorsEntry& entry : entries) {
    if (entry.begin != expected) {
      return Corrupt(
          Quoted(entry.name) +
          (entry.begin < expected ? " overlaps the one before: it" : " leaves a hole: it") +
          " begins at " + std::to_string(entry.begin) + " instead of " + std::to_string(expected));
    }
    if (entry.end > data_bytes) {
      return Corrupt(Quoted(entry.name) + " ends at byte " + std::to_string(entry.end) + " of " +
                     std::to_string(data_bytes) + " bytes of data: the file is truncated");
    }
    expected = entry.end;
  }
  if (expected != data_bytes) {
    return Corrupt("the tensors end at byte " + std::to_string(expected) + ", the data at " +
                   std::to_string(data_bytes));
  }
  return {};
}

Status ParseMembers(std::string_view text, SafetensorsHeader* header) {
  MemberScanner scanner(text);
  KVASIR_TRY_OK(scanner.Open());
  std::unordered_set<std::string> seen;
  std::string_view key, value;
  while (true) {
    KVASIR_TRY(const bool more, scanner.Next(&key, &value));
    if (!more) return {};
    auto name = Json::Parse(key);
    if (!name.ok()) return WithContext(name.error(), "header: a tensor's name");
    if (!seen.insert(name->as_string()).second) {
      return Corrupt(Quoted(name->as_string()) + " is declared twice");
    }
    if (name->as_string() == "__metadata__") {
      KVASIR_TRY_OK(ParseMetadata(value, &header->metadata));
      continue;
    }
    auto entry = ParseEntry(value);
    if (!entry.ok()) return WithContext(entry.error(), Quoted(name->as_string()));
    entry->name = name->as_string();
    header->entries.push_back(*std::move(entry));
  }
}

}  // namespace

Result<DType> DTypeFromSafetensors(std::string_view name) {
  for (const auto& [known, dtype] : kDTypeNames) {
    if (known == name) return dtype;
  }
  return {ErrorCode::kUnsupported,
          "element type '" + std::string(name.substr(0, 32)) +
              "' is not supported; convert the tensor to F32, F16 or BF16"};
}

std::string_view SafetensorsDTypeName(DType dtype) {
  for (const auto& [name, known] : kDTypeNames) {
    if (known == dtype) return name;
  }
  KVASIR_CHECK(false);
}

Result<uint64_t> DenseTensorBytes(DType dtype, const std::vector<int64_t>& shape) {
  constexpr uint64_t kMax = std::numeric_limits<int64_t>::max();
  // [huge, huge, 0] is refused, though it is empty: products of its extents would wrap elsewhere.
  uint64_t bytes = DTypeBytes(dtype);
  bool is_empty = false;
  for (const int64_t extent : shape) {
    if (extent < 0) return Corrupt("shape " + ShapeString(shape) + " has a negative extent");
    if (extent == 0) {
      is_empty = true;
    } else if (bytes > kMax / static_cast<uint64_t>(extent)) {
      return Corrupt("shape " + ShapeString(shape) + " is too large");
    } else {
      bytes *= static_cast<uint64_t>(extent);
    }
  }
  return is_empty ? 0 : bytes;
}

Result<SafetensorsHeader> SafetensorsHeader::Parse(std::span<const std::byte> file) {
  if (file.size() < 8) {
    return Corrupt("is " + std::to_string(file.size()) +
                   " bytes long: too short for a safetensors file");
  }
  uint64_t header_bytes;
  std::memcpy(&header_bytes, file.data(), 8);
  if (header_bytes > kMaxHeaderBytes) {
    return Corrupt("header length " + std::to_string(header_bytes) +
                   " is above the limit of 100000000: not a safetensors file?");
  }
  if (header_bytes > file.size() - 8) {
    return Corrupt("header needs " + std::to_string(header_bytes) + " bytes, " +
                   std::to_string(file.size() - 8) + " are left: the file is truncated");
  }
  const std::string_view text(reinterpret_cast<const char*>(file.data()) + 8, header_bytes);
  if (text.empty() || text.front() != '{') return Corrupt("header must begin with '{'");

  SafetensorsHeader header;
  header.data_offset = 8 + header_bytes;
  KVASIR_TRY_OK(ParseMembers(text, &header));
  // Empty tensors share their begin with the tensor after them.
  std::stable_sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  KVASIR_TRY_OK(CheckLayout(header.entries, file.size() - header.data_offset));
  return header;
}

}  // namespace kvasir
