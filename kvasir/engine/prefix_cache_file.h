// The prefix tree in a file: what a server knows outlives it.
// Deliberately no format of its own, as cached_sequence_file: docs/formats/kv-snapshot.md, one
// sequence per leaf (and per state that window layers can be gone on from), blocks stored once.
// The engine's thread waits for the disk: for starts and ends (conversation_file.h does not).
#ifndef KVASIR_ENGINE_PREFIX_CACHE_FILE_H_
#define KVASIR_ENGINE_PREFIX_CACHE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/kv/block_map_snapshots.h"
#include "kvasir/kv/prefix_tree.h"

namespace kvasir {

struct PrefixCacheFileStats {
  int64_t tokens = 0;  // of all sequences; a shared beginning counts in each
  size_t bytes = 0;    // of blocks
};

// Writes what was used last, as far as its blocks have at most `max_bytes` bytes. A file of that
// name is replaced once the new one is complete. Counts as use of what it looks at.
// ERRORS: as SaveSnapshots; with nothing to write, none, and no file is touched.
Result<PrefixCacheFileStats> SavePrefixCache(PrefixTree& tree, const ModelBundle& bundle,
                                             const std::string& path, size_t max_bytes);

// Reads such a file into the bundle's pool and publishes it in `tree`; what was used last then
// counts as used last again. ERRORS: as LoadCachedSequence; the tree is then as it was.
Result<PrefixCacheFileStats> LoadPrefixCache(PrefixTree& tree, ModelBundle& bundle,
                                             const std::string& path);

// Bytes of the blocks of several snapshots, each counted once.
class BlockTally {
 public:
  // Counts those of one more, unless all would be more than `max_bytes` then: false.
  bool Add(const KvSnapshot& snapshot, size_t max_bytes);
  size_t bytes() const { return bytes_; }

 private:
  std::unordered_set<const KvBlock*> counted_;
  size_t bytes_ = 0;
};

// What was said, for those of one salt.
struct SavedConversation {
  uint64_t salt = 0;
  std::vector<Token> tokens;
};

// Whose a sequence of such a file is, by its name.
uint64_t SaltOfName(const std::string& name);
// Publishes what such a file held; `bytes` is what all of its blocks have. The first of the
// sequences that could be goes into `first`, if that is not null; with 0 tokens there was none.
PrefixCacheFileStats PublishStates(PrefixTree& tree, std::span<const NamedSnapshot> states,
                                   size_t bytes, SavedConversation* first);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_CACHE_FILE_H_
