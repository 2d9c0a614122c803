#include "kvasir/tensor/rotation.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <random>
#include <vector>

namespace kvasir {
namespace {

std::vector<float> RandomVector(int64_t dim, std::mt19937& random) {
  std::normal_distribution<float> normal;
  std::vector<float> x(static_cast<size_t>(dim));
  for (float& value : x) value = normal(random);
  return x;
}

double Dot(const std::vector<float>& a, const std::vector<float>& b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += static_cast<double>(a[i]) * b[i];
  return sum;
}

TEST(Rotation, KeepsNormsAndProducts) {
  std::mt19937 random(5);
  for (int64_t dim = 16; dim <= kMaxRotationDim; dim += 16) {
    std::vector<float> x = RandomVector(dim, random);
    std::vector<float> y = RandomVector(dim, random);
    const double norm = std::sqrt(Dot(x, x));
    const double product = Dot(x, y);
    Rotate(x.data(), dim);
    Rotate(y.data(), dim);
    // About 30 roundings per element, each within 6e-8.
    EXPECT_NEAR(std::sqrt(Dot(x, x)) / norm, 1, 1e-6) << dim;
    EXPECT_NEAR(Dot(x, y), product, 1e-6 * norm * std::sqrt(Dot(y, y))) << dim;
  }
}

TEST(Rotation, BackIsTheInverse) {
  std::mt19937 random(6);
  for (int64_t dim = 16; dim <= kMaxRotationDim; dim += 16) {
    const std::vector<float> x = RandomVector(dim, random);
    for (const bool back_first : {false, true}) {
      std::vector<float> y = x;
      back_first ? RotateBack(y.data(), dim) : Rotate(y.data(), dim);
      back_first ? Rotate(y.data(), dim) : RotateBack(y.data(), dim);
      for (size_t i = 0; i < x.size(); ++i) EXPECT_NEAR(y[i], x[i], 1e-5) << dim;
    }
  }
}

TEST(Rotation, ColumnsAreOrthonormal) {
  for (const int64_t dim : {64, 80, 96, 192}) {
    std::vector<std::vector<float>> columns;
    for (int64_t i = 0; i < dim; ++i) {
      columns.emplace_back(static_cast<size_t>(dim));
      columns.back()[static_cast<size_t>(i)] = 1;
      Rotate(columns.back().data(), dim);
    }
    for (size_t i = 0; i < columns.size(); ++i) {
      for (size_t j = 0; j <= i; ++j) {
        ASSERT_NEAR(Dot(columns[i], columns[j]), i == j ? 1 : 0, 1e-6) << dim;
      }
    }
  }
}

TEST(Rotation, MixingMatricesAreOrthonormal) {
  for (int64_t dim = 16; dim <= kMaxRotationDim; dim += 16) {
    const RotationShape shape = RotationShapeOf(dim);
    ASSERT_EQ(shape.run * shape.mix, dim);
    for (int64_t i = 0; i < shape.mix; ++i) {
      for (int64_t j = 0; j < shape.mix; ++j) {
        const float* a = shape.matrix + i * shape.mix;
        const float* b = shape.matrix + j * shape.mix;
        ASSERT_EQ(a[j], b[i]);
        ASSERT_FLOAT_EQ(a[j],
                        static_cast<float>(
                            (std::cos(2 * M_PI * static_cast<double>(i * j) / double(shape.mix)) +
                             std::sin(2 * M_PI * static_cast<double>(i * j) / double(shape.mix))) /
                            std::sqrt(double(shape.mix))));
        double sum = 0;
        for (int64_t k = 0; k < shape.mix; ++k) sum += static_cast<double>(a[k]) * b[k];
        ASSERT_NEAR(sum, i == j ? 1 : 0, 1e-6);
      }
    }
  }
}

TEST(Rotation, HugeVectorsDoNotOverflow) {
  for (const int64_t dim : {16, 496, 512}) {
    std::vector<float> x(static_cast<size_t>(dim), 1e37f);
    Rotate(x.data(), dim);
    for (const float value : x) EXPECT_TRUE(std::isfinite(value));
  }
}

uint32_t Fnv1a(uint32_t hash, uint32_t value) { return (hash ^ value) * 16777619u; }

// Stored caches depend on the rotation: it may never change.
TEST(Rotation, IsTheDocumentedOne) {
  uint32_t signs = 2166136261u;
  for (const auto& round : kRotationSigns) {
    for (const uint32_t sign : round) signs = Fnv1a(signs, sign >> 31);
  }
  // All four figures were found by a program in another language that follows the header.
  EXPECT_EQ(signs, 802122046u);

  const auto hash_of = [](int64_t dim) {
    std::vector<float> x(static_cast<size_t>(dim));
    for (size_t i = 0; i < x.size(); ++i) x[i] = 1 / static_cast<float>(i + 1);
    Rotate(x.data(), dim);
    uint32_t hash = 2166136261u;
    for (const float value : x) hash = Fnv1a(hash, std::bit_cast<uint32_t>(value));
    return hash;
  };
  EXPECT_EQ(hash_of(64), 4271325246u);
  EXPECT_EQ(hash_of(96), 203507247u);
  EXPECT_EQ(hash_of(496), 2551736624u);
}

}  // namespace
}  // namespace kvasir
