// A layer of random rows in blocks, for tests of row scores.
// Deliberately without a pool or a sequence: scores see blocks only.
#ifndef KVASIR_KV_SCORE_TEST_UTIL_H_
#define KVASIR_KV_SCORE_TEST_UTIL_H_

#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "kvasir/kv/row_codec.h"
#include "kvasir/kv/row_scores.h"

namespace kvasir::kv_testing {

struct ScoreTestLayer {
  KvLayerSpec spec;
  std::vector<std::vector<std::byte>> storage;
  std::vector<std::byte*> blocks;
  std::vector<Position> positions;
  // What was written: [rows][kv_heads][dim].
  std::vector<std::vector<float>> keys;
  std::vector<std::vector<float>> values;

  ScoreTestLayer() = default;
  ScoreTestLayer(const ScoreTestLayer&) = delete;

  ScoredLayer Scored() const {
    return {.spec = &spec,
            .blocks = {.blocks = blocks},
            .positions = positions,
            .next = positions.back() + 1};
  }
  int heads() const { return spec.layout.kv_heads; }
  // Key of one head of one row.
  const float* key(int64_t row, int head) const {
    return keys[row].data() + head * spec.layout.key_dim;
  }
  const float* value(int64_t row, int head) const {
    return values[row].data() + head * spec.layout.value_dim;
  }
  std::vector<float> Scores(RowScore score) const {
    std::vector<float> scores(positions.size(), 0.0f);
    AddRowScores(score, Scored(), scores);
    return scores;
  }
};

// Fills `layer`, whose spec is set, with `rows` normal rows at positions 0, 1, ...; slots past the
// last row hold NaN, so that whoever reads them is found out.
inline void FillRandom(ScoreTestLayer& layer, int64_t rows, uint32_t seed) {
  const KvLayout& layout = layer.spec.layout;
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  const auto draw = [&](int count) {
    std::vector<float> row(static_cast<size_t>(count));
    for (float& x : row) x = normal(random);
    return row;
  };
  layer.positions.resize(static_cast<size_t>(rows));
  std::iota(layer.positions.begin(), layer.positions.end(), 0);
  for (int64_t begin = 0; begin < rows; begin += kBlockTokens) {
    const KvBlockLayout block_layout = layout.BlockAt(begin / kBlockTokens);
    auto& block = layer.storage.emplace_back(block_layout.BlockBytes(), std::byte{0xFF});
    layer.blocks.push_back(block.data());
    for (int64_t row = begin; row < std::min(rows, begin + kBlockTokens); ++row) {
      layer.keys.push_back(draw(layout.kv_heads * layout.key_dim));
      layer.values.push_back(draw(layout.kv_heads * layout.value_dim));
      EncodeRow(block_layout, block.data(), row - begin, layer.keys.back(), layer.values.back());
    }
    if (block_layout.query_floats > 0) {
      const std::vector<float> queries = draw(kBlockTokens * block_layout.query_floats);
      std::memcpy(block.data() + block_layout.QueriesOffset(), queries.data(),
                  queries.size() * sizeof(float));
    }
  }
}

}  // namespace kvasir::kv_testing

#endif  // KVASIR_KV_SCORE_TEST_UTIL_H_
