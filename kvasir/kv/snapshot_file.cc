#include "kvasir/kv/snapshot_file.h"

#include <cstring>
#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/base/file_writer.h"
#include "kvasir/kv/snapshot_file_blocks.h"
#include "kvasir/kv/snapshot_file_index.h"

namespace kvasir {

Status WriteSnapshots(const KvSnapshotFile& file, const ByteSink& sink) {
  KVASIR_TRY(NumberedBlocks numbered, NumberBlocks(file.sequences));
  numbered.map.metadata = file.metadata;
  SnapshotBlockReader reader(&numbered, file.sequences);
  return WriteSnapshotBlocks(
      numbered.map,
      [&](size_t number) -> Result<std::span<const std::byte>> { return reader.Read(number); },
      sink);
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

namespace {

// `read`: fills a block with the bytes of that number, and checks them.
template <typename ReadBlock>
Result<KvSnapshotFile> FillBlocks(KvPool* pool, KvSnapshotIndex index, const ReadBlock& read) {
  KVASIR_TRY(const std::vector<BlockRef> blocks, TakeBlocks(pool, index.map));
  for (size_t i = 0; i < blocks.size(); ++i) {
    KVASIR_TRY_OK(read(index, i, std::span(blocks[i].data(), index.places[i].bytes)));
  }
  KvSnapshotFile file;
  KVASIR_TRY(file.sequences, MakeSnapshots(pool, index.map, blocks));
  file.metadata = std::move(index.map.metadata);
  return file;
}

}  // namespace

Result<KvSnapshotFile> ReadSnapshots(KvPool* pool, std::span<const std::byte> bytes) {
  KVASIR_TRY(KvSnapshotIndex index, KvSnapshotIndex::Parse(bytes));
  return FillBlocks(
      pool, std::move(index),
      [bytes](const KvSnapshotIndex& from, size_t number, std::span<std::byte> block) -> Status {
        KVASIR_TRY_OK(from.CheckBlock(bytes, number));
        std::memcpy(block.data(), bytes.data() + from.places[number].offset, block.size());
        return {};
      });
}

Result<KvSnapshotFile> LoadSnapshots(KvPool* pool, const std::string& path) {
  KVASIR_TRY(const FileReader file, FileReader::Open(path));
  const auto loaded = [&]() -> Result<KvSnapshotFile> {
    KVASIR_TRY(KvSnapshotIndex index, KvSnapshotIndex::Read(file));
    return FillBlocks(
        pool, std::move(index),
        [&file](const KvSnapshotIndex& from, size_t number, std::span<std::byte> block) {
          return from.ReadBlock(file, number, block);
        });
  };
  auto snapshots = loaded();
  if (!snapshots.ok() && snapshots.error().code != ErrorCode::kIo) {
    return WithContext(snapshots.error(), path);
  }
  return snapshots;
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
