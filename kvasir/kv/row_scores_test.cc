#include "kvasir/kv/row_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kvasir/kv/score_test_util.h"

namespace kvasir {
namespace {

using kv_testing::FillRandom;
using kv_testing::ScoreTestLayer;

// Sums of at most 16 x 3 float products of magnitude one, against double.
constexpr double kTolerance = 2e-5;

KvLayerSpec F32Layer() {
  const KvCodec f32 = {KvCodec::Kind::kF32};
  KvLayerSpec spec;
  spec.layout = {
      .kv_heads = 3, .key_dim = 16, .value_dim = 12, .key_codec = f32, .value_codec = f32};
  return spec;
}

double Norm(const float* vector, int dim) {
  double squares = 0;
  for (int d = 0; d < dim; ++d) squares += static_cast<double>(vector[d]) * vector[d];
  return std::sqrt(squares);
}

std::vector<double> NormSums(const ScoreTestLayer& layer) {
  std::vector<double> sums(layer.positions.size(), 0.0);
  for (size_t row = 0; row < sums.size(); ++row) {
    for (int head = 0; head < layer.heads(); ++head) {
      sums[row] += Norm(layer.key(row, head), layer.spec.layout.key_dim);
    }
  }
  return sums;
}

void ExpectNear(const std::vector<float>& got, const std::vector<double>& want, double tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) ASSERT_NEAR(got[i], want[i], tolerance) << "row " << i;
}

TEST(RowScoresTest, KnormIsMinusTheSumOfNorms) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 150, 1);
  std::vector<double> want = NormSums(layer);
  ExpectNear(layer.Scores(RowScore::kKnormHigh), want, kTolerance);
  for (double& norm : want) norm = -norm;
  ExpectNear(layer.Scores(RowScore::kKnorm), want, kTolerance);
}

TEST(RowScoresTest, KnormReadsTheNormsPlane) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  layer.spec.layout.key_norms = true;
  FillRandom(layer, 150, 1);
  // Numbers that no key has: they can only come from the plane.
  for (size_t row = 0; row < 150; ++row) {
    const auto norm = static_cast<float>(1000 + row * 7 % 31);
    std::memcpy(layer.blocks[row / 64] + layer.spec.layout.BlockAt(0).NormsOffset() + row % 64 * 4,
                &norm, 4);
  }
  const std::vector<float> scores = layer.Scores(RowScore::kKnorm);
  for (size_t row = 0; row < 150; ++row) {
    ASSERT_EQ(scores[row], -static_cast<float>(1000 + row * 7 % 31));
  }
}

TEST(RowScoresTest, ScoresAreAdded) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 70, 2);
  std::vector<float> scores(70, 10.0f);
  AddRowScores(RowScore::kStreaming, layer.Scored(), scores);
  for (int row = 0; row < 70; ++row) ASSERT_EQ(scores[row], 10.0f + static_cast<float>(row));
}

TEST(RowScoresTest, StreamingRanksByPositionNotByRow) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 3, 2);
  layer.positions = {7, 2, 5};
  EXPECT_EQ(layer.Scores(RowScore::kStreaming), (std::vector<float>{7, 2, 5}));
}

TEST(RowScoresTest, RandomIsAFunctionOfPositionAndSalt) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 1000, 3);
  const std::vector<float> scores = layer.Scores(RowScore::kRandom);
  EXPECT_GE(*std::min_element(scores.begin(), scores.end()), 0.0f);
  EXPECT_LT(*std::max_element(scores.begin(), scores.end()), 1.0f);
  // Mean of 1000 uniform draws: 0.5 with a deviation of 0.009.
  EXPECT_NEAR(std::accumulate(scores.begin(), scores.end(), 0.0) / 1000, 0.5, 0.05);

  std::reverse(layer.positions.begin(), layer.positions.end());
  std::vector<float> reversed = layer.Scores(RowScore::kRandom);
  std::reverse(reversed.begin(), reversed.end());
  EXPECT_EQ(reversed, scores);

  ScoredLayer salted = layer.Scored();
  salted.salt = 1;
  std::vector<float> other(1000, 0.0f);
  AddRowScores(RowScore::kRandom, salted, other);
  EXPECT_NE(other, scores);
}

TEST(RowScoresTest, KeyDiffIsMinusTheCosineToTheMeanDirection) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 150, 4);
  const int dim = layer.spec.layout.key_dim;
  std::vector<double> want(150, 0.0);
  for (int head = 0; head < layer.heads(); ++head) {
    std::vector<double> anchor(dim, 0.0);
    for (int row = 0; row < 150; ++row) {
      const float* key = layer.key(row, head);
      for (int d = 0; d < dim; ++d) anchor[d] += key[d] / Norm(key, dim) / 150;
    }
    const double length =
        std::sqrt(std::inner_product(anchor.begin(), anchor.end(), anchor.begin(), 0.0));
    for (int row = 0; row < 150; ++row) {
      const float* key = layer.key(row, head);
      const double dot = std::inner_product(anchor.begin(), anchor.end(), key, 0.0);
      want[row] -= dot / (Norm(key, dim) * length);
    }
  }
  ExpectNear(layer.Scores(RowScore::kKeyDiff), want, kTolerance);
}

TEST(RowScoresTest, KeyDiffOfZeroKeysIsZero) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 64, 5);
  std::fill(layer.storage[0].begin(), layer.storage[0].end(), std::byte{0});
  EXPECT_EQ(layer.Scores(RowScore::kKeyDiff), std::vector<float>(64, 0.0f));
}

}  // namespace
}  // namespace kvasir
