#include "kvasir/engine/hidden_pool.h"

#include <algorithm>
#include <cmath>
#include <span>

namespace kvasir {
namespace {

// Double precision: the length of thousands of summed states loses nothing that a float can show.
template <typename Value>
std::vector<float> OfLengthOne(std::span<const Value> values) {
  double squares = 0;
  for (const Value value : values) squares += static_cast<double>(value) * value;
  const double length = std::sqrt(squares);
  std::vector<float> vector;
  vector.reserve(values.size());
  for (const Value value : values) {
    vector.push_back(static_cast<float>(length > 0 ? value / length : value));
  }
  return vector;
}

}  // namespace

std::optional<Pooling> PoolingFromName(std::string_view name) {
  if (name == "mean") return Pooling::kMean;
  if (name == "last") return Pooling::kLast;
  return std::nullopt;
}

void HiddenPool::Add(Position begin, ConstFloatRows states) {
  sums_.resize(static_cast<size_t>(states.cols));
  for (int64_t i = 0; i < states.rows; ++i) {
    if (begin + i < position_) continue;
    const float* state = states.row(i);
    if (pooling_ == Pooling::kLast) std::fill(sums_.begin(), sums_.end(), 0.0);
    for (size_t j = 0; j < sums_.size(); ++j) sums_[j] += state[j];
    position_ = begin + i + 1;
  }
}

std::vector<float> HiddenPool::Embedding() const {
  return OfLengthOne(std::span<const double>(sums_));
}

void NormalizeLength(std::vector<float>* vector) {
  *vector = OfLengthOne(std::span<const float>(*vector));
}

}  // namespace kvasir
