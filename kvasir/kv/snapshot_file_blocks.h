// The blocks of a snapshot file, for those who write it block by block while the pool goes on.
// Deliberately without files and threads: whoever reads a block sees to it that it is still there.
#ifndef KVASIR_KV_SNAPSHOT_FILE_BLOCKS_H_
#define KVASIR_KV_SNAPSHOT_FILE_BLOCKS_H_

#include <cstddef>
#include <functional>
#include <span>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/snapshot_file.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// The bytes of blocks as they go into a file: slots that no sequence can read are zeros.
class SnapshotBlockReader {
 public:
  // `numbered`: of `snapshots`; it must outlive the reader. The snapshots need not, as long as
  // somebody holds the blocks that are read.
  SnapshotBlockReader(const NumberedBlocks* numbered, std::span<const NamedSnapshot> snapshots);

  // Valid until the next call.
  std::span<const std::byte> Read(size_t number);

 private:
  // The slots of a block that any sequence can read; 0: a state, which has none.
  struct Tail {
    int slots = 0;
    KvBlockLayout layout;
  };

  void AddRows(const KvBlockMap::List& list, int64_t rows);

  const NumberedBlocks* numbered_;
  std::vector<Tail> tails_;
  std::vector<std::byte> scratch_;
};

// The bytes of block `number`, valid until the next call. An error ends the writing.
using SnapshotBlockSource = std::function<Result<std::span<const std::byte>>(size_t number)>;

// Writes the file of this map, with its metadata; asks for every block twice, in order.
// ERRORS: kInvalidArgument for metadata that is not UTF-8; those of `read` and `sink`.
Status WriteSnapshotBlocks(const KvBlockMap& map, const SnapshotBlockSource& read,
                           const ByteSink& sink);

// How large that file is. ERRORS: as SnapshotFileFront.
Result<uint64_t> SnapshotFileBytes(const KvBlockMap& map);

}  // namespace kvasir

#endif  // KVASIR_KV_SNAPSHOT_FILE_BLOCKS_H_
