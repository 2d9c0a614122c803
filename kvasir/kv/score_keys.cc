// Scores that read keys only: their norms, and how unlike the average key they are.
#include <cmath>
#include <vector>

#include "kvasir/kv/score_kinds.h"
#include "kvasir/kv/score_rows.h"

namespace kvasir {
namespace {

// 1 / |k| per row; a zero key has no direction and gets 0.
void InverseNorms(const KeyTile& tile, int head, TileLanes& inverse) {
  tile.SquaredNorms(head, inverse);
  for (float& x : inverse) x = x > 0 ? 1.0f / std::sqrt(x) : 0.0f;
}

// Adds the sum of k / |k| over the tile's rows to anchor[key_dim].
void AddDirections(const KeyTile& tile, int head, std::span<float> anchor) {
  TileLanes inverse;
  InverseNorms(tile, head, inverse);
  const float* keys = tile.head(head);
  for (float& sum : anchor) {
    std::array<float, 16> lanes = {};
    for (int t = 0; t < kBlockTokens; t += 16) {
      for (int i = 0; i < 16; ++i) lanes[i] += keys[t + i] * inverse[t + i];
    }
    float total = 0;
    for (const float lane : lanes) total += lane;
    sum += total;
    keys += kBlockTokens;
  }
}

// A vector of zeros stays one: then no key is like or unlike it.
void Normalize(std::span<float> vector) {
  float squares = 0;
  for (const float x : vector) squares += x * x;
  if (!(squares > 0)) return;
  const float norm = std::sqrt(squares);
  for (float& x : vector) x /= norm;
}

}  // namespace

void AddKeyNorms(const ScoredLayer& layer, float sign, std::span<float> scores) {
  KeyTile tile(layer);
  TileLanes squares;
  for (int64_t block = 0; block < tile.blocks(); ++block) {
    tile.Load(block);
    float* const out = scores.data() + block * kBlockTokens;
    for (int head = 0; head < layer.spec->layout.kv_heads; ++head) {
      tile.SquaredNorms(head, squares);
      for (int64_t t = 0; t < tile.RowsIn(block); ++t) out[t] += sign * std::sqrt(squares[t]);
    }
  }
}

void AddKeyDiff(const ScoredLayer& layer, std::span<float> scores) {
  const int heads = layer.spec->layout.kv_heads;
  const auto dim = static_cast<size_t>(layer.spec->layout.key_dim);
  KeyTile tile(layer);
  std::vector<float> anchors(heads * dim);
  const auto anchor = [&](int head) { return std::span(anchors).subspan(head * dim, dim); };
  for (int64_t block = 0; block < tile.blocks(); ++block) {
    tile.Load(block);
    for (int head = 0; head < heads; ++head) AddDirections(tile, head, anchor(head));
  }
  // The cosine does not change with the anchor's length, so the sum serves as the mean.
  for (int head = 0; head < heads; ++head) Normalize(anchor(head));

  TileLanes inverse, dots;
  for (int64_t block = 0; block < tile.blocks(); ++block) {
    tile.Load(block);
    float* const out = scores.data() + block * kBlockTokens;
    for (int head = 0; head < heads; ++head) {
      InverseNorms(tile, head, inverse);
      tile.Dot(head, anchor(head).data(), dots);
      for (int64_t t = 0; t < tile.RowsIn(block); ++t) out[t] -= dots[t] * inverse[t];
    }
  }
}

}  // namespace kvasir
