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

// Of blocks that were filled.
Result<KvSnapshotFile> FileOf(KvPool* pool, KvBlockMap map, const std::vector<BlockRef>& blocks) {
  KvSnapshotFile file;
  KVASIR_TRY(file.sequences, MakeSnapshots(pool, map, blocks));
  file.metadata = std::move(map.metadata);
  return file;
}

}  // namespace

Result<KvSnapshotFile> ReadSnapshots(KvPool* pool, std::span<const std::byte> bytes) {
  KVASIR_TRY(KvSnapshotIndex index, KvSnapshotIndex::Parse(bytes));
  KVASIR_TRY(const std::vector<BlockRef> blocks, TakeBlocks(pool, index.map));
  for (size_t i = 0; i < blocks.size(); ++i) {
    KVASIR_TRY_OK(index.CheckBlock(bytes, i));
    std::memcpy(blocks[i].data(), bytes.data() + index.places[i].offset, index.places[i].bytes);
  }
  return FileOf(pool, std::move(index.map), blocks);
}

Result<KvSnapshotFile> LoadSnapshots(KvPool* pool, const std::string& path) {
  KVASIR_TRY(const FileReader file, FileReader::Open(path));
  KVASIR_TRY(KvSnapshotIndex index, KvSnapshotIndex::Read(file));
  const auto blocks = TakeBlocks(pool, index.map);
  if (!blocks.ok()) return WithContext(blocks.error(), path);
  for (size_t i = 0; i < blocks->size(); ++i) {
    KVASIR_TRY_OK(index.ReadBlock(file, i, {(*blocks)[i].data(), index.places[i].bytes}));
  }
  auto loaded = FileOf(pool, std::move(index.map), *blocks);
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
