// Integer attention: every table has the oracle's bits, for every codec that has it, head size and
// number of rows; what it computes is close to what the float kernels do; unseen slots never
// matter.
#include <algorithm>
#include <cmath>

#include "gtest/gtest.h"
#include "kvasir/kernels/integer_test_util.h"

namespace kvasir {
namespace {

using testing::AwkwardRows;
using testing::AwkwardScores;
using testing::CodeError;
using testing::Encoded;
using testing::ExpectSameBits;
using testing::FirstHalves;
using testing::ForEachShape;
using testing::HashBits;
using testing::kHalves;
using testing::kInfinity;
using testing::kMostRows;
using testing::kNan;
using testing::kRows;
using testing::kWeightPowerError;
using testing::kWidths;
using testing::Oracle;
using testing::PortableFloats;
using testing::QueryLevelsOf;
using testing::RandomFloats;
using testing::SameBits;
using testing::Scores;
using testing::SimdTables;
using testing::SumCase;
using testing::WeightError;
using testing::Where;

TEST(IntegerScores, TablesHaveTheOraclesBits) {
  ForEachShape([](const KvCodec& codec, int64_t dim, MultiplierWidth width) {
    const auto size = static_cast<size_t>((dim + 5) * kMostRows);
    for (const bool awkward : {false, true}) {
      const std::vector<float> queries =
          awkward ? AwkwardRows(kMostRows, dim + 5) : RandomFloats(size, 6);
      const std::vector<std::byte> keys =
          Encoded(true, codec, awkward ? AwkwardRows(64, dim) : RandomFloats(size, 5), dim);
      for (const int64_t rows : kRows) {
        const auto expected = Scores(Oracle(), codec, width, keys, queries.data(), rows, dim);
        for (const KernelTable* table : SimdTables()) {
          ExpectSameBits(expected, Scores(*table, codec, width, keys, queries.data(), rows, dim),
                         Where(table->isa, codec, dim, width) + ", rows " + std::to_string(rows));
          auto halves =
              Scores(*table, codec, width, keys, queries.data(), rows, dim, {}, kHalfBlock);
          halves.resize(static_cast<size_t>(rows * kBlockTokens));
          ExpectSameBits(
              FirstHalves({expected.begin(), expected.begin() + rows * kBlockTokens}),
              FirstHalves(halves),
              "half of " + Where(table->isa, codec, dim, width) + ", rows " + std::to_string(rows));
        }
      }
    }
  });
}

// What a group's keys have in common is multiplied with the sum of its queries: one byte keeps it,
// also where rounding each number by itself would lose all of many small ones.
TEST(IntegerScores, OneByteKeepsTheSumOfAGroup) {
  constexpr int64_t kDim = 256;
  for (const KvCodec& codec : {KvCodec::Affine(8, 32), KvCodec::Affine(8, 64),
                               KvCodec::Affine(8, 128), KvCodec::Affine(4, 64)}) {
    std::vector<float> queries = RandomFloats((kDim + 5) * 3, 6);
    for (int64_t d = 0; d < kDim; ++d) {
      queries[static_cast<size_t>(kDim + 5 + d)] = d % codec.group == 9 ? -127.0f : 0.4f;
      queries[static_cast<size_t>(2 * (kDim + 5) + d)] = d % codec.group == 9 ? 127.0f : 0.6f;
    }
    const std::vector<std::byte> keys =
        Encoded(true, codec, RandomFloats(kDim * kBlockTokens, 5), kDim);
    const auto all =
        Scores(Oracle(), codec, MultiplierWidth::kOneByte, keys, queries.data(), 3, kDim);
    const auto groups = static_cast<size_t>(3 * kDim / codec.group);
    const float* const scales = all.data() + 3 * kBlockTokens;
    const float* const sums = scales + groups;
    const float* const starts = sums + groups;
    for (size_t g = 0; g < groups; ++g) {
      const float codes = -starts[g] / static_cast<float>(KeyMiddle(codec.bits));
      EXPECT_NEAR(codes * scales[g], sums[g], 0.501 * scales[g]) << codec.name() << ", group " << g;
    }
  }
}

// A query is rounded by less than a step of its group, by half a step with two bytes, a key of f16
// by half a step of its token, and nothing by anything else that is not rounding to float: 2^-24
// relative, a few times, of sums of magnitudes.
TEST(IntegerScores, AreThoseOfFloatsUpToTheRoundingOfQueries) {
  ForEachShape([](const KvCodec& codec, int64_t dim, MultiplierWidth width) {
    const auto size = static_cast<size_t>((dim + 5) * 3);
    const std::vector<float> queries = RandomFloats(size, 6);
    const std::vector<std::byte> keys =
        Encoded(true, codec, RandomFloats(static_cast<size_t>(dim * 64), 5), dim);
    const auto integers = Scores(Oracle(), codec, width, keys, queries.data(), 3, dim);
    std::vector<float> floats(3 * kBlockTokens);
    Oracle().ForCodec(codec).score_tile(
        {queries.data(), dim + 5, 3, keys.data(), dim, floats.data(), {}, codec});
    for (size_t i = 0; i < floats.size(); ++i) {
      // |k| <= 4.5 and |q| <= 4.5 in these samples.
      const double step = 4.5 / QueryLevelsOf(codec, width);
      const double rounding = width == MultiplierWidth::kOneByte ? 1 : 0.5;
      const double limit =
          static_cast<double>(dim) * 4.5 * (rounding * step + CodeError(codec) + 4.5 * 0x1p-20);
      ASSERT_NEAR(integers[i], floats[i], limit) << codec.name() << ", dim " << dim;
    }
  });
}

TEST(IntegerSums, TablesHaveTheOraclesBits) {
  ForEachShape([](const KvCodec& codec, int64_t dim, MultiplierWidth width) {
    for (const bool awkward : {false, true}) {
      const std::vector<std::byte> values = Encoded(
          false, codec,
          awkward ? AwkwardRows(64, dim) : RandomFloats(static_cast<size_t>(dim * 64), 5), dim);
      for (const int64_t rows : kRows) {
        SumCase c(rows, dim, static_cast<uint32_t>(rows % 3));
        if (awkward) c.scores = AwkwardScores(c.scores.size());
        const std::vector<float> expected = c.Run(Oracle(), codec, values, width).All();
        for (const KernelTable* table : SimdTables()) {
          ExpectSameBits(expected, c.Run(*table, codec, values, width).All(),
                         Where(table->isa, codec, dim, width) + ", rows " + std::to_string(rows));
        }
      }
    }
  });
}

TEST(IntegerSums, TablesAgreeOnCappedScoresAndOtherBases) {
  constexpr int64_t kDim = 64;
  const KvCodec codec = KvCodec::Affine(8, 64);
  const std::vector<std::byte> values =
      Encoded(false, codec, RandomFloats(kDim * kBlockTokens, 5), kDim);
  for (const int64_t rows : kRows) {
    SumCase c(rows, kDim, static_cast<uint32_t>(rows % 3));
    for (const float softcap : {0.0f, 2.0f}) {
      c.softcap = softcap;
      c.to_base2 = 1.4427f;
      for (const MultiplierWidth width : kWidths) {
        const std::vector<float> expected = c.Run(Oracle(), codec, values, width).All();
        for (const KernelTable* table : SimdTables()) {
          ExpectSameBits(expected, c.Run(*table, codec, values, width).All(),
                         Where(table->isa, codec, kDim, width) + ", rows " + std::to_string(rows));
        }
      }
    }
  }
}

// The exponentials' relative error is that of integer_steps.h, and the sum's as large; each token
// is rounded by half a unit of the block's largest weight besides.
TEST(IntegerSums, SumsAreThoseOfExactExponentials) {
  constexpr int64_t kDim = 64;
  const KvCodec codec = KvCodec::Affine(8, 64);
  const std::vector<std::byte> values =
      Encoded(false, codec, RandomFloats(kDim * kBlockTokens, 5), kDim);
  const SumCase c(64, kDim, 0);
  for (const MultiplierWidth width : kWidths) {
    const SumCase::Result result = c.Run(Oracle(), codec, values, width);
    for (size_t r = 0; r < c.max.size(); ++r) {
      double exact = std::isinf(c.max[r]) ? c.sum[r] : c.sum[r] * std::exp2(double{c.max[r]});
      if (std::isinf(c.max[r])) exact *= std::exp2(double{result.max[r]});
      double largest = 0;
      for (size_t t = 0; t < kBlockTokens; ++t) {
        const double power = std::exp2(double{c.scores[r * kBlockTokens + t]});
        largest = std::max(largest, power);
        exact += power;
      }
      const double sum = result.sum[r] * std::exp2(double{result.max[r]});
      EXPECT_NEAR(sum, exact, kWeightPowerError * exact + 32 * kWeightUnit * largest) << r;
    }
  }
}

// Weights are integers, which know neither NaN nor what is far below the largest score.
TEST(IntegerSums, WhatNoIntegerIsNeitherGetsLostNorSpreads) {
  constexpr int64_t kDim = 64;
  const KvCodec codec = KvCodec::Affine(8, 64);
  const std::vector<std::byte> values =
      Encoded(false, codec, RandomFloats(kDim * kBlockTokens, 5), kDim);
  SumCase plain(64, kDim, 0);
  SumCase c = plain;
  const auto score = [&](size_t row, size_t token) -> float& {
    return c.scores[row * kBlockTokens + token];
  };
  score(5, 10) = kNan;
  score(6, 60) = kNan;
  c.end[6] = 60;  // does not see it
  score(7, 3) = kInfinity;
  score(8, 1) = -kInfinity;
  score(9, 2) = -1e30f;
  for (const Isa isa : SupportedIsas()) {
    for (const MultiplierWidth width : kWidths) {
      const auto without = plain.Run(KernelsFor(isa), codec, values, width);
      const auto result = c.Run(KernelsFor(isa), codec, values, width);
      for (size_t row = 0; row < 64; ++row) {
        EXPECT_EQ(std::isnan(result.sum[row]), row == 5 || row == 7) << IsaName(isa) << ", " << row;
        if (row >= 5 && row <= 9) continue;
        EXPECT_TRUE(SameBits(result.sum[row], without.sum[row])) << IsaName(isa) << ", " << row;
      }
      EXPECT_LT(result.sum[8], without.sum[8]);
      EXPECT_LT(result.sum[9], without.sum[9]);
    }
  }
}

// A weight times a scale is rounded by at most WeightError, 64 of them times a code; a centre by
// half a step of the largest; the exponentials add their own error, that of blocks included.
TEST(IntegerSums, AreThoseOfFloatsUpToTheRoundingOfWeights) {
  ForEachShape([](const KvCodec& codec, int64_t dim, MultiplierWidth width) {
    const std::vector<std::byte> values =
        Encoded(false, codec, RandomFloats(static_cast<size_t>(dim * 64), 5), dim);
    SumCase c(5, dim, 1);
    const SumCase::Result integers = c.Run(Oracle(), codec, values, width);
    const std::vector<float> floats = c.RunFloat(codec, values, integers);
    // Scales are at most 9 / (2^bits - 1), so a scale times a code is at most 9; a block's largest
    // weight is at most 2^8, where the reference stays.
    for (size_t i = 0; i < floats.size(); ++i) {
      const auto r = static_cast<int64_t>(i) / (dim + 1);
      float top = 0;
      for (int64_t t = c.begin[static_cast<size_t>(r)]; t < c.end[static_cast<size_t>(r)]; ++t) {
        top = std::max(top, std::exp2(c.scores[static_cast<size_t>(r * kBlockTokens + t)] -
                                      integers.max[static_cast<size_t>(r)]));
      }
      ASSERT_NEAR(integers.accumulator[i], floats[i],
                  top * 64 * 9.0 *
                          (WeightError(codec, width) + 0.5 / kCentreLevels +
                           CodeError(codec) / 4.5 + kWeightPowerError + kWeightUnit) +
                      std::fabs(floats[i]) * 0x1p-20)
          << codec.name() << ", dim " << dim;
    }
  });
}

TEST(IntegerSums, RowsOutsideTheVisibleRangeNeverMatter) {
  ForEachShape([](const KvCodec& codec, int64_t dim, MultiplierWidth width) {
    const std::vector<float> rows = RandomFloats(static_cast<size_t>(dim * kBlockTokens), 9);
    SumCase c(5, dim, 0);
    for (size_t r = 0; r < 5; ++r) {
      c.begin[r] = static_cast<int32_t>(10 + r);
      c.end[r] = static_cast<int32_t>(40 + r);
    }
    std::vector<std::byte> clean = Encoded(false, codec, rows, dim);
    // NaN scales and highest codes, or NaN
    std::vector<std::byte> dirty(clean.size(), std::byte{0xFF});
    for (int64_t slot = 10; slot < 44; ++slot) {
      for (std::vector<std::byte>* plane : {&clean, &dirty}) {
        Oracle().ForCodec(codec).encode_values(
            {rows.data() + slot * dim, dim, 1, dim, slot, plane->data(), codec});
      }
    }
    for (const Isa isa : SupportedIsas()) {
      ExpectSameBits(c.Run(KernelsFor(isa), codec, clean, width).All(),
                     c.Run(KernelsFor(isa), codec, dirty, width).All(),
                     Where(isa, codec, dim, width));
    }
  });
}

// Rows of an index are those rows, and no others are touched.
TEST(IntegerKernels, RowsOfAnIndexHaveTheSameBits) {
  constexpr int64_t kDim = 128;
  constexpr int64_t kMany = 23;
  const std::vector<int32_t> index = {0, 2, 3, 7, 8, 9, 10, 11, 14, 15, 16, 17, 18, 19, 20, 21, 22};
  const std::vector<float> cache = RandomFloats(kDim * kBlockTokens, 21);
  const std::vector<float> queries = RandomFloats((kDim + 5) * kMany, 22);
  for (const int bits : {4, 8}) {
    const KvCodec codec = KvCodec::Affine(bits, 64);
    const std::vector<std::byte> keys = Encoded(true, codec, cache, kDim);
    const std::vector<std::byte> values = Encoded(false, codec, cache, kDim);
    for (const MultiplierWidth width : kWidths) {
      for (const uint32_t windows : {0, 1}) {
        const SumCase c(kMany, kDim, windows);
        for (const Isa isa : SupportedIsas()) {
          const KernelTable& table = KernelsFor(isa);
          const auto scores = Scores(table, codec, width, keys, queries.data(), kMany, kDim);
          const auto some_scores =
              Scores(table, codec, width, keys, queries.data(), kMany, kDim, index);
          const auto sums = c.Run(table, codec, values, width);
          const auto some_sums = c.RunSome(table, codec, values, width, index);
          for (int64_t row = 0; row < kMany; ++row) {
            const bool is_listed = std::find(index.begin(), index.end(), row) != index.end();
            const std::vector<float>& from = is_listed ? sums.accumulator : c.accumulator;
            for (int64_t d = 0; d < kDim; ++d) {
              const auto at = static_cast<size_t>(row * (kDim + 1) + d);
              ASSERT_TRUE(SameBits(from[at], some_sums.accumulator[at]))
                  << Where(isa, codec, kDim, width) << ", row " << row;
            }
            for (int64_t t = 0; t < kBlockTokens; ++t) {
              const auto at = static_cast<size_t>(row * kBlockTokens + t);
              ASSERT_TRUE(is_listed ? SameBits(scores[at], some_scores[at])
                                    : std::isnan(some_scores[at]))
                  << Where(isa, codec, kDim, width) << ", row " << row;
            }
          }
        }
      }
    }
  }
}

// Rows to be scaled anew, and rows that see nothing, are looked for in many at once.
TEST(IntegerKernels, ARowThatDiffersIsFoundAmongMany) {
  constexpr int64_t kDim = 128;
  constexpr int64_t kMany = 133;
  const std::vector<float> cache = RandomFloats(kDim * kBlockTokens, 23);
  for (const KvCodec& codec : {KvCodec::Affine(8, 64), kHalves}) {
    const std::vector<std::byte> values = Encoded(false, codec, cache, kDim);
    for (const size_t at : {0, 3, 7, 8, 15, 16, 31, 32, 47, 48, 63, 64, 79, 127, 128, 132}) {
      SumCase c(kMany, kDim, 0);
      std::fill(c.max.begin(), c.max.end(), 10.0f);
      const auto rescaled = [&] {
        const auto result = c.Run(Oracle(), codec, values, MultiplierWidth::kTwoBytes);
        for (const KernelTable* table : SimdTables()) {
          ExpectSameBits(result.All(),
                         c.Run(*table, codec, values, MultiplierWidth::kTwoBytes).All(),
                         Where(table->isa, codec, kDim, MultiplierWidth::kTwoBytes) + ", row " +
                             std::to_string(at));
        }
        return std::count_if(result.rescale.begin(), result.rescale.end(),
                             [](float factor) { return factor != 1.0f; });
      };
      EXPECT_EQ(rescaled(), 0);
      c.max[at] = -20.0f;
      EXPECT_EQ(rescaled(), 1);
      c.begin[at] = c.end[at] = 5;
      EXPECT_EQ(rescaled(), 0);
    }
  }
}

TEST(IntegerKernels, ARowHasTheSameBitsWhateverItsNeighbours) {
  constexpr int64_t kDim = 128;
  constexpr int64_t kMany = 23;
  const std::vector<float> cache = RandomFloats(kDim * kBlockTokens, 21);
  const std::vector<float> queries = RandomFloats((kDim + 5) * kMany, 22);
  for (const auto& [codec, width] : {std::pair(KvCodec::Affine(4, 64), MultiplierWidth::kOneByte),
                                     std::pair(KvCodec::Affine(8, 64), MultiplierWidth::kOneByte),
                                     std::pair(KvCodec::Affine(4, 64), MultiplierWidth::kTwoBytes),
                                     std::pair(KvCodec::Affine(8, 64), MultiplierWidth::kTwoBytes),
                                     std::pair(kHalves, MultiplierWidth::kTwoBytes)}) {
    const std::vector<std::byte> keys = Encoded(true, codec, cache, kDim);
    const std::vector<std::byte> values = Encoded(false, codec, cache, kDim);
    const SumCase c(kMany, kDim, 1);
    for (const KernelTable* table : SimdTables()) {
      const auto all = Scores(*table, codec, width, keys, queries.data(), kMany, kDim);
      const auto all_sums = c.Run(*table, codec, values, width).accumulator;
      for (int64_t first = 1; first < kMany; ++first) {
        const auto some =
            Scores(*table, codec, width, keys, queries.data() + first * (kDim + 5), 1, kDim);
        const auto some_sums = c.Run(*table, codec, values, width, first).accumulator;
        for (size_t i = 0; i < kBlockTokens; ++i) {
          ASSERT_TRUE(SameBits(all[static_cast<size_t>(first) * kBlockTokens + i], some[i]));
        }
        for (size_t i = static_cast<size_t>(first * (kDim + 1)); i < all_sums.size(); ++i) {
          ASSERT_TRUE(SameBits(all_sums[i], some_sums[i])) << codec.name();
        }
      }
    }
  }
}

TEST(IntegerKernels, TheLargestSumsFit) {
  constexpr int64_t kDim = 128;
  const KvCodec codec = KvCodec::Affine(8, 128);
  // One end of every group is reached by all dims but one: codes of 255 or of 0.
  std::vector<float> cache(kDim * kBlockTokens, 1.0f);
  for (int64_t t = 0; t < kBlockTokens; ++t) cache[static_cast<size_t>(t * kDim)] = -2.0f;
  const std::vector<float> queries(kDim + 5, 1.0f);
  SumCase c(1, kDim, 0);
  std::fill(c.scores.begin(), c.scores.end(), 3.5f);
  c.max[0] = -kInfinity;
  std::fill(c.accumulator.begin(), c.accumulator.end(), 0.0f);
  for (const Isa isa : SupportedIsas()) {
    for (const MultiplierWidth width : kWidths) {
      const auto scores = Scores(KernelsFor(isa), codec, width, Encoded(true, codec, cache, kDim),
                                 queries.data(), 1, kDim);
      EXPECT_NEAR(scores[0], 125.0f, 1e-2) << IsaName(isa);
      const auto sums =
          c.Run(KernelsFor(isa), codec, Encoded(false, codec, cache, kDim), width).accumulator;
      EXPECT_NEAR(sums[1], 64.0f, 1e-2) << IsaName(isa);
      EXPECT_NEAR(sums[0], -128.0f, 1e-2) << IsaName(isa);
    }
  }
}

// Codes of 8188, the largest, against 8191: sums of 32 products of them are just below 2^31.
TEST(IntegerKernels, TheLargestSumsOfHalvesFit) {
  constexpr int64_t kDim = 128;
  constexpr float kLargest = 2047.0f / 1024;
  const std::vector<float> cache(kDim * kBlockTokens, kLargest);
  const std::vector<float> queries(kDim + 5, -1.0f);
  SumCase c(1, kDim, 0);
  std::fill(c.scores.begin(), c.scores.end(), 3.5f);
  c.max[0] = -kInfinity;
  std::fill(c.accumulator.begin(), c.accumulator.end(), 0.0f);
  for (const Isa isa : SupportedIsas()) {
    const auto scores = Scores(KernelsFor(isa), kHalves, MultiplierWidth::kTwoBytes,
                               Encoded(true, kHalves, cache, kDim), queries.data(), 1, kDim);
    EXPECT_NEAR(scores[0], -kDim * kLargest, 1e-3) << IsaName(isa);
    const auto sums = c.Run(KernelsFor(isa), kHalves, Encoded(false, kHalves, cache, kDim),
                            MultiplierWidth::kTwoBytes)
                          .accumulator;
    EXPECT_NEAR(sums[0], kBlockTokens * kLargest, 1e-3) << IsaName(isa);
  }
}

// What is above an eighth of a token's largest power of two is a code exactly, and so is a query of
// integers: scores have no error then but that of float.
TEST(IntegerScores, LargeHalvesAreNotRounded) {
  constexpr int64_t kDim = 64;
  std::mt19937 random(31);
  std::vector<float> cache(kDim * kBlockTokens);
  for (float& x : cache) {
    // Eleven bits, from 1/4 to 2.
    x = static_cast<float>(512 + random() % 512) / 2048 * static_cast<float>(1u << random() % 3);
    if (random() % 2 == 0) x = -x;
  }
  std::vector<float> queries(kDim + 5);
  for (size_t i = 0; i < queries.size(); ++i) {
    queries[i] = i % 2 == 0 ? 8191.0f : static_cast<float>(i) * -100.0f;
  }
  const auto scores = Scores(Oracle(), kHalves, MultiplierWidth::kTwoBytes,
                             Encoded(true, kHalves, cache, kDim), queries.data(), 1, kDim);
  for (size_t t = 0; t < kBlockTokens; ++t) {
    double exact = 0;
    double magnitude = 0;
    for (size_t d = 0; d < kDim; ++d) {
      const double product = double{queries[d]} * cache[t * kDim + d];
      exact += product;
      magnitude += std::fabs(product);
    }
    EXPECT_NEAR(scores[t], exact, magnitude * 0x1p-22) << t;
  }
}

TEST(IntegerKernels, BitsOfHalvesAreTheSameOnEveryMachine) {
  constexpr int64_t kDim = 112;
  const std::vector<float> cache = PortableFloats(kDim * kBlockTokens, 1);
  const std::vector<float> queries = PortableFloats((kDim + 5) * 9, 2);
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> all;
    for (const int64_t rows : {3, 9}) {
      SumCase c(rows, kDim, 2);
      c.scores = PortableFloats(c.scores.size(), 3);
      for (float& score : c.scores) score *= 8;
      c.accumulator = PortableFloats(c.accumulator.size(), 4);
      c.max = PortableFloats(c.max.size(), 5);
      const auto scores = Scores(KernelsFor(isa), kHalves, MultiplierWidth::kTwoBytes,
                                 Encoded(true, kHalves, cache, kDim), queries.data(), rows, kDim);
      const auto sums = c.Run(KernelsFor(isa), kHalves, Encoded(false, kHalves, cache, kDim),
                              MultiplierWidth::kTwoBytes)
                            .All();
      all.insert(all.end(), scores.begin(), scores.end());
      all.insert(all.end(), sums.begin(), sums.end());
    }
    // Written by the oracle on x86-64; a change here changes every model's output.
    EXPECT_EQ(HashBits(all), 0x50D7DC631B127DD6u) << IsaName(isa);
  }
}

TEST(IntegerKernels, BitsAreTheSameOnEveryMachine) {
  constexpr int64_t kDim = 128;
  const std::vector<float> cache = PortableFloats(kDim * kBlockTokens, 1);
  const std::vector<float> queries = PortableFloats((kDim + 5) * 5, 2);
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> all;
    for (const int bits : {4, 8}) {
      for (const int group : {32, 64, 128}) {
        const KvCodec codec = KvCodec::Affine(bits, group);
        SumCase c(5, kDim, 2);
        c.scores = PortableFloats(c.scores.size(), 3);
        for (float& score : c.scores) score *= 8;
        c.accumulator = PortableFloats(c.accumulator.size(), 4);
        c.max = PortableFloats(c.max.size(), 5);
        for (const MultiplierWidth width : kWidths) {
          const auto scores = Scores(KernelsFor(isa), codec, width,
                                     Encoded(true, codec, cache, kDim), queries.data(), 5, kDim);
          const auto sums =
              c.Run(KernelsFor(isa), codec, Encoded(false, codec, cache, kDim), width).All();
          all.insert(all.end(), scores.begin(), scores.end());
          all.insert(all.end(), sums.begin(), sums.end());
        }
      }
    }
    // Written by the oracle on x86-64; a change here changes every model's output.
    EXPECT_EQ(HashBits(all), 0xD276BC1D48ADFEA4u) << IsaName(isa);
  }
}

}  // namespace
}  // namespace kvasir
