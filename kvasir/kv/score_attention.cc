// Scores by attention weight: under the last observed query, and under the queries to come.
#include <cmath>
#include <cstring>
#include <vector>

#include "kvasir/base/trigonometry.h"
#include "kvasir/kv/score_kinds.h"
#include "kvasir/kv/score_rows.h"

namespace kvasir {
namespace {

constexpr int kFuturePositions = 512;
// Keeps a row of no expected weight and a large value above one of neither (the paper's epsilon).
constexpr float kWeightFloor = 0.01f;

float AttentionScale(const KvLayerSpec& spec) {
  if (spec.attention_scale > 0) return spec.attention_scale;
  return 1.0f / std::sqrt(static_cast<float>(spec.layout.key_dim));
}

int QueryHeads(const KvLayout& layout) { return layout.query_floats / layout.key_dim; }

// [64][query_heads][key_dim]: the queries of the latest 64 tokens, as attention used them.
std::vector<float> ObservedQueries(const ScoredLayer& layer) {
  const KvLayout& layout = layer.spec->layout;
  std::vector<float> queries(static_cast<size_t>(kBlockTokens) * layout.query_floats);
  const std::byte* const block = layer.blocks.block(layout.observed_block);
  std::memcpy(queries.data(), block + layout.BlockAt(layout.observed_block).QueriesOffset(),
              queries.size() * sizeof(float));
  return queries;
}

// What one query head expects: logit = k . mean + sum over i of (k . samples[i])^2.
struct ExpectedQuery {
  std::vector<float> mean;     // [key_dim]
  std::vector<float> samples;  // [n][key_dim], n even or 0
};

// Logits of all rows, one query head after the other: [query_heads][rows].
std::vector<float> Logits(const ScoredLayer& layer, std::span<const ExpectedQuery> heads) {
  const auto rows = static_cast<size_t>(layer.rows());
  const size_t group = heads.size() / static_cast<size_t>(layer.spec->layout.kv_heads);
  std::vector<float> logits(heads.size() * rows);
  KeyTile tile(layer);
  TileLanes sums;
  for (int64_t block = 0; block < tile.blocks(); ++block) {
    tile.Load(block);
    for (size_t head = 0; head < heads.size(); ++head) {
      const int kv_head = static_cast<int>(head / group);
      tile.Dot(kv_head, heads[head].mean.data(), sums);
      tile.AddSquaredDots(kv_head, heads[head].samples, sums);
      std::copy_n(sums.begin(), tile.RowsIn(block),
                  logits.begin() + static_cast<int64_t>(head * rows) + block * kBlockTokens);
    }
  }
  return logits;
}

// [kv_heads][rows]: softmax weights, averaged over the query heads of each kv head.
std::vector<float> Weights(const ScoredLayer& layer, std::span<const ExpectedQuery> heads) {
  const auto rows = static_cast<size_t>(layer.rows());
  const auto kv_heads = static_cast<size_t>(layer.spec->layout.kv_heads);
  const size_t group = heads.size() / kv_heads;
  std::vector<float> logits = Logits(layer, heads);
  std::vector<float> weights(kv_heads * rows);
  for (size_t head = 0; head < heads.size(); ++head) {
    const std::span<float> probabilities = std::span(logits).subspan(head * rows, rows);
    Softmax(probabilities);
    float* const out = weights.data() + head / group * rows;
    for (size_t r = 0; r < rows; ++r) out[r] += probabilities[r] / static_cast<float>(group);
  }
  return weights;
}

// cos and sin per pair of dimensions.
struct Rotation {
  std::vector<float> cos, sin;

  explicit Rotation(size_t pairs) : cos(pairs), sin(pairs) {}
};

// The angle is a float product, as model code computes it.
SinCosResult Turn(Position position, float frequency) {
  return SinCos(static_cast<float>(position) * frequency);
}

Rotation RotationAt(Position position, std::span<const float> inv_freq) {
  Rotation rotation(inv_freq.size());
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    const SinCosResult turn = Turn(position, inv_freq[i]);
    rotation.cos[i] = static_cast<float>(turn.cos);
    rotation.sin[i] = static_cast<float>(turn.sin);
  }
  return rotation;
}

// The mean of the rotations at the next positions: no rotation itself, but linear like one.
Rotation MeanRotation(Position next, std::span<const float> inv_freq) {
  Rotation rotation(inv_freq.size());
  for (size_t i = 0; i < inv_freq.size(); ++i) {
    double cos = 0, sin = 0;
    for (int step = 0; step < kFuturePositions; ++step) {
      const SinCosResult turn = Turn(next + step, inv_freq[i]);
      cos += turn.cos;
      sin += turn.sin;
    }
    rotation.cos[i] = static_cast<float>(cos / kFuturePositions);
    rotation.sin[i] = static_cast<float>(sin / kFuturePositions);
  }
  return rotation;
}

// Turns a query back by `here`, then as `future` says.
void Rerotate(std::span<float> query, const Rotation& here, const Rotation& future) {
  const size_t pairs = here.cos.size();
  for (size_t i = 0; i < pairs; ++i) {
    const float x = query[i] * here.cos[i] + query[i + pairs] * here.sin[i];
    const float y = query[i + pairs] * here.cos[i] - query[i] * here.sin[i];
    query[i] = x * future.cos[i] - y * future.sin[i];
    query[i + pairs] = y * future.cos[i] + x * future.sin[i];
  }
}

// Moment generating function of a normal query (paper, section 3): E[exp(s q.k)] =
// exp(s k.mean + s^2 k.C.k / 2), with C the mean of the centred samples' squares; both factors go
// into the vectors here. samples: [64][dim], rotated.
ExpectedQuery Expect(std::vector<float> samples, size_t dim, float scale) {
  ExpectedQuery query = {.mean = std::vector<float>(dim), .samples = std::move(samples)};
  for (int i = 0; i < kBlockTokens; ++i) {
    for (size_t d = 0; d < dim; ++d) query.mean[d] += query.samples[i * dim + d];
  }
  for (float& x : query.mean) x /= kBlockTokens;
  const float factor = scale / std::sqrt(2.0f * kBlockTokens);
  for (int i = 0; i < kBlockTokens; ++i) {
    for (size_t d = 0; d < dim; ++d) {
      float& x = query.samples[i * dim + d];
      x = (x - query.mean[d]) * factor;
    }
  }
  for (float& x : query.mean) x *= scale;
  return query;
}

std::vector<ExpectedQuery> ExpectedQueries(const ScoredLayer& layer) {
  const KvLayerSpec& spec = *layer.spec;
  const auto dim = static_cast<size_t>(spec.layout.key_dim);
  std::vector<float> queries = ObservedQueries(layer);
  const Rotation future = MeanRotation(layer.next, spec.inv_freq);
  const auto heads = static_cast<size_t>(QueryHeads(spec.layout));
  std::vector<std::vector<float>> samples(heads);
  for (int i = 0; i < kBlockTokens; ++i) {
    const Position position = layer.positions[layer.rows() - kBlockTokens + i];
    const Rotation here = RotationAt(position, spec.inv_freq);
    for (size_t head = 0; head < heads; ++head) {
      const std::span<float> query = std::span(queries).subspan((i * heads + head) * dim, dim);
      Rerotate(query, here, future);
      samples[head].insert(samples[head].end(), query.begin(), query.end());
    }
  }
  std::vector<ExpectedQuery> expected;
  for (auto& of_head : samples) {
    expected.push_back(Expect(std::move(of_head), dim, AttentionScale(spec)));
  }
  return expected;
}

}  // namespace

bool HasObservedQueries(const ScoredLayer& layer) {
  const KvLayout& layout = layer.spec->layout;
  if (layout.observed_block < 0 || layout.query_floats <= 0) return false;
  return layer.rows() == (layout.observed_block + 1) * kBlockTokens &&
         layout.query_floats % (layout.key_dim * layout.kv_heads) == 0;
}

void AddTova(const ScoredLayer& layer, std::span<float> scores) {
  const auto dim = static_cast<size_t>(layer.spec->layout.key_dim);
  const auto heads = static_cast<size_t>(QueryHeads(layer.spec->layout));
  const std::vector<float> queries = ObservedQueries(layer);
  const float scale = AttentionScale(*layer.spec);
  std::vector<ExpectedQuery> last(heads);
  for (size_t head = 0; head < heads; ++head) {
    const float* const query = queries.data() + ((kBlockTokens - 1) * heads + head) * dim;
    for (size_t d = 0; d < dim; ++d) last[head].mean.push_back(query[d] * scale);
  }
  const std::vector<float> weights = Weights(layer, last);
  for (size_t i = 0; i < weights.size(); ++i) scores[i % scores.size()] += weights[i];
}

void AddExpectedAttention(const ScoredLayer& layer, std::span<float> scores) {
  const KvLayout& layout = layer.spec->layout;
  const std::vector<float> weights = Weights(layer, ExpectedQueries(layer));
  const RowReader reader(layer);
  std::vector<float> values(static_cast<size_t>(layout.kv_heads) * layout.value_dim);
  for (size_t row = 0; row < scores.size(); ++row) {
    reader.Value(static_cast<int64_t>(row), values);
    for (int head = 0; head < layout.kv_heads; ++head) {
      const float* const value = values.data() + static_cast<int64_t>(head) * layout.value_dim;
      const float squares =
          LaneSum(layout.value_dim, [&](int64_t d) { return value[d] * value[d]; });
      scores[row] += (weights[head * scores.size() + row] + kWeightFloor) * std::sqrt(squares);
    }
  }
}

}  // namespace kvasir
