#include "kvasir/speculative/step_cost.h"

#include <algorithm>
#include <iterator>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// Of a new figure. The level follows within a few steps, as neighbours of the machine come and go;
// what rows cost beside each other hardly changes.
constexpr double kLevelWeight = 0.2;
constexpr double kShareWeight = 0.08;
// Prompts that are read say little of how long answers take.
constexpr int64_t kMostLevelRows = 32;
constexpr double kLargestMove = 0.25;  // of what was known, before weighing
// A number of rows that is new may cost this many times what fewer rows cost, or proportionally
// more; else it was a stall.
constexpr double kLargestRise = 2;

}  // namespace

int64_t StepCost::Bucket(int64_t rows) {
  int64_t step = 1;
  while (rows / step > 16) step *= 2;
  return rows / step * step;
}

void StepCost::Record(int64_t rows, double ms) {
  KVASIR_CHECK(rows >= 1);
  if (ms <= 0) return;
  if (seen_.empty()) level_ = ms;
  const auto [it, is_new] = seen_.try_emplace(Bucket(rows), ms / level_);
  double& known = it->second;
  if (!is_new) {
    const double off = std::clamp(ms / (level_ * known) - 1, -kLargestMove, kLargestMove);
    const bool moves_level = rows <= kMostLevelRows;
    known *= 1 + (moves_level ? kShareWeight : kLevelWeight) * off;
    if (moves_level) level_ *= 1 + kLevelWeight * off;
  } else if (it != seen_.begin()) {
    const auto& [fewer_rows, fewer] = *std::prev(it);
    const double rise = static_cast<double>(it->first) / static_cast<double>(fewer_rows);
    known = std::min(known, fewer * std::max(kLargestRise, rise));
  }
  // A figure that was a stall gives way to what more rows took.
  if (const auto more = std::next(it); more != seen_.end()) known = std::min(known, more->second);
  for (auto fewer = seen_.begin(); fewer != it; ++fewer) {
    fewer->second = std::min(fewer->second, known);
  }
}

double StepCost::Ms(int64_t rows) const { return seen_.empty() ? 0 : level_ * Share(rows); }

double StepCost::Share(int64_t rows) const {
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) return std::prev(above)->second;
  if (above == seen_.begin() || above->first == rows) return above->second;
  const auto below = std::prev(above);
  const double part =
      static_cast<double>(rows - below->first) / static_cast<double>(above->first - below->first);
  return below->second + part * (above->second - below->second);
}

}  // namespace kvasir
