// Which rows a budget keeps, given their scores.
// Deliberately without blocks or layers: rows are numbers here.
#ifndef KVASIR_KV_SELECT_ROWS_H_
#define KVASIR_KV_SELECT_ROWS_H_

#include <cstdint>
#include <span>
#include <vector>

#include "kvasir/base/token.h"
#include "kvasir/kv/retention_spec.h"

namespace kvasir {

// The rows that stay, ascending: min(budget.size, rows) of them. First those at positions below
// budget.keep and the budget.recent latest, then by score, high before low, NaN last of all; among
// equals the later position stays. Takes O(rows) on average.
// REQUIRES: scores.size() == positions.size(), positions distinct.
std::vector<int64_t> SelectRows(std::span<const float> scores, std::span<const Position> positions,
                                const RetentionSpec& budget);

}  // namespace kvasir

#endif  // KVASIR_KV_SELECT_ROWS_H_
