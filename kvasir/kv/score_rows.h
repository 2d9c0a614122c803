// Stored rows as floats, for scores that look into them.
// Deliberately not a cache: a buffer is decoded, used and overwritten.
#ifndef KVASIR_KV_SCORE_ROWS_H_
#define KVASIR_KV_SCORE_ROWS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/kv/row_scores.h"

namespace kvasir {

// One number per row of a block.
using TileLanes = std::array<float, kBlockTokens>;

// The keys of one block, token-minor like the block, so that loops run over rows side by side and
// each row's sum has one order whatever the width of a vector.
class KeyTile {
 public:
  // The layer must outlive the tile.
  explicit KeyTile(const ScoredLayer& layer);

  int64_t blocks() const { return (layer_.rows() + kBlockTokens - 1) / kBlockTokens; }
  // Rows of the layer in a block.
  int64_t RowsIn(int64_t block) const {
    return std::min<int64_t>(kBlockTokens, layer_.rows() - block * kBlockTokens);
  }
  // Decodes a block. Slots past the last row read as 0.
  void Load(int64_t block);
  // [key_dim][64]
  const float* head(int index) const { return keys_.data() + index * dim_ * kBlockTokens; }

  // Per row k . vector, of one head. vector: [key_dim].
  void Dot(int head, const float* vector, TileLanes& sums) const;
  // Per row k . k, of one head.
  void SquaredNorms(int head, TileLanes& sums) const;

 private:
  const ScoredLayer& layer_;
  int64_t dim_;
  std::vector<float> keys_;  // [kv_heads][key_dim][64]
  std::vector<float> row_;   // [kv_heads * key_dim]
};

}  // namespace kvasir

#endif  // KVASIR_KV_SCORE_ROWS_H_
