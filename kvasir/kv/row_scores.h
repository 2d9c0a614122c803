// How much each row of a layer deserves to stay: the scores that a budget ranks rows by.
// Deliberately only scores: select_rows.h turns them into a choice, KvSequence acts on it.
#ifndef KVASIR_KV_ROW_SCORES_H_
#define KVASIR_KV_ROW_SCORES_H_

#include <cstdint>
#include <span>

#include "kvasir/base/token.h"
#include "kvasir/kv/kv_spec.h"
#include "kvasir/tensor/kv_blocks_view.h"

namespace kvasir {

// One layer's rows, all of them readable through `blocks`.
struct ScoredLayer {
  const KvLayerSpec* spec = nullptr;
  KvBlocksView blocks;
  // Of row r, ascending or not.
  std::span<const Position> positions;
  // Position of the token that comes next: above all others.
  Position next = 0;
  // kRandom: layers with equal salts draw alike.
  uint64_t salt = 0;

  int64_t rows() const { return static_cast<int64_t>(positions.size()); }
};

// Adds this layer's score of row r to scores[r]; larger stays longer. A function of the sequence
// alone, in float32, with the same bits on every machine. Sums over the layer's kv heads, each of
// which averages over its query heads.
//
//   kKnorm, kKnormHigh  minus, plus the L2 norms of the key (arXiv 2406.11430): O(rows) from the
//                       norms plane; without one, from the stored keys.
//   kKeyDiff            -cos(k, mean of k / |k|) (KeyDiff, arXiv 2504.15364).
//   kLagKv              LagKV (arXiv 2504.04704): after the first `retention.keep` rows, each
//                       partition of 128 rows, in order of position, is ranked against the value
//                       range of the next one, keys and values averaged; the score is rank / 128.
//                       Rows without a whole next partition, and the first `keep`, get 1.
//   kStreaming          the position (StreamingLLM, arXiv 2309.17453).
//   kTova               softmax weight under the last observed query (TOVA, arXiv 2401.06104).
//   kExpectedAttention  (p + 0.01) |v|, p the expected softmax weight over the next 512 positions
//                       under queries with the mean and covariance of the observed ones
//                       (Expected Attention, arXiv 2510.00636).
//   kRandom             uniform in [0, 1), a function of position and salt.
//
// kTova and kExpectedAttention need the queries of the latest 64 tokens: the rows must end with the
// block layout.observed_block. Otherwise, as when a cache is compacted by hand before it was that
// long, kKeyDiff takes their place: the best of those that need no queries.
// REQUIRES: scores.size() == layer.rows(); for kExpectedAttention inv_freq has key_dim / 2 entries.
void AddRowScores(RowScore score, const ScoredLayer& layer, std::span<float> scores);

// kTova and kExpectedAttention.
bool NeedsQueries(RowScore score);
// kKnorm and kKnormHigh: with layout.key_norms, which is faster, of the keys as they were given;
// without, of what is stored of them.
bool UsesKeyNorms(RowScore score);

}  // namespace kvasir

#endif  // KVASIR_KV_ROW_SCORES_H_
