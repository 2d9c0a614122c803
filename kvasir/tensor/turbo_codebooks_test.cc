#include "kvasir/tensor/turbo_codebooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace kvasir {
namespace {

// A coordinate of a random unit vector, up to a factor.
double Density(int dim, double t) { return std::pow(std::max(0.0, 1 - t * t), (dim - 3) / 2.0); }

struct Moments {
  double mass = 0;
  double mean_sum = 0;
  double square_sum = 0;
};

// Simpson's rule, another one than the generator's.
Moments Integrate(int dim, double low, double high) {
  constexpr int kSteps = 400;
  const double step = (high - low) / kSteps;
  Moments out;
  for (int i = 0; i <= kSteps; ++i) {
    const double t = low + i * step;
    const double weight = (i == 0 || i == kSteps ? 1 : i % 2 == 1 ? 4 : 2) * step / 3;
    const double f = weight * Density(dim, t);
    out.mass += f;
    out.mean_sum += f * t;
    out.square_sum += f * t * t;
  }
  return out;
}

double Tail(int dim) { return std::min(1.0, 10 / std::sqrt(dim)); }

// Positive levels, iterated from uniform ones until they rest.
std::vector<double> LloydMax(int dim, int bits) {
  std::vector<double> levels(size_t{1} << (bits - 1));
  for (size_t i = 0; i < levels.size(); ++i) {
    levels[i] = (static_cast<double>(i) + 1) / static_cast<double>(levels.size()) * 0.25;
  }
  double change = 1;
  while (change > 1e-11) {
    change = 0;
    double low = 0;
    for (size_t i = 0; i < levels.size(); ++i) {
      const double high = i + 1 < levels.size() ? (levels[i] + levels[i + 1]) / 2 : Tail(dim);
      const Moments cell = Integrate(dim, low, high);
      const double mean = cell.mean_sum / cell.mass;
      change = std::max(change, std::fabs(mean - levels[i]) / mean);
      levels[i] = mean;
      low = high;
    }
  }
  return levels;
}

// E|u - u_hat|^2 of a random unit vector.
double Distortion(int dim, int bits) {
  const int half = 1 << (bits - 1);
  const float* levels = TurboLevels(dim, bits) + half;
  const float* thresholds = TurboThresholds(dim, bits) + half;
  double error = 0;
  double mass = 0;
  for (int i = 0; i < half; ++i) {
    const Moments cell =
        Integrate(dim, i == 0 ? 0 : thresholds[i - 1], i + 1 < half ? thresholds[i] : Tail(dim));
    const double level = levels[i];
    error += cell.square_sum - 2 * level * cell.mean_sum + level * level * cell.mass;
    mass += cell.mass;
  }
  return error / mass * dim;
}

TEST(TurboCodebooks, AreConverged) {
  for (const int dim : {16, 64, 80, 128, 496, 512}) {
    for (const int bits : {2, 3, 4}) {
      const std::vector<double> expected = LloydMax(dim, bits);
      const float* positive = TurboLevels(dim, bits) + expected.size();
      for (size_t i = 0; i < expected.size(); ++i) {
        EXPECT_NEAR(positive[i] / expected[i], 1, 1e-6) << dim << " " << bits << " " << i;
      }
    }
  }
}

struct Published {
  int dim;
  int bits;
  std::vector<float> levels;
  double distortion;
};

// Found independently on a grid, to about five digits.
const Published kPublished[] = {
    {64, 2, {.056515f, .187497f}, .114526},
    {64, 3, {.030469f, .093831f, .166167f, .263913f}, .033391},
    {64,
     4,
     {.015918f, .048087f, .081307f, .116481f, .154919f, .198850f, .252908f, .330791f},
     .009132},
    {80, 2, {.050563f, .167935f}, .115115},
    {80, 3, {.027282f, .084045f, .148948f, .236948f}, .033620},
    {80,
     4,
     {.014261f, .043084f, .072863f, .104416f, .138937f, .178457f, .227212f, .297752f},
     .009204},
    {96,
     4,
     {.013032f, .039375f, .066599f, .095459f, .127059f, .163275f, .208031f, .272966f},
     .009253},
    {128, 2, {.039991f, .133041f}, .116000},
    {128, 3, {.021604f, .066585f, .118139f, .188396f}, .033966},
    {128,
     4,
     {.011301f, .034149f, .057768f, .082824f, .110283f, .141800f, .180831f, .237659f},
     .009315},
    {256, 3, {.015297f, .047166f, .083764f, .133853f}, .034256},
    {256,
     4,
     {.008007f, .024198f, .040945f, .058727f, .078244f, .100693f, .128583f, .169406f},
     .009408},
    {512, 2, {.020007f, .066694f}, .117111},
    {512,
     4,
     {.005668f, .017129f, .028988f, .041585f, .055421f, .071353f, .091178f, .120273f},
     .009454},
};

TEST(TurboCodebooks, EqualPublishedOnes) {
  for (const Published& published : kPublished) {
    const float* positive = TurboLevels(published.dim, published.bits) + published.levels.size();
    for (size_t i = 0; i < published.levels.size(); ++i) {
      EXPECT_NEAR(positive[i], published.levels[i], 1e-5) << published.dim << " " << published.bits;
    }
    EXPECT_NEAR(Distortion(published.dim, published.bits) / published.distortion, 1, 0.005);
  }
}

TEST(TurboCodebooks, TablesAreSymmetricOrderedAndPadded) {
  for (int dim = 16; dim <= 512; dim += 16) {
    for (const int bits : {2, 3, 4}) {
      const int count = 1 << bits;
      const float* levels = TurboLevels(dim, bits);
      const float* thresholds = TurboThresholds(dim, bits);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(levels) % 64, 0u);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(thresholds) % 64, 0u);
      for (int i = 0; i < kTurboTableSize; ++i) EXPECT_EQ(levels[i], levels[i % count]);
      for (int i = 0; i < count; ++i) EXPECT_EQ(levels[i], -levels[count - 1 - i]);
      for (int i = 0; i + 1 < count; ++i) {
        EXPECT_LT(levels[i], thresholds[i]);
        EXPECT_LT(thresholds[i], levels[i + 1]);
      }
      EXPECT_EQ(thresholds[count / 2 - 1], 0);
      for (int i = count - 1; i < kTurboTableSize; ++i) EXPECT_TRUE(std::isinf(thresholds[i]));
    }
  }
}

// Bytes keep the order and the symmetry of levels, and are close to them.
TEST(TurboCodebooks, BytesAreTheLevelsInEqualSteps) {
  for (int64_t dim = 16; dim <= 512; dim += 16) {
    for (const int bits : {2, 3, 4}) {
      const TurboBytes& bytes = TurboBytesOf(dim, bits);
      const float* levels = TurboLevels(dim, bits);
      const int count = 1 << bits;
      for (int i = 0; i < kTurboTableSize; ++i) {
        const auto at = static_cast<size_t>(i);
        EXPECT_EQ(bytes.bytes[at], bytes.bytes[static_cast<size_t>(i % count)]);
        EXPECT_EQ(bytes.bytes[at] - 128,
                  128 - bytes.bytes[static_cast<size_t>(count - 1 - i % count)]);
        EXPECT_NEAR(levels[i], static_cast<float>(bytes.bytes[at] - 128) * bytes.unit,
                    0.501f * bytes.unit);
      }
      EXPECT_LE(levels[count - 1], 127.001f * bytes.unit);
      EXPECT_GE(levels[count - 1], 63.999f * bytes.unit);
      // The squares of what bytes are off by are below 1 % of what levels themselves are off by,
      // which is 0.118, 0.035 and 0.0095 of a dim's variance (the paper's table).
      constexpr double kMse[] = {0.118, 0.035, 0.0095};
      double error = 0;
      for (int i = 0; i < count; ++i) {
        const double off = double{levels[i]} - (bytes.bytes[static_cast<size_t>(i)] - 128) *
                                                   static_cast<double>(bytes.unit);
        error += off * off / count;
      }
      EXPECT_LT(error * static_cast<double>(dim), 0.01 * kMse[bits - 2]) << dim << ", " << bits;
    }
  }
}

}  // namespace
}  // namespace kvasir
