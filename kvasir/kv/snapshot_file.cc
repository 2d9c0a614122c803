#include "kvasir/kv/snapshot_file.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kvasir/base/checksum.h"
#include "kvasir/base/file.h"
#include "kvasir/base/file_writer.h"
#include "kvasir/kv/snapshot_file_index.h"
#include "kvasir/kv/snapshot_file_slots.h"

namespace kvasir {
namespace {

using Part = KvBlockMap::Part;

// The bytes of blocks as they go into a file.
class BlockBytesReader {
 public:
  // `numbered` must outlive the reader.
  BlockBytesReader(const NumberedBlocks& numbered, std::span<const NamedSnapshot> snapshots)
      : numbered_(numbered), tails_(numbered.blocks.size()) {
    for (size_t i = 0; i < snapshots.size(); ++i) {
      const KvContent& content = snapshots[i].snapshot.content();
      size_t store = 0;
      for (const KvBlockMap::List& list : numbered.map.sequences[i].lists) {
        if (list.part == Part::kState) continue;
        AddRows(list, RowsOf(content, store++, snapshots[i].snapshot.end()));
      }
    }
  }

  // Valid until the next call.
  std::span<const std::byte> Read(size_t number) {
    const size_t bytes = numbered_.map.block_bytes[number];
    const std::byte* data = numbered_.blocks[number]->data;
    const Tail& tail = tails_[number];
    if (tail.slots == 0 || tail.slots == kBlockTokens) return {data, bytes};
    scratch_.assign(data, data + bytes);
    ClearSlots(tail.layout, scratch_.data(), tail.slots);
    return scratch_;
  }

 private:
  // The slots of a block that any sequence can read; 0: a state, which has none.
  struct Tail {
    int slots = 0;
    KvBlockLayout layout;
  };

  static int64_t RowsOf(const KvContent& content, size_t store, Position end) {
    const KvKeptRows* kept = content.KeptOf(store);
    return kept != nullptr && end < kept->until ? 0 : RowOf(kept, end);
  }

  void AddRows(const KvBlockMap::List& list, int64_t rows) {
    const auto add = [&](const std::vector<uint32_t>& numbers, int64_t first) {
      for (size_t i = 0; i < numbers.size(); ++i) {
        const int64_t index = first + static_cast<int64_t>(i);
        const auto slots =
            static_cast<int>(std::clamp<int64_t>(rows - index * kBlockTokens, 0, kBlockTokens));
        Tail& tail = tails_[numbers[i]];
        if (slots <= tail.slots) continue;
        tail = {slots, numbered_.map.LayoutOf(list, index)};
      }
    };
    add(list.head, list.head_first);
    add(list.blocks, list.first_block);
  }

  const NumberedBlocks& numbered_;
  std::vector<Tail> tails_;
  std::vector<std::byte> scratch_;
};

Status PadTo(uint64_t offset, uint64_t* written, const ByteSink& sink) {
  static constexpr std::byte kZeros[kSnapshotBlockAlignment] = {};
  const uint64_t padding = offset - *written;
  *written = offset;
  return padding == 0 ? Status() : sink(std::span(kZeros).first(padding));
}

uint64_t NextBlock(uint64_t end) {
  return (end + kSnapshotBlockAlignment - 1) / kSnapshotBlockAlignment * kSnapshotBlockAlignment;
}

}  // namespace

Status WriteSnapshots(const KvSnapshotFile& file, const ByteSink& sink) {
  KVASIR_TRY(NumberedBlocks numbered, NumberBlocks(file.sequences));
  numbered.map.metadata = file.metadata;
  BlockBytesReader reader(numbered, file.sequences);
  std::vector<uint64_t> checksums;
  for (size_t i = 0; i < numbered.blocks.size(); ++i) {
    checksums.push_back(Checksum64(reader.Read(i)));
  }
  KVASIR_TRY(const std::string front, SnapshotFileFront(numbered.map, checksums));
  KVASIR_TRY_OK(sink(std::as_bytes(std::span(front))));
  uint64_t written = front.size();
  for (size_t i = 0; i < numbered.blocks.size(); ++i) {
    KVASIR_TRY_OK(PadTo(NextBlock(written), &written, sink));
    KVASIR_TRY_OK(sink(reader.Read(i)));
    written += numbered.map.block_bytes[i];
  }
  return {};
}

Status SaveSnapshots(const KvSnapshotFile& file, const std::string& path) {
  KVASIR_TRY(FileWriter writer, FileWriter::Create(path));
  const Status status = WriteSnapshots(
      file, [&writer](std::span<const std::byte> bytes) { return writer.Append(bytes); });
  if (!status.ok()) {
    return status.error().code == ErrorCode::kInvalidArgument ? WithContext(status.error(), path)
                                                              : status.error();
  }
  return writer.Commit();
}

Result<KvSnapshotFile> ReadSnapshots(KvPool* pool, std::span<const std::byte> bytes) {
  KVASIR_TRY(KvSnapshotIndex index, KvSnapshotIndex::Parse(bytes));
  KVASIR_TRY(const std::vector<BlockRef> blocks, TakeBlocks(pool, index.map));
  for (size_t i = 0; i < blocks.size(); ++i) {
    KVASIR_TRY_OK(index.CheckBlock(bytes, i));
    std::memcpy(blocks[i].data(), bytes.data() + index.places[i].offset, index.places[i].bytes);
  }
  KvSnapshotFile file;
  KVASIR_TRY(file.sequences, MakeSnapshots(pool, index.map, blocks));
  file.metadata = std::move(index.map.metadata);
  return file;
}

Result<KvSnapshotFile> LoadSnapshots(KvPool* pool, const std::string& path) {
  KVASIR_TRY(const MappedFile file, MappedFile::Open(path));
  auto loaded = ReadSnapshots(pool, file.bytes());
  if (!loaded.ok()) return WithContext(loaded.error(), path);
  return loaded;
}

Status SaveSnapshot(const KvSnapshot& snapshot, const std::string& path,
                    const KvSnapshotMeta& meta) {
  return SaveSnapshots({{{"", snapshot, meta.tokens}}, meta.values}, path);
}

Result<LoadedKvSnapshot> LoadSnapshot(KvPool* pool, const std::string& path) {
  KVASIR_TRY(KvSnapshotFile file, LoadSnapshots(pool, path));
  if (file.sequences.size() != 1) {
    return {ErrorCode::kInvalidArgument, path + ": it holds " +
                                             std::to_string(file.sequences.size()) +
                                             " sequences; load them together"};
  }
  NamedSnapshot& only = file.sequences[0];
  return LoadedKvSnapshot{std::move(only.snapshot),
                          {std::move(file.metadata), std::move(only.tokens)}};
}

}  // namespace kvasir
