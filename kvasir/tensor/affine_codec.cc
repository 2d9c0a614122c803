#include "kvasir/tensor/affine_codec.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

constexpr float kMaxF16 = 65504.0f;
// MLX's smallest scale; smaller groups become zeros instead of dividing by zero.
constexpr float kMinScale = 1e-7f;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Range {
  float low;
  float high;
};

// The span of x; NaN bounds unless every x is finite.
Range FiniteRange(std::span<const float> x) {
  Range range{x[0], x[0]};
  bool finite = true;
  for (const float value : x) {
    finite = finite && std::isfinite(value);
    range.low = value < range.low ? value : range.low;
    range.high = value > range.high ? value : range.high;
  }
  return finite ? range : Range{kNan, kNan};
}

float Rounded(float value, KvCodec::Scales scales) {
  return scales == KvCodec::Scales::kF32 ? value : F16ToFloat(SaturatingF16(value));
}

}  // namespace

uint16_t SaturatingF16(float value) {
  if (std::isnan(value)) return 0x7E00;
  return FloatToF16(std::clamp(value, -kMaxF16, kMaxF16));
}

AffineGroup AffineStepsOf(float low, float high, int bits) {
  if (!std::isfinite(high - low)) return {kNan, kNan};
  const auto top = static_cast<float>((1 << bits) - 1);
  const bool from_low = std::fabs(low) > std::fabs(high);
  const float edge = from_low ? low : high;
  float scale = std::max((high - low) / top, kMinScale);
  if (!from_low) scale = -scale;
  const float steps = std::rint(edge / scale);
  if (steps == 0) return {scale, 0.0f};
  return {edge / steps, edge};
}

AffineGroup QuantizeAffineGroup(std::span<const float> x, int bits, KvCodec::Scales scales,
                                uint8_t* codes) {
  const auto [low, high] = FiniteRange(x);
  const auto [scale, bias] = AffineStepsOf(low, high, bits);
  if (std::isnan(scale)) {
    std::fill_n(codes, x.size(), uint8_t{0});
    return {scale, bias};
  }
  const auto top = static_cast<float>((1 << bits) - 1);
  for (size_t i = 0; i < x.size(); ++i) {
    // A huge constant group may have scale 0 and 0 / 0 here: code 0 stands for the bias, exactly.
    const float code = std::rint((x[i] - bias) / scale);
    codes[i] = code > 0 ? static_cast<uint8_t>(std::min(code, top)) : uint8_t{0};
  }
  return {Rounded(scale, scales), Rounded(bias, scales)};
}

}  // namespace kvasir
