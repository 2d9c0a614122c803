// Fuzzes snapshot files: any bytes, with their checksums put right, are refused or become sequences
// that go on, trim and are saved again; as segments of a prefix, too, that are joined and cached.
// Deliberately repairs checksums: a fuzzer that must guess them would only ever test the first one.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/checksum.h"
#include "kvasir/kv/block_map_svg.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/prefix_segment.h"
#include "kvasir/kv/prefix_tree.h"
#include "kvasir/kv/snapshot_file.h"

namespace {

using kvasir::Checksum64;

// Puts size and checksums right, as far as the fields that say where things are fit the file.
class Repairer {
 public:
  explicit Repairer(std::vector<std::byte>* file) : file_(*file) {}

  void Repair() {
    if (file_.size() < 80) return;
    Put(16, file_.size());
    const uint64_t header_bytes = Get(24);
    const uint64_t sequences_bytes = Get(40);
    const uint64_t blocks = Get(56);
    const uint64_t size = file_.size();
    if (header_bytes <= size && sequences_bytes <= size && blocks <= size / 24) {
      const uint64_t sequences_at = (80 + header_bytes + 7) / 8 * 8;
      const uint64_t table_at = (sequences_at + sequences_bytes + 7) / 8 * 8;
      RepairBlocks(table_at, blocks);
      Sum(32, 80, header_bytes);
      Sum(48, sequences_at, sequences_bytes);
      Sum(64, table_at, blocks * 24);
    }
    Sum(72, 0, 72);
  }

 private:
  uint64_t Get(uint64_t at) const {
    uint64_t value;
    std::memcpy(&value, file_.data() + at, sizeof(value));
    return value;
  }
  void Put(uint64_t at, uint64_t value) { std::memcpy(file_.data() + at, &value, sizeof(value)); }
  bool Fits(uint64_t at, uint64_t bytes) const {
    return at <= file_.size() && bytes <= file_.size() - at;
  }
  void Sum(uint64_t at, uint64_t begin, uint64_t bytes) {
    if (Fits(begin, bytes)) Put(at, Checksum64(std::span(file_).subspan(begin, bytes)));
  }
  void RepairBlocks(uint64_t table_at, uint64_t blocks) {
    if (!Fits(table_at, blocks * 24)) return;
    for (uint64_t i = 0; i < blocks; ++i) {
      const uint64_t entry = table_at + i * 24;
      Sum(entry + 16, Get(entry), Get(entry + 8));
    }
  }

  std::vector<std::byte>& file_;
};

void GoOn(kvasir::KvSequence sequence) {
  if (sequence.Reserve(std::min<int64_t>(3, sequence.RunLimit())).ok()) {
    sequence.Advance(sequence.reserved_end() - sequence.position());
  }
  const auto trimmed = sequence.Trim(std::min<int64_t>(5, sequence.MaxTrim()));
  KVASIR_CHECK(trimmed.ok());
  std::string saved;
  const kvasir::Status status = kvasir::WriteSnapshots(
      {{{"again", sequence.Snapshot(), {}}}, {}}, [&saved](std::span<const std::byte> bytes) {
        saved.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
        return kvasir::Status();
      });
  KVASIR_CHECK(status.ok());
  const auto again = kvasir::ReadSnapshots(sequence.pool(), std::as_bytes(std::span(saved)));
  KVASIR_CHECK(again.ok() || again.error().code == kvasir::ErrorCode::kResourceExhausted);
}

// The map and one like it behind it, as two files of a store would have them.
void Join(kvasir::KvPool* pool, const kvasir::KvBlockMap& map) {
  constexpr kvasir::Position kMostTokens = 4096;
  const kvasir::KvBlockMap::Sequence& first = map.sequences[0];
  if (first.end > kMostTokens) return;
  kvasir::KvBlockMap next = map;
  const kvasir::Position tokens = first.end - first.begin;
  next.sequences[0].begin += tokens;
  next.sequences[0].end += tokens;
  for (kvasir::KvBlockMap::List& list : next.sequences[0].lists) {
    if (list.part != kvasir::KvBlockMap::Part::kState) {
      list.first_block += tokens / kvasir::kBlockTokens;
    }
  }
  const kvasir::KvBlockMap maps[] = {map, next};
  for (const size_t count : {size_t{1}, size_t{2}}) {
    const auto joined = kvasir::JoinSegments(map.spec, first.begin, std::span(maps).first(count));
    if (!joined.ok()) {
      KVASIR_CHECK(joined.error().code == kvasir::ErrorCode::kCorrupt);
      continue;
    }
    const auto blocks = kvasir::TakeBlocks(pool, joined->map);
    if (!blocks.ok()) continue;
    for (const kvasir::BlockRef& block : *blocks) {
      std::memset(block.data(), 0, block.get()->owner->block_bytes());
    }
    const auto snapshots = kvasir::MakeSnapshots(pool, joined->map, *blocks);
    KVASIR_CHECK(snapshots.ok());
    const kvasir::KvSnapshot& snapshot = (*snapshots)[0].snapshot;
    kvasir::PrefixTree tree(pool, std::make_shared<const kvasir::KvCacheSpec>(map.spec));
    const std::vector<kvasir::Token> known(static_cast<size_t>(snapshot.end()));
    if (!tree.Insert(0, known, snapshot)) continue;
    auto match = tree.Find(0, known, snapshot.end());
    if (match.ok() && match->tokens > 0) GoOn(std::move(match->sequence));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> file(bytes, bytes + size);
  Repairer(&file).Repair();
  kvasir::KvPoolOptions options;
  options.budget_bytes = size_t{16} << 20;
  kvasir::KvPool pool(std::move(options));
  auto loaded = kvasir::ReadSnapshots(&pool, file);
  if (!loaded.ok()) {
    KVASIR_CHECK(!loaded.error().message.empty() && pool.used_bytes() == 0);
    return 0;
  }
  const auto numbered = kvasir::NumberBlocks(loaded->sequences);
  KVASIR_CHECK(numbered.ok());
  KVASIR_CHECK(!kvasir::BlockMapSvg(numbered->map).empty());
  for (const kvasir::NamedSnapshot& named : loaded->sequences) {
    Join(&pool, kvasir::NumberBlocks(std::span(&named, 1))->map);
    auto sequence = kvasir::KvSequence::Restore(&pool, named.snapshot);
    if (sequence.ok()) GoOn(*std::move(sequence));
  }
  return 0;
}
