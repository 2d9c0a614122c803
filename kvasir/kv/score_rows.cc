#include "kvasir/kv/score_rows.h"

#include "kvasir/kv/row_codec.h"

namespace kvasir {

KeyTile::KeyTile(const ScoredLayer& layer)
    : layer_(layer), dim_(layer.spec->layout.key_dim), row_(layer.spec->layout.kv_heads * dim_) {
  keys_.resize(row_.size() * kBlockTokens);
}

void KeyTile::Load(int64_t block) {
  const KvBlockLayout layout = layer_.spec->layout.BlockAt(block);
  const std::byte* const bytes = layer_.blocks.block(block);
  const int64_t rows = RowsIn(block);
  if (rows < kBlockTokens) std::fill(keys_.begin(), keys_.end(), 0.0f);
  for (int64_t slot = 0; slot < rows; ++slot) {
    DecodeKey(layout, bytes, slot, row_);
    for (size_t i = 0; i < row_.size(); ++i) keys_[i * kBlockTokens + slot] = row_[i];
  }
}

void KeyTile::Dot(int index, const float* vector, TileLanes& sums) const {
  sums.fill(0);
  const float* keys = head(index);
  for (int64_t d = 0; d < dim_; ++d, keys += kBlockTokens) {
    for (int t = 0; t < kBlockTokens; ++t) sums[t] += keys[t] * vector[d];
  }
}

void KeyTile::SquaredNorms(int index, TileLanes& sums) const {
  sums.fill(0);
  const float* keys = head(index);
  for (int64_t d = 0; d < dim_; ++d, keys += kBlockTokens) {
    for (int t = 0; t < kBlockTokens; ++t) sums[t] += keys[t] * keys[t];
  }
}

}  // namespace kvasir
