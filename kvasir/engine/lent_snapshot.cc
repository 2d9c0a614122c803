#include "kvasir/engine/lent_snapshot.h"

#include <numeric>
#include <utility>

#include "kvasir/base/file_writer.h"

namespace kvasir {

Status TakenBack() {
  return {ErrorCode::kResourceExhausted,
          "the cache needed the memory for answers; try again when fewer are made"};
}

size_t BlockBytes(const KvBlockMap& map) {
  return std::accumulate(map.block_bytes.begin(), map.block_bytes.end(), size_t{0});
}

Result<std::unique_ptr<LentSnapshot>> LentSnapshot::Make(
    std::vector<NamedSnapshot> snapshots, std::map<std::string, std::string> metadata) {
  KVASIR_TRY(NumberedBlocks numbered, NumberBlocks(snapshots));
  numbered.map.metadata = std::move(metadata);
  return std::unique_ptr<LentSnapshot>(new LentSnapshot(std::move(numbered), std::move(snapshots)));
}

LentSnapshot::LentSnapshot(NumberedBlocks numbered, std::vector<NamedSnapshot> snapshots)
    : numbered_(std::move(numbered)),
      bytes_(BlockBytes(numbered_.map)),
      reader_(&numbered_, snapshots),
      lent_(std::make_shared<LentBlocks>(std::move(snapshots))) {}

Status LentSnapshot::Write(const std::string& path, const FileProgress& progress) {
  KVASIR_TRY(FileWriter writer, FileWriter::Create(path));
  // A copy: the engine must not wait while the disk takes it.
  std::vector<std::byte> block;
  const auto read = [&](size_t number) -> Result<std::span<const std::byte>> {
    KVASIR_TRY_OK(progress());
    const bool is_there = lent_->Use([&] {
      const std::span<const std::byte> bytes = reader_.Read(number);
      block.assign(bytes.begin(), bytes.end());
    });
    if (!is_there) return TakenBack().error();
    return std::span<const std::byte>(block);
  };
  const Status written = WriteSnapshotBlocks(
      numbered_.map, read,
      [&writer](std::span<const std::byte> bytes) { return writer.Append(bytes); });
  if (!written.ok()) {
    const bool is_ours = written.error().code == ErrorCode::kInvalidArgument;
    return is_ours ? WithContext(written.error(), path) : written.error();
  }
  return writer.Commit();
}

Result<std::vector<BlockRef>> TakeBlocks(KvPool* pool, PrefixTree* tree, const KvBlockMap& map) {
  auto blocks = TakeBlocks(pool, map);
  const size_t bytes = BlockBytes(map);
  const size_t budget = pool->budget_bytes();
  const auto fits = [&] { return pool->used_bytes() - tree->nbytes_exclusive() + bytes <= budget; };
  for (bool is_first = true; !blocks.ok() && (!is_first || fits()); is_first = false) {
    const size_t wanted = pool->used_bytes() + bytes;
    if (tree->Evict(wanted > budget ? wanted - budget : 1) == 0) break;
    blocks = TakeBlocks(pool, map);
  }
  return blocks;
}

}  // namespace kvasir
