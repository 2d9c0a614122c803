#include "kvasir/kv/row_scores.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "kvasir/base/rng.h"
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

// Rank by rank, in double, for rows in order of position from `keep` on.
std::vector<double> NaiveLagKv(const ScoreTestLayer& layer, std::span<const int64_t> order,
                               int64_t keep) {
  const auto rows = static_cast<int64_t>(order.size());
  std::vector<double> scores(order.size(), 0.0);
  const int64_t ranked = std::max<int64_t>((rows - keep) / 128 - 1, 0);
  const auto outstanding = [&](bool keys, int head, int64_t begin) {
    const int dim = keys ? layer.spec.layout.key_dim : layer.spec.layout.value_dim;
    const auto at = [&](int64_t i, int d) -> double {
      return (keys ? layer.key(order[i], head) : layer.value(order[i], head))[d];
    };
    std::vector<double> result;
    for (int64_t i = begin; i < begin + 128; ++i) {
      std::vector<double> channels;
      for (int d = 0; d < dim; ++d) {
        double low = at(begin + 128, d), high = low;
        for (int64_t j = begin + 128; j < begin + 256; ++j) {
          low = std::min(low, at(j, d));
          high = std::max(high, at(j, d));
        }
        channels.push_back(high > low ? (at(i, d) - low) / (high - low) : 0);
      }
      const double mean = std::accumulate(channels.begin(), channels.end(), 0.0) / dim;
      double squares = 0;
      for (const double x : channels) squares += (x - mean) * (x - mean);
      result.push_back(std::exp(std::sqrt(squares / (dim - 1))));
    }
    const double sum = std::accumulate(result.begin(), result.end(), 0.0);
    for (double& x : result) x /= sum;
    return result;
  };
  for (int head = 0; head < layer.heads(); ++head) {
    for (int64_t i = 0; i < rows; ++i) {
      if (i < keep || i >= keep + ranked * 128) scores[order[i]] += 1;
    }
    for (int64_t p = 0; p < ranked; ++p) {
      const int64_t begin = keep + p * 128;
      const std::vector<double> of_keys = outstanding(true, head, begin);
      const std::vector<double> of_values = outstanding(false, head, begin);
      for (int i = 0; i < 128; ++i) {
        int rank = 0;
        for (int j = 0; j < 128; ++j) {
          rank += of_keys[j] + of_values[j] < of_keys[i] + of_values[i] ? 1 : 0;
        }
        scores[order[begin + i]] += rank / 128.0;
      }
    }
  }
  return scores;
}

TEST(RowScoresTest, LagKvRanksAgainstTheNextPartition) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  layer.spec.retention = {.kind = RetentionSpec::Kind::kBudget, .size = 64, .keep = 4};
  FillRandom(layer, 4 + 3 * 128 + 50, 6);
  std::vector<int64_t> order(layer.positions.size());
  std::iota(order.begin(), order.end(), 0);
  // Float and double may swap the ranks of two rows that are nearly equal.
  constexpr double kOneRankPerHead = 3.01 / 128;
  ExpectNear(layer.Scores(RowScore::kLagKv), NaiveLagKv(layer, order, 4), kOneRankPerHead);

  // Stored in another order, as after an eviction: the score follows the position.
  std::reverse(layer.positions.begin(), layer.positions.end());
  std::reverse(order.begin(), order.end());
  ExpectNear(layer.Scores(RowScore::kLagKv), NaiveLagKv(layer, order, 4), kOneRankPerHead);
}

TEST(RowScoresTest, LagKvWithoutASecondPartitionTellsNothingApart) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 255, 7);
  EXPECT_EQ(layer.Scores(RowScore::kLagKv), std::vector<float>(255, 3.0f));
}

TEST(RowScoresTest, LagKvOfConstantRowsIsFinite) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  FillRandom(layer, 256, 8);
  for (auto& block : layer.storage) std::fill(block.begin(), block.end(), std::byte{0});
  const std::vector<float> scores = layer.Scores(RowScore::kLagKv);
  // Equal rows rank by position, in each of the three heads.
  for (int row = 0; row < 128; ++row) ASSERT_EQ(scores[row], 3 * static_cast<float>(row) / 128);
  for (int row = 128; row < 256; ++row) ASSERT_EQ(scores[row], 3.0f);
}

constexpr int kQueryHeads = 6;  // two per kv head

KvLayerSpec ObservedSpec(int64_t observed_block) {
  KvLayerSpec spec = F32Layer();
  spec.layout.query_floats = kQueryHeads * spec.layout.key_dim;
  spec.layout.observed_block = observed_block;
  for (int i = 0; i < spec.layout.key_dim / 2; ++i) {
    spec.inv_freq.push_back(1.0f / static_cast<float>(1 << i));
  }
  return spec;
}

// 192 rows, of which the last block carries queries.
void FillObserved(ScoreTestLayer& layer, uint32_t seed) {
  layer.spec = ObservedSpec(2);
  FillRandom(layer, 192, seed);
}

std::vector<float> Query(const ScoreTestLayer& layer, int token, int head) {
  const KvLayout& layout = layer.spec.layout;
  std::vector<float> query(static_cast<size_t>(layout.key_dim));
  const size_t floats = (static_cast<size_t>(token) * kQueryHeads + head) * layout.key_dim;
  std::memcpy(query.data(), layer.blocks[2] + layout.BlockAt(2).QueriesOffset() + floats * 4,
              query.size() * 4);
  return query;
}

std::vector<double> NaiveSoftmax(std::vector<double> logits) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (double& x : logits) sum += x = std::exp(x - greatest);
  for (double& x : logits) x /= sum;
  return logits;
}

std::vector<double> NaiveTova(const ScoreTestLayer& layer, double scale) {
  const int dim = layer.spec.layout.key_dim;
  std::vector<double> scores(192, 0.0);
  for (int head = 0; head < kQueryHeads; ++head) {
    const std::vector<float> query = Query(layer, 63, head);
    std::vector<double> logits;
    for (int row = 0; row < 192; ++row) {
      const float* key = layer.key(row, head / 2);
      logits.push_back(scale * std::inner_product(key, key + dim, query.begin(), 0.0));
    }
    const std::vector<double> weights = NaiveSoftmax(logits);
    for (int row = 0; row < 192; ++row) scores[row] += weights[row] / 2;
  }
  return scores;
}

TEST(RowScoresTest, TovaIsTheAttentionOfTheLastQuery) {
  ScoreTestLayer layer;
  FillObserved(layer, 9);
  ExpectNear(layer.Scores(RowScore::kTova), NaiveTova(layer, 0.25), kTolerance);
  layer.spec.attention_scale = 0.5f;
  ExpectNear(layer.Scores(RowScore::kTova), NaiveTova(layer, 0.5), kTolerance);
}

// Turns the pairs (i, i + dim / 2) by `angle_of(i)`.
template <typename AngleOf>
std::vector<double> Turned(std::span<const double> vector, AngleOf angle_of) {
  const size_t pairs = vector.size() / 2;
  std::vector<double> turned(vector.size());
  for (size_t i = 0; i < pairs; ++i) {
    const double angle = angle_of(i), x = vector[i], y = vector[i + pairs];
    turned[i] = x * std::cos(angle) - y * std::sin(angle);
    turned[i + pairs] = y * std::cos(angle) + x * std::sin(angle);
  }
  return turned;
}

// The observed queries of one head as they are expected at the next 512 positions, on average.
std::vector<std::vector<double>> NaiveFutureQueries(const ScoreTestLayer& layer, int head) {
  const std::vector<float>& inv_freq = layer.spec.inv_freq;
  std::vector<std::vector<double>> queries;
  for (int i = 0; i < 64; ++i) {
    const std::vector<float> stored = Query(layer, i, head);
    const std::vector<double> query(stored.begin(), stored.end());
    const Position here = layer.positions[128 + i];
    std::vector<double> mean(query.size(), 0.0);
    for (Position there = 192; there < 192 + 512; ++there) {
      const auto turned = Turned(
          query, [&](size_t pair) { return static_cast<double>(there - here) * inv_freq[pair]; });
      for (size_t d = 0; d < mean.size(); ++d) mean[d] += turned[d] / 512;
    }
    queries.push_back(mean);
  }
  return queries;
}

TEST(RowScoresTest, ExpectedAttentionIsTheWeightUnderNormalQueries) {
  ScoreTestLayer layer;
  FillObserved(layer, 10);
  const int dim = layer.spec.layout.key_dim;
  std::vector<double> want(192, 0.0);
  std::vector<std::vector<double>> weights(3, std::vector<double>(192, 0.0));
  for (int head = 0; head < kQueryHeads; ++head) {
    const auto queries = NaiveFutureQueries(layer, head);
    std::vector<double> mean(dim, 0.0);
    for (const auto& query : queries) {
      for (int d = 0; d < dim; ++d) mean[d] += query[d] / 64;
    }
    std::vector<double> logits;
    for (int row = 0; row < 192; ++row) {
      const float* key = layer.key(row, head / 2);
      const double centre = std::inner_product(key, key + dim, mean.begin(), 0.0);
      double spread = 0;
      for (const auto& query : queries) {
        const double dot = std::inner_product(key, key + dim, query.begin(), 0.0) - centre;
        spread += dot * dot / 64;
      }
      logits.push_back(centre / std::sqrt(dim) + spread / (2 * dim));
    }
    const std::vector<double> probabilities = NaiveSoftmax(logits);
    for (int row = 0; row < 192; ++row) weights[head / 2][row] += probabilities[row] / 2;
  }
  for (int head = 0; head < 3; ++head) {
    for (int row = 0; row < 192; ++row) {
      want[row] += (weights[head][row] + 0.01) * Norm(layer.value(row, head), 12);
    }
  }
  ExpectNear(layer.Scores(RowScore::kExpectedAttention), want, kTolerance);
}

TEST(RowScoresTest, WithoutObservedQueriesKeyDiffTakesTheirPlace) {
  ScoreTestLayer layer;
  FillObserved(layer, 11);
  layer.positions.pop_back();  // the observed block is not complete
  for (const RowScore score : {RowScore::kTova, RowScore::kExpectedAttention}) {
    EXPECT_TRUE(NeedsQueries(score));
    EXPECT_EQ(layer.Scores(score), layer.Scores(RowScore::kKeyDiff));
  }
}

constexpr RowScore kAllScores[] = {
    RowScore::kKnorm,     RowScore::kKnormHigh, RowScore::kKeyDiff,           RowScore::kLagKv,
    RowScore::kStreaming, RowScore::kTova,      RowScore::kExpectedAttention, RowScore::kRandom};

TEST(RowScoresTest, EveryScoreReadsEveryCodec) {
  for (const char* name : {"f32", "f16", "bf16", "affine8:32", "turbo4"}) {
    const KvCodec codec = KvCodec::FromName(name).value();
    KvLayerSpec spec;
    spec.layout = {
        .kv_heads = 2, .key_dim = 64, .value_dim = 32, .key_codec = codec, .value_codec = codec};
    spec.layout.dense_start = 64;
    spec.layout.query_floats = 4 * 64;
    spec.layout.observed_block = 4;
    spec.inv_freq.assign(32, 0.01f);
    ScoreTestLayer exact, stored;
    exact.spec = stored.spec = spec;
    exact.spec.layout.key_codec = exact.spec.layout.value_codec = {KvCodec::Kind::kF32};
    FillRandom(exact, 320, 12);
    FillRandom(stored, 320, 12);
    for (const RowScore score : kAllScores) {
      SCOPED_TRACE(std::string(name) + " " + std::string(RowScoreName(score)));
      const std::vector<float> got = stored.Scores(score);
      const std::vector<float> want = exact.Scores(score);
      double covariance = 0, got_square = 0, want_square = 0;
      const double got_mean = std::accumulate(got.begin(), got.end(), 0.0) / 320;
      const double want_mean = std::accumulate(want.begin(), want.end(), 0.0) / 320;
      for (int row = 0; row < 320; ++row) {
        ASSERT_TRUE(std::isfinite(got[row])) << row;
        covariance += (got[row] - got_mean) * (want[row] - want_mean);
        got_square += (got[row] - got_mean) * (got[row] - got_mean);
        want_square += (want[row] - want_mean) * (want[row] - want_mean);
      }
      // The same scores up to what 4 bits lose on normal keys; a wrong plane, head or order of
      // dimensions gives about 0.
      EXPECT_GT(covariance / std::sqrt(got_square * want_square), 0.9);
    }
  }
}

TEST(RowScoresTest, RowsBeyondTheLastAreNeverRead) {
  for (const RowScore score : {RowScore::kKnorm, RowScore::kKeyDiff, RowScore::kLagKv}) {
    ScoreTestLayer layer;
    layer.spec = F32Layer();
    FillRandom(layer, 300, 13);
    const std::vector<float> before = layer.Scores(score);
    // Slot 300 - 256 = 44 of the last block and all after it hold NaN; make them huge instead.
    KvBlockLayout layout = layer.spec.layout.BlockAt(4);
    const std::vector<float> huge(48, 1e30f);
    for (int slot = 44; slot < 64; ++slot) {
      EncodeRow(layout, layer.blocks[4], slot, huge, std::span(huge).first(36));
    }
    EXPECT_EQ(layer.Scores(score), before);
  }
}

// Multiples of 1/32 that no C library had a part in.
std::vector<float> ExactRow(uint64_t row, int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) {
    const uint32_t bits = Philox4x32(row, static_cast<uint64_t>(i))[0];
    values.push_back(static_cast<float>(static_cast<int>(bits % 129) - 64) / 32);
  }
  return values;
}

TEST(RowScoresTest, BitsAreTheSameOnEveryMachine) {
  const std::pair<RowScore, uint64_t> pinned[] = {
      {RowScore::kKnorm, 0x3c9134e9f595da3e},
      {RowScore::kKnormHigh, 0xf573aa6ff595da3e},
      {RowScore::kKeyDiff, 0x834c3a90bc072085},
      {RowScore::kLagKv, 0xe15f1bdf05f99c25},
      {RowScore::kStreaming, 0xfe498c29b7fd9c25},
      {RowScore::kTova, 0x3cb1c2f15fa679f1},
      {RowScore::kExpectedAttention, 0x6de342a4a5eeb9d7},
      {RowScore::kRandom, 0x6a4c0bf3a95723c1}};
  ScoreTestLayer layer;
  layer.spec = ObservedSpec(4);
  FillRandom(layer, 320, 14);
  for (uint64_t row = 0; row < 320; ++row) {
    EncodeRow(layer.spec.layout.BlockAt(row / 64), layer.blocks[row / 64], row % 64,
              ExactRow(row, 48), ExactRow(row + 1000, 36));
  }
  const std::vector<float> queries = ExactRow(5000, 64 * kQueryHeads * 16);
  std::memcpy(layer.blocks[4] + layer.spec.layout.BlockAt(4).QueriesOffset(), queries.data(),
              queries.size() * 4);
  for (const auto& [score, want] : pinned) {
    uint64_t hash = 0xcbf29ce484222325;  // FNV-1a over the scores' bits
    for (const float value : layer.Scores(score)) {
      hash = (hash ^ std::bit_cast<uint32_t>(value)) * 0x100000001b3;
    }
    EXPECT_EQ(hash, want) << RowScoreName(score) << std::hex << " 0x" << hash;
  }
}

TEST(RowScoresTest, NoRowsNoScores) {
  ScoreTestLayer layer;
  layer.spec = F32Layer();
  std::vector<float> none;
  for (const RowScore score : kAllScores) {
    AddRowScores(score, {.spec = &layer.spec}, none);
  }
}

}  // namespace
}  // namespace kvasir
