// The tensors and numbers of an mlx-lm prompt cache, checked: what rows a file holds, and where.
// Deliberately without our cache and without files: a map of tensors in, places of rows out.
// The two ways mlx-lm has written them: docs/formats/mlx-prompt-cache.md.
#ifndef KVASIR_KVIO_MLX_CACHE_FILE_H_
#define KVASIR_KVIO_MLX_CACHE_FILE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/base/token.h"
#include "kvasir/tensor/kv_layout.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {

// What SafetensorsFile has.
using MlxTensors = std::map<std::string, TensorView, std::less<>>;
using MlxMetadata = std::map<std::string, std::string, std::less<>>;

// Which mlx-lm wrote a file.
enum class MlxCacheVersion {
  kMetaState,  // up to 0.32.0: arrays cut to their rows, numbers as metadata
  kScalars,    // from 0.32.1 on: whole buffers, numbers as arrays
};

// K or V of one cache: [1, kv_heads, buffer rows, ...].
struct MlxPlane {
  TensorView rows;    // elements, or packed words
  TensorView scales;  // quantized only
  TensorView biases;

  int64_t buffer_rows() const { return rows.shape[2]; }
};

// One cache of the list, whose numbers and shapes fit together.
struct MlxLayerCache {
  enum class Kind { kAll, kRotating, kQuantized };
  Kind kind = Kind::kAll;
  // Shape and codec: f32, f16 or bf16 as stored; affine with f32 scales for bf16 ones.
  KvLayout layout;
  MlxPlane keys;
  MlxPlane values;
  Position offset = 0;   // tokens so far
  int64_t max_size = 0;  // kRotating
  int64_t keep = 0;      // kRotating: the first rows, which never leave

  // Buffer row of each row held, in temporal order: those of the positions [0, head_rows), then
  // those of [tail_begin(), offset).
  std::vector<int64_t> order;
  int64_t head_rows = 0;

  Position tail_begin() const { return offset - (static_cast<int64_t>(order.size()) - head_rows); }
};

struct MlxCache {
  MlxCacheVersion version = MlxCacheVersion::kScalars;
  std::vector<MlxLayerCache> layers;  // at least one, all with the same offset
  // What the writer added: mlx_lm has "model" and "tokenizer_config".
  std::map<std::string, std::string> metadata;
};

// Whether the metadata of a safetensors file is that of a prompt cache.
bool IsMlxCache(const MlxMetadata& metadata);

// The views point to where those of `tensors` do.
// ERRORS: kCorrupt, naming the tensor or the metadata key; kUnsupported for a cache class that
// holds other things than rows of one sequence, by name.
Result<MlxCache> ParseMlxCache(const MlxTensors& tensors, const MlxMetadata& metadata);

}  // namespace kvasir

#endif  // KVASIR_KVIO_MLX_CACHE_FILE_H_
