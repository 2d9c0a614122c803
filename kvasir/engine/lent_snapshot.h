// Snapshots that another thread writes to a file, and blocks that it fills from one, while the
// engine answers others and may take both back.
// Deliberately without a format of its own: docs/formats/kv-snapshot.md.
#ifndef KVASIR_ENGINE_LENT_SNAPSHOT_H_
#define KVASIR_ENGINE_LENT_SNAPSHOT_H_

#include <cstddef>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/engine/lent_blocks.h"
#include "kvasir/kv/prefix_tree.h"
#include "kvasir/kv/snapshot_file_blocks.h"

namespace kvasir {

// Asked before every block: an error ends the saving or loading and is handed on.
using FileProgress = std::function<Status()>;

// THREADS: Make and the destructor are the pool's, unless lent() was taken back; Write is any.
class LentSnapshot {
 public:
  // ERRORS: as NumberBlocks.
  static Result<std::unique_ptr<LentSnapshot>> Make(std::vector<NamedSnapshot> snapshots,
                                                    std::map<std::string, std::string> metadata);
  LentSnapshot(const LentSnapshot&) = delete;
  LentSnapshot& operator=(const LentSnapshot&) = delete;

  // A file of that name is replaced once the new one is complete. ERRORS: as SaveSnapshots, then
  // nothing is left behind; kResourceExhausted if the blocks were taken back; those of `progress`.
  Status Write(const std::string& path, const FileProgress& progress);

  const KvBlockMap& map() const { return numbered_.map; }
  size_t bytes() const { return bytes_; }  // of its blocks
  const std::shared_ptr<LentBlocks>& lent() const { return lent_; }

 private:
  LentSnapshot(NumberedBlocks numbered, std::vector<NamedSnapshot> snapshots);

  const NumberedBlocks numbered_;
  const size_t bytes_;
  SnapshotBlockReader reader_;
  const std::shared_ptr<LentBlocks> lent_;
};

// What somebody hears whose blocks were taken back.
Status TakenBack();

size_t BlockBytes(const KvBlockMap& map);

// Blocks for what `map` lists, for which what the tree has is evicted; but nothing of it for what
// does not fit beside those who are answered. ERRORS: kResourceExhausted.
Result<std::vector<BlockRef>> TakeBlocks(KvPool* pool, PrefixTree* tree, const KvBlockMap& map);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_LENT_SNAPSHOT_H_
