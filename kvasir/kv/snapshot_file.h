// Snapshots as bytes and files: every codec, retention and state comes back to the same bits, and
// blocks that sequences share are stored once and shared again.
// Deliberately whole files only: who moves runs of blocks makes a file of each (prefix_segment.h).
// Byte by byte: docs/formats/kv-snapshot.md.
#ifndef KVASIR_KV_SNAPSHOT_FILE_H_
#define KVASIR_KV_SNAPSHOT_FILE_H_

#include <cstddef>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_snapshot.h"

namespace kvasir {

// What a file holds: one sequence, a batch, a prompt cache.
struct KvSnapshotFile {
  std::vector<NamedSnapshot> sequences;         // at least one, of one spec and pool
  std::map<std::string, std::string> metadata;  // UTF-8; whatever the writer wants to know again
};

// Takes the next bytes of a file. An error ends the writing and is handed on.
using ByteSink = std::function<Status(std::span<const std::byte>)>;

// Writes the file's bytes in order; needs memory for the list of blocks and one block. The bytes
// are a function of what the sequences can read: slots behind their end are written as zeros.
// ERRORS: kInvalidArgument from NumberBlocks and for metadata that is not UTF-8; those of `sink`.
Status WriteSnapshots(const KvSnapshotFile& file, const ByteSink& sink);
// The same into a file that appears under its name when it is complete.
// ERRORS: also kIo and kNotFound; the message names the path.
Status SaveSnapshots(const KvSnapshotFile& file, const std::string& path);

// Reads such bytes into blocks of `pool`. All but the blocks' checksums is checked before one is
// taken; these are as blocks are read. The snapshots
// have the spec that was saved: sequences restored from them may join a batch of sequences whose
// spec is equal. THREADS: those of the pool.
// ERRORS: kCorrupt, naming the field or block; kUnsupported for another version;
// kResourceExhausted from KvPool::EnsureFree. After an error no block is held.
Result<KvSnapshotFile> ReadSnapshots(KvPool* pool, std::span<const std::byte> bytes);
// The same from a file. ERRORS: also kIo and kNotFound; the message names the path.
Result<KvSnapshotFile> LoadSnapshots(KvPool* pool, const std::string& path);

// --- One sequence ---

struct KvSnapshotMeta {
  std::map<std::string, std::string> values;
  std::vector<Token> tokens;  // of positions [begin, end), or empty
};

struct LoadedKvSnapshot {
  KvSnapshot snapshot;
  KvSnapshotMeta meta;
};

// ERRORS: as SaveSnapshots.
Status SaveSnapshot(const KvSnapshot& snapshot, const std::string& path,
                    const KvSnapshotMeta& meta = {});
// ERRORS: as LoadSnapshots; kInvalidArgument if the file holds several sequences.
Result<LoadedKvSnapshot> LoadSnapshot(KvPool* pool, const std::string& path);

}  // namespace kvasir

#endif  // KVASIR_KV_SNAPSHOT_FILE_H_
