#include "kvasir/tensor/turbo_codec.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kvasir/base/check.h"
#include "kvasir/tensor/rotation.h"
#include "kvasir/tensor/turbo_codebooks.h"

namespace kvasir {
namespace {

constexpr size_t kLanes = 16;

// The sum of squares over 16 virtual lanes, in the order that the header states.
float SumSquares(std::span<const float> y) {
  std::array<float, kLanes> lanes = {};
  for (size_t i = 0; i < y.size(); ++i) lanes[i % kLanes] = std::fma(y[i], y[i], lanes[i % kLanes]);
  for (size_t width = kLanes / 2; width > 0; width /= 2) {
    for (size_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

float LargestMagnitude(std::span<const float> x) {
  float largest = 0;
  for (const float value : x) largest = std::fabs(value) > largest ? std::fabs(value) : largest;
  return largest;
}

}  // namespace

float EncodeTurbo(std::span<const float> x, int bits, uint8_t* codes) {
  KVASIR_DCHECK(x.size() <= kMaxRotationDim);
  std::array<float, kMaxRotationDim> buffer;
  const std::span<float> y = std::span(buffer).first(x.size());
  const float largest = LargestMagnitude(x);
  const float divisor = largest > 0 ? largest : 1.0f;
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] / divisor;
  const float sum = SumSquares(y);
  if (std::isnan(sum)) {
    std::fill_n(codes, x.size(), uint8_t{0});
    return std::numeric_limits<float>::quiet_NaN();
  }
  const float root = std::sqrt(sum);
  const float inverse = sum > 0 ? 1.0f / root : 0.0f;
  for (float& value : y) value *= inverse;
  const auto dim = static_cast<int64_t>(x.size());
  Rotate(y.data(), dim);
  const float* thresholds = TurboThresholds(dim, bits);
  for (size_t i = 0; i < x.size(); ++i) {
    uint8_t code = 0;
    while (thresholds[code] < y[i]) ++code;
    codes[i] = code;
  }
  return std::min(largest * root, std::numeric_limits<float>::max());
}

void LoadTurbo(const uint8_t* codes, float norm, int bits, std::span<float> x) {
  const float* levels = TurboLevels(static_cast<int64_t>(x.size()), bits);
  for (size_t i = 0; i < x.size(); ++i) x[i] = norm * levels[codes[i]];
}

}  // namespace kvasir
