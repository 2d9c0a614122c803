// Stored rows as floats, for scores that look into them.
// Deliberately not a cache: a buffer is decoded, used and overwritten.
#ifndef KVASIR_KV_SCORE_ROWS_H_
#define KVASIR_KV_SCORE_ROWS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/scalar_math.h"
#include "kvasir/kv/row_scores.h"

namespace kvasir {

// Decodes rows of a layer, whatever their blocks look like.
class RowReader {
 public:
  // The layer must outlive the reader.
  explicit RowReader(const ScoredLayer& layer) : layer_(layer) {}

  // key: [kv_heads, key_dim].
  void Key(int64_t row, std::span<float> key);
  // value: [kv_heads, value_dim].
  void Value(int64_t row, std::span<float> value) const;

 private:
  const ScoredLayer& layer_;
  std::vector<float> value_;  // of the key that is derived from it
};

// One number per row of a block.
using TileLanes = std::array<float, kBlockTokens>;

// The keys of one block, token-minor like the block, so that loops run over rows side by side and
// each row's sum has one order whatever the width of a vector.
class KeyTile {
 public:
  // The layer must outlive the tile.
  explicit KeyTile(const ScoredLayer& layer);

  int64_t blocks() const { return BlocksUpTo(layer_.rows()); }
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
  // Adds per row the sum of (k . vector)^2 over vectors, of one head. vectors: [count][key_dim].
  void AddSquaredDots(int head, std::span<const float> vectors, TileLanes& sums) const;
  // Per row k . k, of one head.
  void SquaredNorms(int head, TileLanes& sums) const;

 private:
  const ScoredLayer& layer_;
  RowReader reader_;
  int64_t dim_;
  std::vector<float> keys_;  // [kv_heads][key_dim][64]
  std::vector<float> row_;   // [kv_heads * key_dim]
};

// Sum of term(i) for i < count, in the order of scalar::SumLanes.
template <typename Term>
float LaneSum(int64_t count, Term term) {
  std::array<float, 16> lanes = {};
  int64_t i = 0;
  for (; i + 16 <= count; i += 16) {
    for (int64_t lane = 0; lane < 16; ++lane) lanes[lane] += term(i + lane);
  }
  for (; i < count; ++i) lanes[i % 16] += term(i);
  return scalar::SumLanes(lanes);
}

// In place. Not empty.
void Softmax(std::span<float> logits);

}  // namespace kvasir

#endif  // KVASIR_KV_SCORE_ROWS_H_
