#include "kvasir/formats/gguf_header.h"

#include <bit>
#include <cstring>
#include <limits>
#include <set>
#include <utility>

namespace kvasir {
namespace {

constexpr std::string_view kMagic = "GGUF";
constexpr uint32_t kMaxDimensions = 4;
// ggml's own limit is 63; a name is only ever shown and compared.
constexpr uint64_t kMaxNameBytes = 1024;
constexpr int64_t kDefaultAlignment = 32;
constexpr int64_t kMaxAlignment = 1 << 20;
constexpr uint64_t kMaxBytes = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());

Error Corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

Status CheckVersion(uint32_t version) {
  if ((version & 0xFFFF) == 0) {
    return {ErrorCode::kUnsupported, "is a big-endian GGUF file; convert it to little-endian"};
  }
  if (version != 2 && version != 3) {
    return {ErrorCode::kUnsupported,
            "is GGUF version " + std::to_string(version) + "; versions 2 and 3 are read"};
  }
  return {};
}

Result<uint64_t> ReadAlignment(const GgufMetadata& metadata) {
  KVASIR_TRY(const int64_t alignment, metadata.IntOr("general.alignment", kDefaultAlignment));
  if (alignment < 1 || alignment > kMaxAlignment ||
      !std::has_single_bit(static_cast<uint64_t>(alignment))) {
    return Corrupt("metadata 'general.alignment' is " + std::to_string(alignment) +
                   ", must be a power of two up to " + std::to_string(kMaxAlignment));
  }
  return static_cast<uint64_t>(alignment);
}

uint64_t AlignedUp(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// The extents, outermost first.
Result<std::vector<int64_t>> ReadShape(BytesReader* reader) {
  KVASIR_TRY(const uint32_t dimensions, reader->Read<uint32_t>("the number of dimensions"));
  if (dimensions < 1 || dimensions > kMaxDimensions) {
    return Corrupt("has " + std::to_string(dimensions) + " dimensions; 1 to 4 are allowed");
  }
  std::vector<int64_t> shape(dimensions);
  for (size_t i = shape.size(); i > 0; --i) {
    KVASIR_TRY(const uint64_t extent, reader->Read<uint64_t>("an extent"));
    if (extent == 0 || extent > kMaxBytes) {
      return Corrupt("has an extent of " + std::to_string(extent));
    }
    shape[i - 1] = static_cast<int64_t>(extent);
  }
  return shape;
}

Result<uint64_t> SizeBytes(const GgufType& type, const std::vector<int64_t>& shape) {
  if (shape.back() % type.block_elements != 0) {
    return Corrupt("has rows of " + std::to_string(shape.back()) + " elements, and " +
                   std::string(type.name) + " needs a multiple of " +
                   std::to_string(type.block_elements));
  }
  auto blocks = static_cast<uint64_t>(shape.back() / type.block_elements);
  uint64_t bytes = static_cast<uint64_t>(type.block_bytes);
  if (blocks > kMaxBytes / bytes) return Corrupt("is larger than 2^63 bytes");
  bytes *= blocks;
  for (size_t i = 0; i + 1 < shape.size(); ++i) {
    const auto extent = static_cast<uint64_t>(shape[i]);
    // ggml holds the number of elements in 63 bits; fewer bytes than elements need the check.
    if (extent > kMaxBytes / 8 / bytes) return Corrupt("is larger than 2^60 bytes");
    bytes *= extent;
  }
  return bytes;
}

// Everything of an entry but its name; begin is still relative to the data.
Status ReadEntry(BytesReader* reader, GgufEntry* entry) {
  KVASIR_TRY(entry->shape, ReadShape(reader));
  KVASIR_TRY(const uint32_t type, reader->Read<uint32_t>("the element type"));
  entry->type = FindGgufType(type);
  if (entry->type == nullptr) {
    // GGUF's own are below.
    constexpr uint32_t kFirstOfForks = 97;
    if (FormerGgufType(type) != nullptr) {
      return {ErrorCode::kUnsupported,
              "has the element type " + std::string(FormerGgufType(type)) +
                  ", which llama.cpp has given up: make the file anew from the model"};
    }
    return Corrupt("has the unknown element type " + std::to_string(type) +
                   (type < kFirstOfForks ? ""
                                         : ", one of a fork of llama.cpp: quantize the model to a "
                                           "type of llama.cpp's, such as Q4_K_M"));
  }
  KVASIR_TRY(entry->begin, reader->Read<uint64_t>("the offset"));
  KVASIR_TRY(entry->size_bytes, SizeBytes(*entry->type, entry->shape));
  return {};
}

Result<std::vector<GgufEntry>> ReadEntries(uint64_t count, BytesReader* reader) {
  std::vector<GgufEntry> entries;
  std::set<std::string, std::less<>> names;
  for (uint64_t i = 0; i < count; ++i) {
    const std::string number = "tensor " + std::to_string(i);
    KVASIR_TRY(const uint64_t name_bytes, reader->Read<uint64_t>(number + "'s name"));
    if (name_bytes == 0 || name_bytes > kMaxNameBytes) {
      return Corrupt(number + " has a name of " + std::to_string(name_bytes) + " bytes");
    }
    KVASIR_TRY(const auto name, reader->ReadSpan(name_bytes, number + "'s name"));
    GgufEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(name.data()), name.size());
    const Status read = ReadEntry(reader, &entry);
    if (!read.ok()) return WithContext(read.error(), "tensor '" + entry.name + "'");
    if (!names.insert(entry.name).second) {
      return Corrupt("tensor '" + entry.name + "' occurs twice");
    }
    entries.push_back(std::move(entry));
  }
  return entries;
}

// As ggml: each tensor begins where the one before ends, padded, in the listed order.
Status Place(uint64_t file_bytes, uint64_t data_begin, uint64_t alignment,
             std::vector<GgufEntry>* entries) {
  uint64_t expected = 0;
  for (GgufEntry& entry : *entries) {
    const std::string where = "tensor '" + entry.name + "'";
    if (entry.begin != expected) {
      return Corrupt(where + " begins at " + std::to_string(entry.begin) + " of the data, not at " +
                     std::to_string(expected) + " where the one before it ends");
    }
    const uint64_t begin = data_begin + expected;
    if (begin > file_bytes || entry.size_bytes > file_bytes - begin) {
      return Corrupt(where + " needs " + std::to_string(entry.size_bytes) + " bytes at " +
                     std::to_string(begin) + ", and the file ends at " +
                     std::to_string(file_bytes) + ": it is truncated");
    }
    expected = AlignedUp(expected + entry.size_bytes, alignment);
    entry.begin = begin;
  }
  return {};
}

}  // namespace

bool BeginsAsGguf(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() &&
         std::memcmp(file.data(), kMagic.data(), kMagic.size()) == 0;
}

Result<GgufHeader> GgufHeader::Parse(std::span<const std::byte> file) {
  BytesReader reader(file);
  KVASIR_TRY_OK(reader.ReadSpan(kMagic.size(), "the magic").status());
  if (!BeginsAsGguf(file)) return Corrupt("does not begin with GGUF");
  KVASIR_TRY(const uint32_t version, reader.Read<uint32_t>("the version"));
  KVASIR_TRY_OK(CheckVersion(version));
  KVASIR_TRY(const uint64_t tensors, reader.Read<uint64_t>("the number of tensors"));
  KVASIR_TRY(const uint64_t pairs, reader.Read<uint64_t>("the number of metadata pairs"));
  GgufHeader header;
  KVASIR_TRY(header.metadata, GgufMetadata::Read(pairs, &reader));
  KVASIR_TRY(const uint64_t alignment, ReadAlignment(header.metadata));
  KVASIR_TRY(header.entries, ReadEntries(tensors, &reader));
  const uint64_t data_begin = AlignedUp(file.size() - reader.remaining(), alignment);
  KVASIR_TRY_OK(Place(file.size(), data_begin, alignment, &header.entries));
  return header;
}

}  // namespace kvasir
