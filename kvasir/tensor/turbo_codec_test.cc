#include "kvasir/tensor/turbo_codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <numbers>
#include <random>
#include <vector>

#include "kvasir/tensor/rotation.h"

namespace kvasir {
namespace {

constexpr int kRows = 4096;

struct Expected {
  int dim;
  double distortion[3];  // bits 2, 3, 4, exact
};
const Expected kExpected[] = {
    {64, {.114526, .033391, .009132}},
    {80, {.115115, .033620, .009204}},
    {96, {.115508, .033773, .009253}},
    {128, {.116000, .033966, .009315}},
    {256, {.116740, .034256, .009408}},
    {512, {.117111, .034402, .009454}},
    // Between those of 128 and 256, in 1 / dim.
    {192, {.116493, .034159, .009377}},
};

double RelativeError(const std::vector<float>& x, int bits) {
  std::vector<uint8_t> codes(x.size());
  std::vector<float> y(x.size());
  LoadTurbo(codes.data(), EncodeTurbo(x, bits, codes.data()), bits, y);
  RotateBack(y.data(), static_cast<int64_t>(y.size()));
  double error = 0;
  double norm = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    error += (static_cast<double>(y[i]) - x[i]) * (static_cast<double>(y[i]) - x[i]);
    norm += static_cast<double>(x[i]) * x[i];
  }
  return error / norm;
}

class Rows {
 public:
  explicit Rows(int dim) : dim_(static_cast<size_t>(dim)) {}

  std::vector<float> Gaussian(float scale = 1) {
    std::vector<float> x(dim_);
    for (float& value : x) value = scale * normal_(random_);
    return x;
  }
  std::vector<float> Spiky(int spikes, float noise) {
    std::vector<float> x = Gaussian(noise);
    for (int i = 0; i < spikes; ++i) x[random_() % dim_] = random_() % 2 == 0 ? 5.0f : -5.0f;
    return x;
  }
  // Channels of smoothly varying size, a few of them 20 times larger.
  std::vector<float> Realistic() {
    std::vector<float> x = Gaussian();
    const double phase = 2 * std::numbers::pi * static_cast<double>(random_() % 1000) / 1000;
    for (size_t i = 0; i < dim_; ++i) {
      const double turn = 2 * std::numbers::pi * static_cast<double>(i) / static_cast<double>(dim_);
      x[i] *= static_cast<float>(1 + 0.8 * std::sin(turn + phase));
    }
    for (int i = 0; i < 3; ++i) x[random_() % dim_] *= 20;
    return x;
  }

 private:
  size_t dim_;
  std::mt19937 random_{7};
  std::normal_distribution<float> normal_;
};

double MeanError(int bits, int rows, const std::function<std::vector<float>()>& next) {
  double sum = 0;
  for (int i = 0; i < rows; ++i) sum += RelativeError(next(), bits);
  return sum / rows;
}

TEST(TurboCodec, RandomRowsHaveTheExactDistortion) {
  for (const Expected& expected : kExpected) {
    for (int bits = 2; bits <= 4; ++bits) {
      Rows rows(expected.dim);
      const double error = MeanError(bits, kRows, [&] { return rows.Gaussian(); });
      // A row's error varies by 10 to 35 %; the mean of 4096 by at most 0.6 %.
      EXPECT_NEAR(error / expected.distortion[bits - 2], 1, 0.02) << expected.dim << " " << bits;
    }
  }
}

// Every one-hot row, so nothing is left to chance.
TEST(TurboCodec, OneHotRowsAreLikeRandomOnes) {
  for (const Expected& expected : kExpected) {
    for (int bits = 2; bits <= 4; ++bits) {
      int at = 0;
      const double error = MeanError(bits, expected.dim, [&] {
        std::vector<float> x(static_cast<size_t>(expected.dim));
        x[static_cast<size_t>(at++)] = 3;
        return x;
      });
      EXPECT_NEAR(error / expected.distortion[bits - 2], 1, 0.1) << expected.dim << " " << bits;
    }
  }
}

TEST(TurboCodec, SpikyAndRealisticRowsAreLikeRandomOnes) {
  for (const Expected& expected : kExpected) {
    for (int bits = 2; bits <= 4; ++bits) {
      Rows rows(expected.dim);
      const double near_one_hot = MeanError(bits, kRows, [&] { return rows.Spiky(1, 0.02f); });
      const double four_outliers = MeanError(bits, kRows, [&] { return rows.Spiky(4, 0.02f); });
      const double realistic = MeanError(bits, kRows, [&] { return rows.Realistic(); });
      for (const double error : {near_one_hot, four_outliers, realistic}) {
        EXPECT_NEAR(error / expected.distortion[bits - 2], 1, 0.1) << expected.dim << " " << bits;
      }
    }
  }
}

TEST(TurboCodec, NormsNeitherOverflowNorVanish) {
  for (const float scale : {1e-42f, 1e-30f, 1.0f, 1e30f, 1e37f}) {
    std::vector<float> x(64, scale);
    std::vector<uint8_t> codes(64);
    const float norm = EncodeTurbo(x, 4, codes.data());
    EXPECT_NEAR(norm / (8.0 * x[0]), 1, 1e-6);
  }
  std::vector<float> largest(64, std::numeric_limits<float>::max());
  std::vector<uint8_t> codes(64);
  EXPECT_EQ(EncodeTurbo(largest, 4, codes.data()), std::numeric_limits<float>::max());
}

TEST(TurboCodec, CodesDoNotDependOnTheNorm) {
  Rows rows(128);
  const std::vector<float> x = rows.Gaussian();
  std::vector<float> scaled = x;
  for (float& value : scaled) value *= 0x1p-60f;
  std::vector<uint8_t> codes(128);
  std::vector<uint8_t> scaled_codes(128);
  const float norm = EncodeTurbo(x, 3, codes.data());
  EXPECT_EQ(EncodeTurbo(scaled, 3, scaled_codes.data()), norm * 0x1p-60f);
  EXPECT_EQ(scaled_codes, codes);
}

TEST(TurboCodec, ZeroRowsAreZero) {
  std::vector<float> x(80, 0.0f);
  std::vector<uint8_t> codes(80);
  EXPECT_EQ(EncodeTurbo(x, 4, codes.data()), 0);
  for (const uint8_t code : codes) EXPECT_EQ(code, 7);
  LoadTurbo(codes.data(), 0, 4, x);
  for (const float value : x) EXPECT_EQ(value, 0);
}

TEST(TurboCodec, NonFiniteRowsAreNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    for (const float rest : {0.0f, 1.0f}) {
      std::vector<float> x(64, rest);
      x[63] = bad;
      std::vector<uint8_t> codes(64, 9);
      EXPECT_TRUE(std::isnan(EncodeTurbo(x, 4, codes.data())));
      EXPECT_EQ(codes, std::vector<uint8_t>(64, 0));
    }
  }
}

}  // namespace
}  // namespace kvasir
