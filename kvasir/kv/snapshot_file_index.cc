#include "kvasir/kv/snapshot_file_index.h"

#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <new>
#include <string_view>
#include <utility>

#include "kvasir/base/bytes.h"
#include "kvasir/base/check.h"
#include "kvasir/base/checksum.h"
#include "kvasir/base/json.h"
#include "kvasir/base/system_info.h"
#include "kvasir/kv/snapshot_file_check.h"
#include "kvasir/kv/snapshot_file_spec.h"

namespace kvasir {
namespace {

constexpr std::string_view kMagic = "KVASIRKV";
constexpr uint64_t kPreludeBytes = 80;
constexpr uint64_t kTableEntryBytes = 24;
// Parsed JSON takes some 25 times its text: this bounds what a hostile header can cost.
constexpr uint64_t kMaxHeaderBytes = uint64_t{16} << 20;

uint64_t Aligned(uint64_t bytes, uint64_t alignment) {
  return (bytes + alignment - 1) / alignment * alignment;
}

std::span<const std::byte> AsBytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

Error Corrupt(std::string what) { return {ErrorCode::kCorrupt, std::move(what)}; }

// --- Writing ---

template <typename T>
void WriteList(BytesWriter& out, const std::vector<T>& values) {
  out.Write(static_cast<uint32_t>(values.size()));
  for (const T value : values) out.Write(value);
}

void WriteSequence(BytesWriter& out, const KvBlockMap::Sequence& sequence) {
  out.Write(static_cast<uint32_t>(sequence.name.size()));
  out.WriteText(sequence.name);
  out.Write(sequence.begin);
  out.Write(sequence.end);
  out.Write(sequence.floor);
  WriteList(out, sequence.tokens);
  for (const KvBlockMap::Budget& budget : sequence.budgets) {
    out.Write(budget.until);
    WriteList(out, budget.positions);
  }
  for (const KvBlockMap::List& list : sequence.lists) {
    out.Write(list.head_first);
    WriteList(out, list.head);
    out.Write(list.first_block);
    WriteList(out, list.blocks);
    if (list.part == KvBlockMap::Part::kState) WriteList(out, list.positions);
  }
}

Result<std::string> HeaderText(const KvBlockMap& map) {
  Json metadata = Json::Object();
  for (const auto& [key, value] : map.metadata) metadata.Set(key, value);
  KVASIR_TRY(Json layers, KvSpecToJson(map.spec));
  Json header;
  header.Set("metadata", std::move(metadata));
  header.Set("layers", std::move(layers));
  std::string text = header.Dump();
  if (text.size() > kMaxHeaderBytes) {
    return {ErrorCode::kInvalidArgument,
            "the cache spec and metadata take " + std::to_string(text.size()) +
                " bytes as JSON, the format allows " + std::to_string(kMaxHeaderBytes) +
                "; give shorter metadata"};
  }
  // What is not UTF-8 would come back as something else.
  const auto again = Json::Parse(text);
  if (!again.ok() || !(*again == header)) {
    return {ErrorCode::kInvalidArgument, "the metadata is not UTF-8 text; encode it as text first"};
  }
  return text;
}

void Pad(BytesWriter& out, uint64_t alignment) {
  while (out.str().size() % alignment != 0) out.Write<uint8_t>(0);
}

// --- Reading ---

struct Prelude {
  uint32_t version = 0;
  uint64_t file_bytes = 0;
  uint64_t header_bytes = 0;
  uint64_t header_checksum = 0;
  uint64_t sequences_bytes = 0;
  uint64_t sequences_checksum = 0;
  uint64_t block_count = 0;
  uint64_t table_checksum = 0;
};

Result<Prelude> ReadPrelude(std::span<const std::byte> front, uint64_t file_bytes) {
  BytesReader reader(front);
  KVASIR_TRY(const auto magic, reader.ReadSpan(kMagic.size(), "magic"));
  if (!std::ranges::equal(magic, AsBytes(kMagic))) {
    return Corrupt("it is not a KV snapshot: it does not begin with " + std::string(kMagic));
  }
  Prelude prelude;
  KVASIR_TRY(prelude.version, reader.Read<uint32_t>("version"));
  if (prelude.version != kSnapshotFileVersion) {
    return {ErrorCode::kUnsupported,
            "its version is " + std::to_string(prelude.version) + ", this build reads version " +
                std::to_string(kSnapshotFileVersion) +
                "; read it with the release that wrote it, or evaluate the tokens again"};
  }
  KVASIR_TRY(const auto flags, reader.Read<uint32_t>("flags"));
  KVASIR_TRY(prelude.file_bytes, reader.Read<uint64_t>("file_bytes"));
  KVASIR_TRY(prelude.header_bytes, reader.Read<uint64_t>("header_bytes"));
  KVASIR_TRY(prelude.header_checksum, reader.Read<uint64_t>("header_checksum"));
  KVASIR_TRY(prelude.sequences_bytes, reader.Read<uint64_t>("sequences_bytes"));
  KVASIR_TRY(prelude.sequences_checksum, reader.Read<uint64_t>("sequences_checksum"));
  KVASIR_TRY(prelude.block_count, reader.Read<uint64_t>("block_count"));
  KVASIR_TRY(prelude.table_checksum, reader.Read<uint64_t>("table_checksum"));
  KVASIR_TRY(const auto checksum, reader.Read<uint64_t>("prelude_checksum"));
  if (checksum != Checksum64(front.first(kPreludeBytes - sizeof(checksum)))) {
    return Corrupt("its first 80 bytes do not have the checksum they name");
  }
  if (flags != 0) return Corrupt("flags is " + std::to_string(flags) + ", it must be 0");
  if (prelude.file_bytes != file_bytes) {
    return Corrupt("file_bytes is " + std::to_string(prelude.file_bytes) + ", the file has " +
                   std::to_string(file_bytes) + " bytes: it was cut short or added to");
  }
  if (prelude.header_bytes > kMaxHeaderBytes) {
    return Corrupt("header_bytes is " + std::to_string(prelude.header_bytes) +
                   ", the format allows " + std::to_string(kMaxHeaderBytes));
  }
  if (prelude.sequences_bytes > file_bytes) {
    return Corrupt("sequences_bytes is " + std::to_string(prelude.sequences_bytes) +
                   ", more than the file can hold");
  }
  if (prelude.block_count > file_bytes / kTableEntryBytes) {
    return Corrupt("block_count is " + std::to_string(prelude.block_count) +
                   ", more than the file can hold");
  }
  return prelude;
}

// Reads on; keeps count of the place, for padding.
class Sections {
 public:
  explicit Sections(std::span<const std::byte> front)
      : reader_(front.subspan(kPreludeBytes)), at_(kPreludeBytes) {}

  uint64_t at() const { return at_; }

  Result<std::span<const std::byte>> Section(uint64_t bytes, uint64_t checksum,
                                             std::string_view name) {
    KVASIR_TRY(const auto section, reader_.ReadSpan(bytes, name));
    at_ += bytes;
    if (Checksum64(section) != checksum) {
      return Corrupt("its " + std::string(name) + " section does not have the checksum it names");
    }
    return section;
  }

  Status Padding(uint64_t alignment) {
    KVASIR_TRY(const auto padding, reader_.ReadSpan(Aligned(at_, alignment) - at_, "padding"));
    at_ += padding.size();
    if (std::ranges::all_of(padding, [](std::byte b) { return b == std::byte{0}; })) return {};
    return Corrupt("its padding before byte " + std::to_string(at_) + " is not zero");
  }

 private:
  BytesReader reader_;
  uint64_t at_;
};

template <typename T>
Result<std::vector<T>> ReadList(BytesReader& reader, std::string_view what) {
  KVASIR_TRY(const auto count, reader.Read<uint32_t>(what));
  // The bytes are there before anything is allocated for them.
  KVASIR_TRY(const auto bytes, reader.ReadSpan(uint64_t{count} * sizeof(T), what));
  std::vector<T> values(count);
  if (count > 0) std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

Status ReadSequence(BytesReader& reader, const KvCacheSpec& spec, KvBlockMap::Sequence* sequence) {
  KVASIR_TRY(const auto name_bytes, reader.Read<uint32_t>("name"));
  KVASIR_TRY(const auto name, reader.ReadSpan(name_bytes, "name"));
  sequence->name.assign(reinterpret_cast<const char*>(name.data()), name.size());
  KVASIR_TRY(sequence->begin, reader.Read<int64_t>("begin"));
  KVASIR_TRY(sequence->end, reader.Read<int64_t>("end"));
  KVASIR_TRY(sequence->floor, reader.Read<int64_t>("floor"));
  KVASIR_TRY(sequence->tokens, ReadList<Token>(reader, "tokens"));
  sequence->budgets = KvBlockMap::BudgetsOf(spec);
  for (KvBlockMap::Budget& budget : sequence->budgets) {
    KVASIR_TRY(budget.until, reader.Read<int64_t>("until"));
    KVASIR_TRY(budget.positions, ReadList<Position>(reader, "kept positions"));
  }
  sequence->lists = KvBlockMap::ListsOf(spec);
  for (KvBlockMap::List& list : sequence->lists) {
    KVASIR_TRY(list.head_first, reader.Read<int64_t>("head_first"));
    KVASIR_TRY(list.head, ReadList<uint32_t>(reader, "head blocks"));
    KVASIR_TRY(list.first_block, reader.Read<int64_t>("first_block"));
    KVASIR_TRY(list.blocks, ReadList<uint32_t>(reader, "blocks"));
    if (list.part != KvBlockMap::Part::kState) continue;
    KVASIR_TRY(list.positions, ReadList<Position>(reader, "checkpoint positions"));
  }
  return {};
}

Status ReadSequences(std::span<const std::byte> section, KvBlockMap* map) {
  BytesReader reader(section);
  KVASIR_TRY(const auto count, reader.Read<uint32_t>("sequence count"));
  for (uint32_t i = 0; i < count; ++i) {
    KvBlockMap::Sequence sequence;
    if (const Status status = ReadSequence(reader, map->spec, &sequence); !status.ok()) {
      return WithContext(status.error(), "sequence " + std::to_string(i));
    }
    map->sequences.push_back(std::move(sequence));
  }
  if (reader.remaining() == 0) return {};
  return Corrupt("its sequences section has " + std::to_string(reader.remaining()) +
                 " bytes after the last sequence");
}

Status ReadHeader(std::span<const std::byte> section, KvBlockMap* map) {
  KVASIR_TRY(const Json header,
             Json::Parse({reinterpret_cast<const char*>(section.data()), section.size()}));
  const Json* metadata = header.Find("metadata");
  const Json* layers = header.Find("layers");
  if (metadata == nullptr || !metadata->is_object() || layers == nullptr) {
    return Corrupt("its header must have the object 'metadata' and the array 'layers'");
  }
  for (const auto& [key, value] : metadata->as_object()) {
    if (!value.is_string()) return Corrupt("metadata '" + key + "' is not a string");
    map->metadata.emplace(key, value.as_string());
  }
  KVASIR_TRY(map->spec, KvSpecFromJson(*layers));
  return {};
}

Status ReadTable(std::span<const std::byte> section, KvSnapshotIndex* index) {
  BytesReader reader(section);
  uint64_t end = index->front_bytes;
  while (reader.remaining() > 0) {
    KvBlockPlace place;
    KVASIR_TRY(place.offset, reader.Read<uint64_t>("offset"));
    KVASIR_TRY(place.bytes, reader.Read<uint64_t>("bytes"));
    KVASIR_TRY(place.checksum, reader.Read<uint64_t>("checksum"));
    const std::string name = "block " + std::to_string(index->places.size());
    if (place.offset != Aligned(end, kSnapshotBlockAlignment) || place.offset > index->file_bytes ||
        place.bytes > index->file_bytes - place.offset) {
      return Corrupt(name + " of " + std::to_string(place.bytes) + " bytes at " +
                     std::to_string(place.offset) + " is not where it must be");
    }
    end = place.offset + place.bytes;
    index->places.push_back(place);
    index->map.block_bytes.push_back(place.bytes);
  }
  if (end == index->file_bytes) return {};
  return Corrupt("the last block ends at " + std::to_string(end) + ", the file at " +
                 std::to_string(index->file_bytes));
}

}  // namespace

bool KvSnapshotIndex::Recognises(std::span<const std::byte> file) {
  return file.size() >= kMagic.size() &&
         std::ranges::equal(file.first(kMagic.size()), AsBytes(kMagic));
}

Result<KvSnapshotIndex> KvSnapshotIndex::Parse(std::span<const std::byte> file) {
  return ParseFront(file, file.size());
}

Result<KvSnapshotIndex> KvSnapshotIndex::Read(const FileReader& file) {
  const uint64_t file_bytes = file.size_bytes();
  std::vector<std::byte> front(std::min(kPreludeBytes, file_bytes));
  KVASIR_TRY_OK(file.Read(0, front));
  const auto prelude = ReadPrelude(front, file_bytes);
  if (!prelude.ok()) return WithContext(prelude.error(), file.path());
  // What the file is too short for is found out next.
  uint64_t wanted = Aligned(kPreludeBytes + prelude->header_bytes, 8);
  wanted = Aligned(wanted + prelude->sequences_bytes, 8);
  wanted += prelude->block_count * kTableEntryBytes;
  const auto bytes = static_cast<size_t>(std::min(wanted, file_bytes));
  // A sparse file claims what it likes and costs nothing. Asked too late the system ends programs.
  const size_t available = AvailableMemoryBytes();
  const bool is_too_much = available > 0 && bytes > available / 2;
  const std::unique_ptr<std::byte[]> all(is_too_much ? nullptr
                                                     : new (std::nothrow) std::byte[bytes]);
  if (all == nullptr) {
    return {ErrorCode::kResourceExhausted, file.path() + ": what is before its blocks takes " +
                                               std::to_string(bytes) +
                                               " bytes of memory, more than there are"};
  }
  KVASIR_TRY_OK(file.Read(0, {all.get(), bytes}));
  auto index = ParseFront({all.get(), bytes}, file_bytes);
  if (!index.ok()) return WithContext(index.error(), file.path());
  return index;
}

Result<KvSnapshotIndex> KvSnapshotIndex::ParseFront(std::span<const std::byte> front,
                                                    uint64_t file_bytes) {
  KVASIR_TRY(const Prelude prelude, ReadPrelude(front, file_bytes));
  KvSnapshotIndex index;
  index.version = prelude.version;
  index.file_bytes = prelude.file_bytes;
  Sections sections(front);
  KVASIR_TRY(const auto header,
             sections.Section(prelude.header_bytes, prelude.header_checksum, "header"));
  KVASIR_TRY_OK(sections.Padding(8));
  KVASIR_TRY(const auto sequences,
             sections.Section(prelude.sequences_bytes, prelude.sequences_checksum, "sequences"));
  KVASIR_TRY_OK(sections.Padding(8));
  KVASIR_TRY(const auto table, sections.Section(prelude.block_count * kTableEntryBytes,
                                                prelude.table_checksum, "block table"));
  KVASIR_TRY_OK(ReadHeader(header, &index.map));
  index.front_bytes = sections.at();
  KVASIR_TRY_OK(ReadTable(table, &index));
  KVASIR_TRY_OK(ReadSequences(sequences, &index.map));
  KVASIR_TRY_OK(CheckBlockMap(index.map));
  return index;
}

Status KvSnapshotIndex::CheckBlock(std::span<const std::byte> file, size_t number) const {
  const KvBlockPlace& place = places[number];
  const uint64_t begin = PaddingOf(number);
  return Check(number, file.subspan(begin, place.offset - begin),
               file.subspan(place.offset, place.bytes));
}

Status KvSnapshotIndex::ReadBlock(const FileReader& file, size_t number,
                                  std::span<std::byte> block) const {
  const KvBlockPlace& place = places[number];
  KVASIR_CHECK(block.size() == place.bytes);
  const uint64_t begin = PaddingOf(number);
  std::array<std::byte, kSnapshotBlockAlignment> padding;
  const auto before = std::span(padding).first(place.offset - begin);
  KVASIR_TRY_OK(file.Read(begin, before));
  KVASIR_TRY_OK(file.Read(place.offset, block));
  const Status checked = Check(number, before, block);
  return checked.ok() ? Status() : WithContext(checked.error(), file.path());
}

Status KvSnapshotIndex::Check(size_t number, std::span<const std::byte> padding,
                              std::span<const std::byte> block) const {
  if (Checksum64(block) != places[number].checksum) {
    return Corrupt("block " + std::to_string(number) + " at byte " +
                   std::to_string(places[number].offset) +
                   " does not have the checksum in the table");
  }
  // What lies between blocks has no checksum: it is known.
  if (std::ranges::all_of(padding, [](std::byte b) { return b == std::byte{0}; })) return {};
  return Corrupt("the padding before block " + std::to_string(number) + " is not zero");
}

Result<std::string> SnapshotFileFront(const KvBlockMap& map, std::span<const uint64_t> checksums) {
  KVASIR_CHECK(checksums.size() == map.block_bytes.size());
  if (checksums.size() > std::numeric_limits<uint32_t>::max()) {
    return {ErrorCode::kInvalidArgument, "a snapshot file holds at most 2^32 - 1 blocks"};
  }
  KVASIR_TRY(const std::string header, HeaderText(map));
  BytesWriter sequences;
  sequences.Write(static_cast<uint32_t>(map.sequences.size()));
  for (const KvBlockMap::Sequence& sequence : map.sequences) WriteSequence(sequences, sequence);

  const uint64_t sequences_at = Aligned(kPreludeBytes + header.size(), 8);
  const uint64_t table_at = Aligned(sequences_at + sequences.str().size(), 8);
  uint64_t end = table_at + kTableEntryBytes * checksums.size();
  BytesWriter table;
  for (size_t i = 0; i < checksums.size(); ++i) {
    const uint64_t offset = Aligned(end, kSnapshotBlockAlignment);
    table.Write(offset);
    table.Write(map.block_bytes[i]);
    table.Write(checksums[i]);
    end = offset + map.block_bytes[i];
  }

  BytesWriter out;
  out.WriteText(kMagic);
  out.Write(kSnapshotFileVersion);
  out.Write<uint32_t>(0);
  out.Write(end);
  out.Write<uint64_t>(header.size());
  out.Write(Checksum64(AsBytes(header)));
  out.Write<uint64_t>(sequences.str().size());
  out.Write(Checksum64(AsBytes(sequences.str())));
  out.Write<uint64_t>(checksums.size());
  out.Write(Checksum64(AsBytes(table.str())));
  out.Write(Checksum64(AsBytes(out.str())));
  out.WriteText(header);
  Pad(out, 8);
  out.WriteText(sequences.str());
  Pad(out, 8);
  out.WriteText(table.str());
  return out.Take();
}

}  // namespace kvasir
