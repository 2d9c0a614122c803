// The scores behind AddRowScores that look into stored rows, one function each.
// Deliberately internal: callers use row_scores.h, where the formulas are.
#ifndef KVASIR_KV_SCORE_KINDS_H_
#define KVASIR_KV_SCORE_KINDS_H_

#include <span>

#include "kvasir/kv/row_scores.h"

namespace kvasir {

// Each adds to scores[r], as AddRowScores does.

// sign * the L2 norms of the stored keys.
void AddKeyNorms(const ScoredLayer& layer, float sign, std::span<float> scores);
void AddKeyDiff(const ScoredLayer& layer, std::span<float> scores);
void AddLagKv(const ScoredLayer& layer, std::span<float> scores);

// Whether the queries that the next two need are there, as row_scores.h says.
bool HasObservedQueries(const ScoredLayer& layer);
// REQUIRES: HasObservedQueries(layer); for expected attention inv_freq as row_scores.h says.
void AddTova(const ScoredLayer& layer, std::span<float> scores);
void AddExpectedAttention(const ScoredLayer& layer, std::span<float> scores);

}  // namespace kvasir

#endif  // KVASIR_KV_SCORE_KINDS_H_
