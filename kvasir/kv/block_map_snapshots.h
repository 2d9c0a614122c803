// Between snapshots, which hold references to blocks, and block maps, which hold their numbers.
// Deliberately without files: what carries the blocks' bytes from here to there is others' business
// (snapshot_file.h, kvio).
#ifndef KVASIR_KV_BLOCK_MAP_SNAPSHOTS_H_
#define KVASIR_KV_BLOCK_MAP_SNAPSHOTS_H_

#include <span>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/kv/block_map.h"
#include "kvasir/kv/kv_batch.h"
#include "kvasir/kv/kv_snapshot.h"

namespace kvasir {

struct NamedSnapshot {
  std::string name;
  KvSnapshot snapshot;
  std::vector<Token> tokens;  // of positions [begin, end); or empty, where nobody knows them
};

struct NumberedBlocks {
  KvBlockMap map;
  std::vector<const KvBlock*> blocks;  // by number; borrowed from the snapshots
};

// Numbers the blocks of all snapshots in the order in which they are referenced; a shared block
// has one number. ERRORS: kInvalidArgument unless all are of one spec and pool, and their tokens
// are as many as positions.
Result<NumberedBlocks> NumberBlocks(std::span<const NamedSnapshot> snapshots);

// The sequences of a batch, named by their ids.
std::vector<NamedSnapshot> SnapshotsOf(const KvBatch& batch);

// One block of each number's size, with undefined bytes.
// ERRORS: kResourceExhausted from KvPool::EnsureFree: then none was taken.
Result<std::vector<BlockRef>> TakeBlocks(KvPool* pool, const KvBlockMap& map);

// The snapshots of a map, with blocks[n] for block n. They may be merged with and restored beside
// any of the same spec and pool.
// REQUIRES: CheckBlockMap(map) is OK, blocks of `pool` in the sizes of the map.
Result<std::vector<NamedSnapshot>> MakeSnapshots(KvPool* pool, const KvBlockMap& map,
                                                 std::span<const BlockRef> blocks);

}  // namespace kvasir

#endif  // KVASIR_KV_BLOCK_MAP_SNAPSHOTS_H_
