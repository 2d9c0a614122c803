// Prompt caches of mlx-lm: bring one along, or take one away.
// Deliberately only the cache: the tokens it stands for are not in such a file; whoever loads one
// must know them.
// Which class becomes which retention and codec: docs/formats/mlx-prompt-cache.md.
#ifndef KVASIR_KVIO_MLX_PROMPT_CACHE_H_
#define KVASIR_KVIO_MLX_PROMPT_CACHE_H_

#include <map>
#include <string>

#include "kvasir/base/result.h"
#include "kvasir/kv/kv_pool.h"
#include "kvasir/kv/kv_snapshot.h"
#include "kvasir/kvio/mlx_cache_file.h"

namespace kvasir {

struct MlxPromptCache {
  KvSnapshot snapshot;                          // restorable, begins at 0
  std::map<std::string, std::string> metadata;  // mlx_lm has "model" and "tokenizer_config"
};

// The spec of a cache: KVCache is `all`, RotatingKVCache `window` with its kept rows, both in the
// codec of their element type; QuantizedKVCache is `all` in the affine codec of its bits and group.
KvCacheSpec SpecOfMlxCache(const MlxCache& cache);

// Copies the rows into blocks of `pool`, bit for bit (bf16 scales widened to f32). Where rows of a
// window have left the file, no state before KvContent::floor can be had back by a trim.
// `spec`: what the sequence must be, so that it can join a model's batch; its layers that own rows
// must have layouts and retentions of the file. Null: SpecOfMlxCache.
// ERRORS: kInvalidArgument if the file is not of that spec, naming the layer and both;
// kUnsupported for a head size that blocks cannot hold; kResourceExhausted from the pool.
Result<MlxPromptCache> ImportMlxCache(KvPool* pool, const MlxCache& cache,
                                      const KvCacheSpec* spec = nullptr);
// The same from a file. ERRORS: also those of SafetensorsFile::Open and ParseMlxCache; the message
// names the path.
Result<MlxPromptCache> ImportMlxPromptCache(KvPool* pool, const std::string& path,
                                            const KvCacheSpec* spec = nullptr);

struct MlxExportOptions {
  enum class Loss {
    kRefuse,  // what MLX has no class for is refused
    // Packed rows are decoded into layout.dense_codec where MLX has no class for their codec, and
    // retentions that MLX lacks become `all` where all rows are still held.
    kAccept,
  };

  MlxCacheVersion version = MlxCacheVersion::kScalars;
  Loss loss = Loss::kRefuse;
};

// Writes a snapshot for mlx_lm's load_prompt_cache. Importing it again gives the same rows.
// ERRORS: kUnsupported, naming the layer, its codec or retention, and what can be done;
// kFailedPrecondition from KvSnapshot::Restorable; kIo. Messages name the path.
Status ExportMlxPromptCache(const KvSnapshot& snapshot, const std::string& path,
                            const std::map<std::string, std::string>& metadata = {},
                            const MlxExportOptions& options = {});

}  // namespace kvasir

#endif  // KVASIR_KVIO_MLX_PROMPT_CACHE_H_
