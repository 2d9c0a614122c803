// One row of all heads between MLX's tensors and our blocks, without going through floats.
// Deliberately row by row: a file's rows are copied once.
#ifndef KVASIR_KVIO_MLX_ROWS_H_
#define KVASIR_KVIO_MLX_ROWS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvasir/kvio/mlx_cache_file.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {

// Copies buffer row `row` of `layer` into slot `slot` of a block. REQUIRES: `layout` has the shape
// and codecs of layer.layout.
void MlxRowToBlock(const MlxLayerCache& layer, int64_t row, const KvBlockLayout& layout,
                   std::byte* block, int slot);

// The bytes of one head's row as MLX stores it.
struct MlxRowBytes {
  std::vector<std::byte> rows;    // elements or packed words
  std::vector<std::byte> scales;  // affine only
  std::vector<std::byte> biases;
};
// Appends the row in `slot` of head `head`. REQUIRES: dense or affine codec, not rotated.
void AppendKeyRow(const KvBlockLayout& layout, const std::byte* block, int head, int slot,
                  MlxRowBytes* out);
void AppendValueRow(const KvBlockLayout& layout, const std::byte* block, int head, int slot,
                    MlxRowBytes* out);

}  // namespace kvasir

#endif  // KVASIR_KVIO_MLX_ROWS_H_
