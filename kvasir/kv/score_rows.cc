#include "kvasir/kv/score_rows.h"

#include "kvasir/kv/row_codec.h"

namespace kvasir {

void RowReader::Key(int64_t row, std::span<float> key) {
  const KvLayout& layout = layer_.spec->layout;
  if (layout.key_codec.kind == KvCodec::Kind::kFromValue) {
    value_.resize(static_cast<size_t>(layout.kv_heads) * layout.value_dim);
    Value(row, value_);
    return DeriveKey(*layer_.spec, layer_.positions[row], value_, key);
  }
  DecodeKey(layout.BlockAt(row / kBlockTokens), layer_.blocks.block_of(row), row % kBlockTokens,
            key);
}

void RowReader::Value(int64_t row, std::span<float> value) const {
  DecodeValue(layer_.spec->layout.BlockAt(row / kBlockTokens), layer_.blocks.block_of(row),
              row % kBlockTokens, value);
}

KeyTile::KeyTile(const ScoredLayer& layer)
    : layer_(layer),
      reader_(layer),
      dim_(layer.spec->layout.key_dim),
      row_(layer.spec->layout.kv_heads * dim_) {
  keys_.resize(row_.size() * kBlockTokens);
}

void KeyTile::Load(int64_t block) {
  const int64_t rows = RowsIn(block);
  if (rows < kBlockTokens) std::fill(keys_.begin(), keys_.end(), 0.0f);
  for (int64_t slot = 0; slot < rows; ++slot) {
    reader_.Key(block * kBlockTokens + slot, row_);
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

void KeyTile::AddSquaredDots(int index, std::span<const float> vectors, TileLanes& sums) const {
  // 16 rows against 2 vectors: their sums and one line of keys stay in 16 registers of 4 floats.
  constexpr int kRows = 16;
  const float* const keys = head(index);
  const int64_t count = static_cast<int64_t>(vectors.size()) / dim_;
  for (int64_t v = 0; v + 2 <= count; v += 2) {
    const float* const first = vectors.data() + v * dim_;
    const float* const second = first + dim_;
    for (int begin = 0; begin < kBlockTokens; begin += kRows) {
      float a[kRows] = {}, b[kRows] = {};
      for (int64_t d = 0; d < dim_; ++d) {
        const float* const line = keys + d * kBlockTokens + begin;
        for (int t = 0; t < kRows; ++t) a[t] += line[t] * first[d];
        for (int t = 0; t < kRows; ++t) b[t] += line[t] * second[d];
      }
      for (int t = 0; t < kRows; ++t) sums[begin + t] += a[t] * a[t] + b[t] * b[t];
    }
  }
}

void KeyTile::SquaredNorms(int index, TileLanes& sums) const {
  sums.fill(0);
  const float* keys = head(index);
  for (int64_t d = 0; d < dim_; ++d, keys += kBlockTokens) {
    for (int t = 0; t < kBlockTokens; ++t) sums[t] += keys[t] * keys[t];
  }
}

void Softmax(std::span<float> logits) {
  const float greatest = *std::max_element(logits.begin(), logits.end());
  for (float& x : logits) x = scalar::Exp(x - greatest);
  const float sum =
      LaneSum(static_cast<int64_t>(logits.size()), [&](int64_t i) { return logits[i]; });
  for (float& x : logits) x /= sum;
}

}  // namespace kvasir
