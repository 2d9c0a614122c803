#include "kvasir/tensor/affine_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using Scales = KvCodec::Scales;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Quantized {
  AffineGroup group;
  std::vector<uint8_t> codes;
  std::vector<float> Values() const {
    std::vector<float> values;
    for (const uint8_t code : codes) values.push_back(DequantizeAffine(code, group));
    return values;
  }
};

Quantized Quantize(const std::vector<float>& x, int bits, Scales scales) {
  Quantized out{{}, std::vector<uint8_t>(x.size(), 77)};
  out.group = QuantizeAffineGroup(x, bits, scales, out.codes.data());
  return out;
}

TEST(AffineCodec, ErrorIsAtMostAStep) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    std::vector<float> x(64);
    for (float& value : x) value = normal(random);
    const Quantized q = Quantize(x, bits, Scales::kF32);
    const std::vector<float> values = q.Values();
    for (size_t i = 0; i < x.size(); ++i) {
      // Putting zero on the grid stretches the scale, so the far end may miss by a whole step.
      EXPECT_LE(std::fabs(values[i] - x[i]), 1.001f * std::fabs(q.group.scale));
      EXPECT_LT(q.codes[i], 1 << bits);
    }
  }
}

TEST(AffineCodec, TheLargerEndAndZeroAreExact) {
  std::vector<float> x(32, 0.0f);
  x[3] = -5.5f;
  x[9] = 2.25f;
  const Quantized q = Quantize(x, 4, Scales::kF32);
  EXPECT_EQ(q.codes[3], 0);
  EXPECT_EQ(q.group.bias, -5.5f);
  EXPECT_GT(q.group.scale, 0);
  EXPECT_EQ(q.Values()[3], -5.5f);
  // Up to the roundings of scale and product.
  EXPECT_NEAR(q.Values()[0], 0, 1e-6);
}

TEST(AffineCodec, ConstantsComeBack) {
  // 1e35 drives edge / 1e-7 to infinity and the scale to 0.
  for (const float constant : {0.0f, 3.25f, -3.25f, 1e30f, -1e35f, 3e38f}) {
    const Quantized q = Quantize(std::vector<float>(32, constant), 3, Scales::kF32);
    for (const float value : q.Values()) EXPECT_FLOAT_EQ(value, constant);
  }
}

TEST(AffineCodec, TinyGroupsBecomeZero) {
  const Quantized q = Quantize(std::vector<float>(32, 1e-9f), 8, Scales::kF32);
  EXPECT_EQ(q.group.scale, -1e-7f);
  EXPECT_EQ(q.group.bias, 0);
  for (const float value : q.Values()) EXPECT_EQ(value, 0);
}

TEST(AffineCodec, F16ScalesRoundWhatIsStoredOnly) {
  std::mt19937 random(4);
  std::normal_distribution<float> normal;
  std::vector<float> x(128);
  for (float& value : x) value = normal(random);
  const Quantized exact = Quantize(x, 4, Scales::kF32);
  const Quantized half = Quantize(x, 4, Scales::kF16);
  EXPECT_EQ(half.codes, exact.codes);
  EXPECT_EQ(half.group.scale, F16ToFloat(FloatToF16(exact.group.scale)));
  EXPECT_EQ(half.group.bias, F16ToFloat(FloatToF16(exact.group.bias)));
  EXPECT_NE(half.group.scale, exact.group.scale);
}

TEST(AffineCodec, F16ScalesSaturate) {
  std::vector<float> x(32, 0.0f);
  x[0] = -1e6f;
  x[1] = 3e5f;
  const Quantized q = Quantize(x, 2, Scales::kF16);
  EXPECT_EQ(q.group.scale, 65504.0f);
  EXPECT_EQ(q.group.bias, -65504.0f);
  EXPECT_EQ(SaturatingF16(kInfinity), 0x7BFF);
  EXPECT_EQ(SaturatingF16(-kInfinity), 0xFBFF);
  EXPECT_EQ(SaturatingF16(-kNan), 0x7E00);
}

TEST(AffineCodec, NonFiniteGroupsAreNan) {
  for (const Scales scales : {Scales::kF16, Scales::kF32}) {
    for (const float bad : {kNan, kInfinity, -kInfinity}) {
      for (const size_t at : {0u, 17u, 31u}) {
        std::vector<float> x(32, 1.0f);
        x[at] = bad;
        const Quantized q = Quantize(x, 5, scales);
        EXPECT_EQ(q.codes, std::vector<uint8_t>(32, 0));
        for (const float value : q.Values()) EXPECT_TRUE(std::isnan(value));
      }
    }
    // Finite, but wider than a float.
    std::vector<float> wide(32, 0.0f);
    wide[4] = 3e38f;
    wide[5] = -3e38f;
    EXPECT_TRUE(std::isnan(Quantize(wide, 8, scales).group.scale));
  }
}

}  // namespace
}  // namespace kvasir
