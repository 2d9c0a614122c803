// The front of a snapshot file: everything but the blocks' bytes, as a KvBlockMap and back.
// Deliberately knows no pool: `kvasir inspect` reads files that no memory could hold.
// Byte by byte: docs/formats/kv-snapshot.md.
#ifndef KVASIR_KV_SNAPSHOT_FILE_INDEX_H_
#define KVASIR_KV_SNAPSHOT_FILE_INDEX_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/result.h"
#include "kvasir/kv/block_map.h"

namespace kvasir {

inline constexpr uint32_t kSnapshotFileVersion = 2;
// Where blocks begin: at multiples of this.
inline constexpr uint64_t kSnapshotBlockAlignment = 64;

// Where the bytes of a block are in the file.
struct KvBlockPlace {
  uint64_t offset = 0;
  uint64_t bytes = 0;
  uint64_t checksum = 0;  // Checksum64
};

struct KvSnapshotIndex {
  uint32_t version = kSnapshotFileVersion;
  KvBlockMap map;
  std::vector<KvBlockPlace> places;  // by block number
  uint64_t front_bytes = 0;          // up to the end of the block table
  uint64_t file_bytes = 0;

  // Whether these bytes begin like a snapshot file.
  static bool Recognises(std::span<const std::byte> file);
  // Reads and checks all but the blocks' bytes; what it returns can be loaded. `file` is the whole
  // file: its size must be the one the front says.
  // ERRORS: kCorrupt, naming the field; kUnsupported for a newer version.
  static Result<KvSnapshotIndex> Parse(std::span<const std::byte> file);
  // The same of a file, of which only that is read. ERRORS: also kIo, kResourceExhausted; the
  // message names the path.
  static Result<KvSnapshotIndex> Read(const FileReader& file);
  // OK if the bytes of block `number` are those that were written. ERRORS: kCorrupt.
  Status CheckBlock(std::span<const std::byte> file, size_t number) const;
  // Reads and checks block `number`. ERRORS: kCorrupt, kIo; the message names the path.
  // REQUIRES: `block` has its size.
  Status ReadBlock(const FileReader& file, size_t number, std::span<std::byte> block) const;

 private:
  // `front`: the file's first bytes, as many as are needed.
  static Result<KvSnapshotIndex> ParseFront(std::span<const std::byte> front, uint64_t file_bytes);
  // Where the padding before the block begins.
  uint64_t PaddingOf(size_t number) const {
    return number == 0 ? front_bytes : places[number - 1].offset + places[number - 1].bytes;
  }
  Status Check(size_t number, std::span<const std::byte> padding,
               std::span<const std::byte> block) const;
};

// The front of the file for these sequences; `checksums` has one per block. The blocks follow, in
// order of their numbers, each at the next multiple of 64, with zeros between.
// ERRORS: kInvalidArgument for what the format cannot hold.
Result<std::string> SnapshotFileFront(const KvBlockMap& map, std::span<const uint64_t> checksums);

}  // namespace kvasir

#endif  // KVASIR_KV_SNAPSHOT_FILE_INDEX_H_
