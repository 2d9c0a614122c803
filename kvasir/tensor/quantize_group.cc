#include "kvasir/tensor/quantize_group.h"

#include <cmath>
#include <cstddef>

#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/fold.h"

namespace kvasir {
namespace {

using Values = std::array<float, kQuantGroup>;

// Neither 0 nor infinite.
bool IsUsable(uint16_t half) {
  const int magnitude = half & 0x7FFF;
  return magnitude != 0 && magnitude < 0x7C00;
}

struct Range {
  float low;
  float high;
};

// To an integer, ties to even. REQUIRES: |value| < 2^22.
float Rounded(float value) {
  constexpr float kUnits = 0x1.8p23f;  // floats from here to 2^24 are integers
  return (value + kUnits) - kUnits;
}

float Code(float quotient, Range range) {
  const float below = quotient < range.high ? quotient : range.high;
  return Rounded(below > range.low ? below : range.low);
}

// Of largest magnitude, with its sign.
float Largest(const Values& values) {
  const float least = Fold(values, [](float a, float b) { return a < b ? a : b; });
  const float most = Fold(values, [](float a, float b) { return a > b ? a : b; });
  return -least > most ? least : most;
}

struct Fit {
  float scale;
  float gain;  // by so much the error is smaller than that of zeros
};

// The scale with the least error of the codes that `scale` gives. Errors are squared and weighted
// with the magnitude of what is coded: models miss large weights more.
Fit LeastSquares(const Values& values, float scale, Range range) {
  const float inverse = 1.0f / scale;
  Values products;
  Values squares;
  for (size_t i = 0; i < kQuantGroup; ++i) {
    const float code = Code(values[i] * inverse, range);
    const float weighted = std::fabs(values[i]) * code;
    products[i] = weighted * values[i];
    squares[i] = weighted * code;
  }
  const float product = Sum(products);
  const float fitted = product / Sum(squares);
  return {fitted, product * fitted};
}

// REQUIRES: f16 has largest / 7.
float NearestScale(const Values& values, float largest, Range range) {
  Fit best = {0, 0};
  for (const float code : {-7.0f, -8.0f}) {
    Fit fit = LeastSquares(values, largest / code, range);
    fit = LeastSquares(values, fit.scale, range);
    if (fit.gain > best.gain) best = fit;
  }
  return best.scale;
}

}  // namespace

QuantizedGroup QuantizeGroup(const float* values, int bits) {
  const Range range = bits == 8 ? Range{-127, 127} : Range{-8, 7};
  Values numbers;
  for (size_t i = 0; i < kQuantGroup; ++i) {
    numbers[i] = std::isnan(values[i]) ? 0.0f : values[i];
  }
  const float largest = Largest(numbers);
  QuantizedGroup group;
  group.scale = FloatToF16(std::fabs(largest) / range.high);
  if (bits == 4 && IsUsable(group.scale)) {
    const uint16_t nearest = FloatToF16(NearestScale(numbers, largest, range));
    if (IsUsable(nearest)) group.scale = nearest;
  }
  if (!IsUsable(group.scale)) return group;
  const float scale = F16ToFloat(group.scale);
  for (size_t i = 0; i < kQuantGroup; ++i) {
    group.codes[i] = static_cast<int8_t>(Code(numbers[i] / scale, range));
  }
  return group;
}

}  // namespace kvasir
