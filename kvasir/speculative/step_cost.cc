#include "kvasir/speculative/step_cost.h"

#include <algorithm>
#include <iterator>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr double kWeight = 0.3;        // of a new figure
constexpr double kLargestMove = 0.25;  // of the old one, before weighing

}  // namespace

int64_t StepCost::Bucket(int64_t rows) {
  int64_t step = 1;
  while (rows / step > 16) step *= 2;
  return rows / step * step;
}

void StepCost::Record(int64_t rows, double ms) {
  KVASIR_CHECK(rows >= 1);
  const auto [it, is_new] = seen_.try_emplace(Bucket(rows), ms);
  if (is_new) return;
  double& known = it->second;
  known += kWeight * std::clamp(ms - known, -kLargestMove * known, kLargestMove * known);
}

double StepCost::Ms(int64_t rows) const {
  if (seen_.empty()) return 0;
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) return std::prev(above)->second;
  if (above == seen_.begin() || above->first == rows) return above->second;
  const auto below = std::prev(above);
  const double share =
      static_cast<double>(rows - below->first) / static_cast<double>(above->first - below->first);
  return below->second + share * (above->second - below->second);
}

}  // namespace kvasir
