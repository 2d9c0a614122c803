// The prefix tree in a file: what a server knows outlives it.
// Deliberately no format of its own, as cached_sequence_file: docs/formats/kv-snapshot.md, one
// sequence per leaf (and per state that window layers can be gone on from), blocks stored once.
#ifndef KVASIR_ENGINE_PREFIX_CACHE_FILE_H_
#define KVASIR_ENGINE_PREFIX_CACHE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/engine/model_bundle.h"
#include "kvasir/kv/prefix_tree.h"

namespace kvasir {

struct PrefixCacheFileStats {
  int64_t tokens = 0;  // of all sequences; a shared beginning counts in each
  size_t bytes = 0;    // of blocks
};

// Writes what was used last, as far as its blocks have at most `max_bytes` bytes. A file of that
// name is replaced once the new one is complete. Counts as use of what is written.
// ERRORS: as SaveSnapshots; with nothing to write, none, and no file is touched.
Result<PrefixCacheFileStats> SavePrefixCache(PrefixTree& tree, const ModelBundle& bundle,
                                             const std::string& path, size_t max_bytes);

// Reads such a file into the bundle's pool and publishes it in `tree`; what was used last then
// counts as used last again. ERRORS: as LoadCachedSequence; the tree is then as it was.
Result<PrefixCacheFileStats> LoadPrefixCache(PrefixTree& tree, ModelBundle& bundle,
                                             const std::string& path);

// What was said, for those of one salt.
struct SavedConversation {
  uint64_t salt = 0;
  std::vector<Token> tokens;
};

// The same for one conversation: as much of its beginning as the tree has. ERRORS: as
// SavePrefixCache; kFailedPrecondition if nothing of it is cached any more.
Result<PrefixCacheFileStats> SaveConversation(PrefixTree& tree, const ModelBundle& bundle,
                                              const std::string& path,
                                              const SavedConversation& conversation);
// Loads such a file as LoadPrefixCache; `conversation` becomes what it holds, of several the first.
// ERRORS: also kInvalidArgument if something in it was said for another salt than
// `conversation->salt`.
Result<PrefixCacheFileStats> LoadConversation(PrefixTree& tree, ModelBundle& bundle,
                                              const std::string& path,
                                              SavedConversation* conversation);

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_CACHE_FILE_H_
