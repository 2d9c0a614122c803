// The prefix tree in a file: what a server knows outlives it.
// Deliberately no format of its own, as cached_sequence_file: docs/formats/kv-snapshot.md, one
// sequence per leaf (and per state that window layers can be gone on from), blocks stored once.
#ifndef KVASIR_ENGINE_PREFIX_CACHE_FILE_H_
#define KVASIR_ENGINE_PREFIX_CACHE_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "kvasir/base/result.h"
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

}  // namespace kvasir

#endif  // KVASIR_ENGINE_PREFIX_CACHE_FILE_H_
