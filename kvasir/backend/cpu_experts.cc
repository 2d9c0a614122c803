#include "kvasir/backend/cpu_experts.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/base/scalar_math.h"
#include "kvasir/base/scratch_vector.h"

namespace kvasir {
namespace {

FloatRows Rows(std::vector<float>& buffer, int64_t rows, int64_t cols) {
  const auto needed = static_cast<size_t>(rows * cols);
  GrowScratch(needed, &buffer);
  return {buffer.data(), rows, cols, cols};
}

FloatRows Slice(FloatRows all, int64_t begin, int64_t rows) {
  return {all.row(begin), rows, all.cols, all.stride};
}

// As KernelTable::argmax of the sums.
int64_t BestWith(std::span<const float> biases, const float* scores) {
  int64_t best = 0;
  float most = std::numeric_limits<float>::quiet_NaN();
  for (size_t i = 0; i < biases.size(); ++i) {
    const float sum = scores[i] + biases[i];
    if (!(sum > most) && !(std::isnan(most) && !std::isnan(sum))) continue;
    most = sum;
    best = static_cast<int64_t>(i);
  }
  return best;
}

// How good a group of a row's experts is, for choosing among groups.
float GroupScore(const RouteArgs& args, std::span<const float> scores, size_t first) {
  // NaN counts as smallest.
  constexpr float kLeast = -std::numeric_limits<float>::infinity();
  float best = kLeast;
  float second = kLeast;
  for (size_t i = 0; i < scores.size(); ++i) {
    float score = scores[i];
    if (!args.choice_biases.empty()) score += args.choice_biases[first + i];
    if (score > best) {
      second = std::exchange(best, score);
    } else if (score > second) {
      second = score;
    }
  }
  return args.kind == RouteArgs::Scores::kSigmoid ? best + second : best;
}

// Leaves NaN in place of the scores of experts whose groups are not among the best.
void HideOtherGroups(const RouteArgs& args, std::span<float> scores) {
  const auto groups = static_cast<size_t>(args.groups);
  const size_t size = scores.size() / groups;
  std::vector<float> of_groups;
  for (size_t i = 0; i < groups; ++i) {
    of_groups.push_back(GroupScore(args, scores.subspan(i * size, size), i * size));
  }
  std::vector<size_t> order(groups);
  std::iota(order.begin(), order.end(), size_t{0});
  std::ranges::stable_sort(order, std::greater<>(), [&](size_t group) { return of_groups[group]; });
  for (size_t i = static_cast<size_t>(args.groups_per_row); i < groups; ++i) {
    std::ranges::fill(scores.subspan(order[i] * size, size),
                      std::numeric_limits<float>::quiet_NaN());
  }
}

}  // namespace

void RouteRow(const KernelTable& kernels, const RouteArgs& args, int64_t row) {
  float* const scores = args.scores.row(row);
  const int64_t experts = args.scores.cols;
  const auto begin = static_cast<size_t>(row * args.per_row);
  if (args.kind == RouteArgs::Scores::kSigmoid) {
    for (int64_t i = 0; i < experts; ++i) scores[i] = 1.0f / (1.0f + scalar::Exp(-scores[i]));
  } else {
    kernels.softmax(scores, experts);
  }
  if (args.groups > 1) HideOtherGroups(args, {scores, static_cast<size_t>(experts)});
  float sum = 0;
  for (size_t rank = 0; rank < static_cast<size_t>(args.per_row); ++rank) {
    const int64_t best = args.choice_biases.empty() ? kernels.argmax(scores, experts)
                                                    : BestWith(args.choice_biases, scores);
    args.chosen[begin + rank] = static_cast<int32_t>(best);
    args.weights[begin + rank] = scores[best];
    sum += scores[best];
    // NaN counts as smallest, so that no expert is chosen twice unless all are NaN.
    scores[best] = std::numeric_limits<float>::quiet_NaN();
  }
  for (size_t i = begin; i < begin + static_cast<size_t>(args.per_row); ++i) {
    if (args.normalizes) args.weights[i] /= sum + args.sum_eps;
    if (!args.expert_scales.empty()) {
      args.weights[i] *= args.expert_scales[static_cast<size_t>(args.chosen[i])];
    }
    if (args.scale != 1) args.weights[i] *= args.scale;
  }
}

void CpuExperts::SortPairs(const ExpertsArgs& args) {
  begins_.assign(args.experts.size() + 1, 0);
  for (const int32_t expert : args.chosen) ++begins_[static_cast<size_t>(expert) + 1];
  for (size_t i = 1; i < begins_.size(); ++i) begins_[i] += begins_[i - 1];
  ResizeScratch(args.chosen.size(), &places_);
  std::vector<int64_t> next = begins_;
  for (size_t i = 0; i < places_.size(); ++i) {
    places_[i] = next[static_cast<size_t>(args.chosen[i])]++;
  }
}

const ExpertPlan& CpuExperts::Gather(const ExpertsArgs& args) {
  const auto pairs = static_cast<int64_t>(args.chosen.size());
  KVASIR_CHECK(pairs == args.x.rows * args.per_row && !args.experts.empty());
  const int64_t hidden = args.x.cols;
  const int64_t intermediate = args.experts[0].gate->outputs();
  SortPairs(args);
  const FloatRows x = Rows(x_, pairs, hidden);
  for (int64_t i = 0; i < pairs; ++i) {
    std::copy_n(args.x.row(i / args.per_row), hidden, x.row(places_[static_cast<size_t>(i)]));
  }
  plan_.x = x;
  plan_.gate = Rows(gate_, pairs, intermediate);
  plan_.up = Rows(up_, pairs, intermediate);
  const FloatRows down = Rows(down_, pairs, hidden);
  plan_.in.clear();
  plan_.out.clear();
  for (size_t i = 0; i < args.experts.size(); ++i) {
    const int64_t begin = begins_[i];
    const int64_t rows = begins_[i + 1] - begin;
    if (rows == 0) continue;
    const ExpertWeights& expert = args.experts[i];
    const MatmulJob gate = {expert.gate, expert.gate_bias, Slice(plan_.gate, begin, rows)};
    const MatmulJob up = {expert.up, expert.up_bias, Slice(plan_.up, begin, rows)};
    const MatmulJob back = {expert.down, expert.down_bias, Slice(down, begin, rows)};
    plan_.in.push_back({gate, begin, rows});
    plan_.in.push_back({up, begin, rows});
    plan_.out.push_back({back, begin, rows});
  }
  return plan_;
}

void CpuExperts::SumRow(const ExpertsArgs& args, int64_t row) const {
  float* const out = args.out.row(row);
  std::fill_n(out, args.out.cols, 0.0f);
  for (int64_t i = row * args.per_row; i < (row + 1) * args.per_row; ++i) {
    const float weight = args.weights[static_cast<size_t>(i)];
    const float* const expert = down_.data() + places_[static_cast<size_t>(i)] * args.out.cols;
    for (int64_t k = 0; k < args.out.cols; ++k) out[k] += weight * expert[k];
  }
}

size_t CpuExperts::Bound(int64_t pairs, int64_t hidden, int64_t intermediate) {
  return static_cast<size_t>(pairs * 2 * (hidden + intermediate)) * sizeof(float) +
         static_cast<size_t>(pairs) * sizeof(int64_t);
}

size_t CpuExperts::scratch_bytes() const {
  return (x_.capacity() + gate_.capacity() + up_.capacity() + down_.capacity()) * sizeof(float) +
         (begins_.capacity() + places_.capacity()) * sizeof(int64_t);
}

}  // namespace kvasir
