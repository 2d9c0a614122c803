#include "kvasir/kv/row_scores.h"

#include <algorithm>
#include <cstring>

#include "kvasir/base/check.h"
#include "kvasir/base/rng.h"
#include "kvasir/kv/score_kinds.h"

namespace kvasir {
namespace {

// The norms plane holds each row's sum over heads already.
void AddStoredNorms(const ScoredLayer& layer, float sign, std::span<float> scores) {
  const KvLayout& layout = layer.spec->layout;
  float norms[kBlockTokens];
  for (int64_t begin = 0; begin < layer.rows(); begin += kBlockTokens) {
    const int64_t block = begin / kBlockTokens;
    std::memcpy(norms, layer.blocks.block(block) + layout.BlockAt(block).NormsOffset(),
                sizeof(norms));
    const int64_t count = std::min<int64_t>(kBlockTokens, layer.rows() - begin);
    for (int64_t slot = 0; slot < count; ++slot) scores[begin + slot] += sign * norms[slot];
  }
}

void AddRandom(const ScoredLayer& layer, std::span<float> scores) {
  for (size_t row = 0; row < scores.size(); ++row) {
    const auto position = static_cast<uint64_t>(layer.positions[row]);
    const uint32_t bits = Philox4x32(layer.salt, position)[0];
    scores[row] += static_cast<float>(bits >> 8) * 0x1p-24f;
  }
}

void AddPositions(const ScoredLayer& layer, std::span<float> scores) {
  // Rounding keeps the order, and equal sums are ranked by position.
  for (size_t row = 0; row < scores.size(); ++row) {
    scores[row] += static_cast<float>(layer.positions[row]);
  }
}

}  // namespace

bool NeedsQueries(RowScore score) {
  return score == RowScore::kTova || score == RowScore::kExpectedAttention;
}

bool UsesKeyNorms(RowScore score) {
  return score == RowScore::kKnorm || score == RowScore::kKnormHigh;
}

void AddRowScores(RowScore score, const ScoredLayer& layer, std::span<float> scores) {
  KVASIR_CHECK(scores.size() == layer.positions.size());
  if (scores.empty()) return;
  if (NeedsQueries(score) && !HasObservedQueries(layer)) score = RowScore::kKeyDiff;
  switch (score) {
    case RowScore::kKnorm:
    case RowScore::kKnormHigh: {
      const float sign = score == RowScore::kKnorm ? -1.0f : 1.0f;
      if (layer.spec->layout.key_norms) return AddStoredNorms(layer, sign, scores);
      return AddKeyNorms(layer, sign, scores);
    }
    case RowScore::kKeyDiff:
      return AddKeyDiff(layer, scores);
    case RowScore::kLagKv:
      return AddLagKv(layer, scores);
    case RowScore::kStreaming:
      return AddPositions(layer, scores);
    case RowScore::kTova:
      return AddTova(layer, scores);
    case RowScore::kExpectedAttention:
      return AddExpectedAttention(layer, scores);
    case RowScore::kRandom:
      return AddRandom(layer, scores);
  }
}

}  // namespace kvasir
