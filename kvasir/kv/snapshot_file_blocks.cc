#include "kvasir/kv/snapshot_file_blocks.h"

#include <algorithm>
#include <string>

#include "kvasir/base/checksum.h"
#include "kvasir/kv/snapshot_file_index.h"
#include "kvasir/kv/snapshot_file_slots.h"

namespace kvasir {
namespace {

int64_t RowsOf(const KvContent& content, size_t store, Position end) {
  const KvKeptRows* kept = content.KeptOf(store);
  return kept != nullptr && end < kept->until ? 0 : RowOf(kept, end);
}

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

SnapshotBlockReader::SnapshotBlockReader(const NumberedBlocks* numbered,
                                         std::span<const NamedSnapshot> snapshots)
    : numbered_(numbered), tails_(numbered->blocks.size()) {
  for (size_t i = 0; i < snapshots.size(); ++i) {
    const KvContent& content = snapshots[i].snapshot.content();
    size_t store = 0;
    for (const KvBlockMap::List& list : numbered->map.sequences[i].lists) {
      if (list.part == KvBlockMap::Part::kState) continue;
      AddRows(list, RowsOf(content, store++, snapshots[i].snapshot.end()));
    }
  }
}

std::span<const std::byte> SnapshotBlockReader::Read(size_t number) {
  const size_t bytes = numbered_->map.block_bytes[number];
  const std::byte* data = numbered_->blocks[number]->data;
  const Tail& tail = tails_[number];
  if (tail.slots == 0 || tail.slots == kBlockTokens) return {data, bytes};
  scratch_.assign(data, data + bytes);
  ClearSlots(tail.layout, scratch_.data(), tail.slots);
  return scratch_;
}

void SnapshotBlockReader::AddRows(const KvBlockMap::List& list, int64_t rows) {
  const auto add = [&](const std::vector<uint32_t>& numbers, int64_t first) {
    for (size_t i = 0; i < numbers.size(); ++i) {
      const int64_t index = first + static_cast<int64_t>(i);
      const auto slots =
          static_cast<int>(std::clamp<int64_t>(rows - index * kBlockTokens, 0, kBlockTokens));
      Tail& tail = tails_[numbers[i]];
      if (slots <= tail.slots) continue;
      tail = {slots, numbered_->map.LayoutOf(list, index)};
    }
  };
  add(list.head, list.head_first);
  add(list.blocks, list.first_block);
}

Status WriteSnapshotBlocks(const KvBlockMap& map, const SnapshotBlockSource& read,
                           const ByteSink& sink) {
  std::vector<uint64_t> checksums;
  for (size_t i = 0; i < map.block_bytes.size(); ++i) {
    KVASIR_TRY(const auto bytes, read(i));
    checksums.push_back(Checksum64(bytes));
  }
  KVASIR_TRY(const std::string front, SnapshotFileFront(map, checksums));
  KVASIR_TRY_OK(sink(std::as_bytes(std::span(front))));
  uint64_t written = front.size();
  for (size_t i = 0; i < map.block_bytes.size(); ++i) {
    KVASIR_TRY_OK(PadTo(NextBlock(written), &written, sink));
    KVASIR_TRY(const auto bytes, read(i));
    KVASIR_TRY_OK(sink(bytes));
    written += map.block_bytes[i];
  }
  return {};
}

Result<uint64_t> SnapshotFileBytes(const KvBlockMap& map) {
  const std::vector<uint64_t> checksums(map.block_bytes.size());
  KVASIR_TRY(const std::string front, SnapshotFileFront(map, checksums));
  uint64_t bytes = front.size();
  for (const uint64_t block : map.block_bytes) bytes = NextBlock(bytes) + block;
  return bytes;
}

}  // namespace kvasir
