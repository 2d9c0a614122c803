// What `kvasir inspect` says of a file that holds a cache: our snapshots and mlx-lm's.
// Deliberately loads no block: a file may be larger than memory.
#ifndef KVASIR_CLI_INSPECT_CACHE_H_
#define KVASIR_CLI_INSPECT_CACHE_H_

#include <string>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"

namespace kvasir {

struct CacheReport {
  Json json;         // one object
  std::string text;  // the same for people
  std::string svg;   // the block map; empty unless asked for
  Status damage;     // kCorrupt if a block does not have its checksum; the rest is right
};

// Whether `path` is a file that DescribeCache understands.
bool IsCacheFile(const std::string& path);

enum class BlockMapPicture { kNone, kSvg };
// ERRORS: kCorrupt, kUnsupported and kIo; the message names the path.
Result<CacheReport> DescribeCache(const std::string& path, BlockMapPicture picture);

}  // namespace kvasir

#endif  // KVASIR_CLI_INSPECT_CACHE_H_
