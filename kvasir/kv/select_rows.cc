#include "kvasir/kv/select_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// Positions from here on are those of the `recent` latest rows.
Position RecentBegin(std::span<const Position> positions, int64_t recent) {
  if (recent <= 0) return std::numeric_limits<Position>::max();
  if (recent >= static_cast<int64_t>(positions.size())) return 0;
  std::vector<Position> ordered(positions.begin(), positions.end());
  const auto begin = ordered.end() - recent;
  std::nth_element(ordered.begin(), begin, ordered.end());
  return *begin;
}

}  // namespace

std::vector<int64_t> SelectRows(std::span<const float> scores, std::span<const Position> positions,
                                const RetentionSpec& budget) {
  KVASIR_CHECK(scores.size() == positions.size());
  std::vector<int64_t> rows(scores.size());
  std::iota(rows.begin(), rows.end(), 0);
  if (budget.size >= static_cast<int64_t>(rows.size())) return rows;

  const Position recent_begin = RecentBegin(positions, budget.recent);
  const auto is_protected = [&](int64_t row) {
    return positions[row] < budget.keep || positions[row] >= recent_begin;
  };
  // Not a number added to the score: no finite bonus is safe against every score.
  const auto stays_longer = [&](int64_t a, int64_t b) {
    if (is_protected(a) != is_protected(b)) return is_protected(a);
    if (std::isnan(scores[a]) != std::isnan(scores[b])) return std::isnan(scores[b]);
    if (scores[a] != scores[b] && !std::isnan(scores[a])) return scores[a] > scores[b];
    return positions[a] > positions[b];
  };
  const auto end = rows.begin() + std::max<int64_t>(budget.size, 0);
  std::nth_element(rows.begin(), end, rows.end(), stays_longer);
  rows.erase(end, rows.end());
  std::sort(rows.begin(), rows.end());
  return rows;
}

}  // namespace kvasir
