// Attention over bf16 in pairs: every table has the oracle's bits whatever the plane holds, rows do
// not depend on their neighbours or on what they do not see, and the sums are close to exact ones.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/tensor/bf16_pairs.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using testing::AllTables;
using testing::AwkwardFloats;
using testing::ExpectSameBits;
using testing::FirstHalves;
using testing::HashBits;
using testing::kInfinity;
using testing::kNan;
using testing::Oracle;
using testing::PortableFloats;
using testing::RandomFloats;
using testing::SameBits;

constexpr int64_t kDims[] = {2, 6, 16, 34, 64, 80, 96, 128, 130, 192, 256, 512};
constexpr int64_t kRows[] = {1, 2, 3, 5, 6, 7, 13, 64};

enum class Kind { kUsual, kAwkward };

std::vector<float> Floats(Kind kind, int64_t count, uint32_t seed) {
  const auto size = static_cast<size_t>(count);
  return kind == Kind::kUsual ? RandomFloats(size, seed) : AwkwardFloats(size, seed);
}

// A plane exactly as large as it may be, in the order in which floats are given.
std::vector<std::byte> Plane(const std::vector<float>& floats) {
  std::vector<std::byte> plane(floats.size() * sizeof(uint16_t));
  for (size_t i = 0; i < floats.size(); ++i) {
    const uint16_t bits = FloatToBf16(floats[i]);
    std::memcpy(plane.data() + i * sizeof(bits), &bits, sizeof(bits));
  }
  return plane;
}

std::string Where(Isa isa, int64_t dim, int64_t rows) {
  return std::string(IsaName(isa)) + ", dim " + std::to_string(dim) + ", " + std::to_string(rows) +
         " rows";
}

std::vector<float> Scores(const KernelTable& table, const std::vector<std::byte>& keys,
                          const std::vector<float>& queries, int64_t dim,
                          const LinesAhead& next = {}, int64_t tokens = kBlockTokens) {
  const auto rows = static_cast<int64_t>(queries.size()) / dim;
  std::vector<std::byte> rounded(static_cast<size_t>(rows * KernelTable::RoundedBytes(dim)));
  table.round_rows(queries.data(), dim, rows, dim, rounded.data());
  std::vector<float> scores(static_cast<size_t>(rows * kBlockTokens), kNan);
  table.pair_kv.score_tile({.rows = rows,
                            .keys = keys.data(),
                            .key_dim = dim,
                            .scores = scores.data(),
                            .next = next,
                            .tokens = tokens,
                            .rounded = rounded.data()});
  return scores;
}

struct Sums {
  int64_t dim = 0;
  std::vector<float> weights;  // [rows, 64]
  std::vector<int32_t> begin = std::vector<int32_t>(weights.size() / kBlockTokens, 0);
  std::vector<int32_t> end = std::vector<int32_t>(begin.size(), kBlockTokens);
  std::vector<float> rescale = RandomFloats(begin.size(), 7);
  std::vector<float> before = RandomFloats(begin.size() * static_cast<size_t>(dim + 1), 8);

  // Rows [first, first + count) of the accumulator, with one float behind each.
  std::vector<float> Run(const KernelTable& table, const std::vector<std::byte>& values,
                         int64_t first = 0, int64_t count = -1, const LinesAhead& next = {}) const {
    std::vector<float> out = before;
    table.pair_kv.accumulate_tile({.weights = weights.data() + first * kBlockTokens,
                                   .rows = count < 0 ? static_cast<int64_t>(begin.size()) : count,
                                   .begin = begin.data() + first,
                                   .end = end.data() + first,
                                   .rescale = rescale.data() + first,
                                   .values = values.data(),
                                   .value_dim = dim,
                                   .accumulator = out.data() + first * (dim + 1),
                                   .accumulator_stride = dim + 1,
                                   .next = next});
    return out;
  }
};

// What each row sees: everything, windows at random (empty ones too), or one token more each.
// Weights of everything else are 0, as softmax_tile leaves them.
void SetWindows(uint32_t seed, Sums* sums) {
  std::mt19937 random(seed);
  for (size_t r = 0; r < sums->begin.size(); ++r) {
    if (seed % 3 == 1) {
      sums->begin[r] = static_cast<int32_t>(random() % 64);
      sums->end[r] = sums->begin[r] + static_cast<int32_t>(random() % (65 - sums->begin[r]));
    } else if (seed % 3 == 2) {
      sums->end[r] = static_cast<int32_t>(std::min<size_t>(r, 64));
    }
    for (int32_t t = 0; t < kBlockTokens; ++t) {
      if (t < sums->begin[r] || t >= sums->end[r])
        sums->weights[r * kBlockTokens + static_cast<size_t>(t)] = 0;
    }
  }
}

TEST(PairScoreTile, TablesHaveTheOraclesBits) {
  for (const Kind kind : {Kind::kUsual, Kind::kAwkward}) {
    for (const int64_t dim : kDims) {
      const std::vector<std::byte> keys = Plane(Floats(kind, dim * kBlockTokens, 5));
      for (const int64_t rows : kRows) {
        const std::vector<float> queries = Floats(kind, dim * rows, 6);
        const std::vector<float> expected = Scores(Oracle(), keys, queries, dim);
        for (const KernelTable* table : AllTables()) {
          ExpectSameBits(expected, Scores(*table, keys, queries, dim),
                         Where(table->isa, dim, rows));
          ExpectSameBits(FirstHalves(expected),
                         FirstHalves(Scores(*table, keys, queries, dim, {}, kHalfBlock)),
                         "half of " + Where(table->isa, dim, rows));
        }
      }
    }
  }
}

TEST(PairAccumulateTile, TablesHaveTheOraclesBits) {
  for (const Kind kind : {Kind::kUsual, Kind::kAwkward}) {
    for (const int64_t dim : kDims) {
      const std::vector<std::byte> values = Plane(Floats(kind, dim * kBlockTokens, 5));
      for (const int64_t rows : kRows) {
        for (uint32_t seed = 0; seed < 3; ++seed) {
          Sums sums = {.dim = dim, .weights = Floats(kind, rows * kBlockTokens, seed)};
          SetWindows(seed, &sums);
          const std::vector<float> expected = sums.Run(Oracle(), values);
          for (const KernelTable* table : AllTables()) {
            ExpectSameBits(expected, sums.Run(*table, values), Where(table->isa, dim, rows));
          }
        }
      }
    }
  }
}

// Products and sums of bf16 as small as there are: an instruction that flushes denormals may meet
// none. Beside each other huge and tiny, so that sums cancel to next to nothing.
TEST(PairKernels, TheSmallestNumbersHaveTheOraclesBits) {
  constexpr int64_t kDim = 64;
  constexpr int64_t kTileRows = 7;
  std::mt19937 random(3);
  const auto any = [&](int count) {
    std::vector<float> floats;
    for (int i = 0; i < count; ++i) {
      const auto exponent = static_cast<int>(random() % 140) - 139;
      const float sign = random() % 2 == 0 ? 1 : -1;
      floats.push_back(sign *
                       std::ldexp(1.0f + static_cast<float>(random() % 128) / 128, exponent));
    }
    return floats;
  };
  for (int round = 0; round < 50; ++round) {
    const std::vector<std::byte> plane = Plane(any(kDim * kBlockTokens));
    const std::vector<float> queries = any(kDim * kTileRows);
    Sums sums = {.dim = kDim, .weights = any(kTileRows * kBlockTokens)};
    sums.rescale = any(kTileRows);
    sums.before = any(static_cast<int>(sums.before.size()));
    for (const KernelTable* table : AllTables()) {
      ExpectSameBits(Scores(Oracle(), plane, queries, kDim), Scores(*table, plane, queries, kDim),
                     Where(table->isa, kDim, kTileRows));
      ExpectSameBits(sums.Run(Oracle(), plane), sums.Run(*table, plane),
                     Where(table->isa, kDim, kTileRows));
    }
  }
}

// Whatever stands where a row sees nothing: NaN, infinity, or zeros of either sign.
TEST(PairAccumulateTile, TokensOutsideTheVisibleRangeNeverMatter) {
  constexpr int64_t kDim = 96;
  constexpr int64_t kTileRows = 13;
  const std::vector<float> clean = RandomFloats(kDim * kBlockTokens, 9);
  Sums sums = {.dim = kDim, .weights = RandomFloats(kTileRows * kBlockTokens, 10)};
  for (int64_t r = 0; r < kTileRows; ++r) {
    sums.begin[static_cast<size_t>(r)] = static_cast<int32_t>(9 + r);
    sums.end[static_cast<size_t>(r)] = static_cast<int32_t>(40 + r);
    // As softmax_tile leaves them.
    for (int64_t t = 0; t < kBlockTokens; ++t) {
      if (t < 9 + r || t >= 40 + r) sums.weights[static_cast<size_t>(r * kBlockTokens + t)] = 0;
    }
  }
  for (const Isa isa : SupportedIsas()) {
    const std::vector<float> expected = sums.Run(KernelsFor(isa), Plane(clean));
    for (int64_t r = 0; r < kTileRows; ++r) {
      for (const float dirt : {kNan, -kInfinity, -0.0f, 3e38f}) {
        std::vector<float> dirty = clean;
        std::fill_n(dirty.begin(), sums.begin[static_cast<size_t>(r)] * kDim, dirt);
        std::fill(dirty.begin() + sums.end[static_cast<size_t>(r)] * kDim, dirty.end(), dirt);
        const std::vector<float> actual = sums.Run(KernelsFor(isa), Plane(dirty));
        for (int64_t d = 0; d < kDim; ++d) {
          const auto at = static_cast<size_t>(r * (kDim + 1) + d);
          ASSERT_TRUE(SameBits(expected[at], actual[at]))
              << Where(isa, kDim, kTileRows) << ", row " << r << ", beside " << dirt;
        }
      }
    }
  }
}

TEST(PairKernels, ARowHasTheSameBitsWhateverItsNeighbours) {
  constexpr int64_t kDim = 80;
  constexpr int64_t kMany = 100;
  const std::vector<std::byte> plane = Plane(RandomFloats(kDim * kBlockTokens, 21));
  const std::vector<float> queries = RandomFloats(kDim * kMany, 22);
  Sums sums = {.dim = kDim, .weights = RandomFloats(kMany * kBlockTokens, 23)};
  SetWindows(1, &sums);
  for (const Isa isa : SupportedIsas()) {
    const KernelTable& table = KernelsFor(isa);
    const std::vector<float> all = Scores(table, plane, queries, kDim);
    const std::vector<float> all_sums = sums.Run(table, plane);
    for (const int64_t rows : {1, 2, 7, 64}) {
      for (const int64_t first : {int64_t{0}, int64_t{5}, kMany - rows}) {
        const std::vector<float> few(queries.begin() + first * kDim,
                                     queries.begin() + (first + rows) * kDim);
        const std::vector<float> some = Scores(table, plane, few, kDim);
        const std::vector<float> some_sums = sums.Run(table, plane, first, rows);
        for (size_t i = 0; i < some.size(); ++i) {
          ASSERT_TRUE(SameBits(all[static_cast<size_t>(first * kBlockTokens) + i], some[i]))
              << IsaName(isa);
        }
        for (auto i = static_cast<size_t>(first * (kDim + 1));
             i < static_cast<size_t>((first + rows) * (kDim + 1)); ++i) {
          ASSERT_TRUE(SameBits(all_sums[i], some_sums[i])) << IsaName(isa);
        }
      }
    }
  }
}

TEST(PairKernels, TheNextPlaneIsOnlyAHint) {
  constexpr int64_t kDim = 96;
  const std::vector<std::byte> plane = Plane(RandomFloats(kDim * kBlockTokens, 41));
  const std::vector<float> queries = RandomFloats(kDim * 9, 42);
  const Sums sums = {.dim = kDim, .weights = RandomFloats(9 * kBlockTokens, 43)};
  // One byte is less than a plane: what lies behind it is fetched, never used.
  const std::byte one_byte = {};
  const LinesAhead next = {&one_byte, static_cast<int64_t>(plane.size())};
  for (const KernelTable* table : AllTables()) {
    ExpectSameBits(Scores(*table, plane, queries, kDim), Scores(*table, plane, queries, kDim, next),
                   "scores");
    ExpectSameBits(sums.Run(*table, plane), sums.Run(*table, plane, 0, -1, next), "sums");
  }
}

TEST(PairKernels, TheOracleIsADotProductOfRoundedNumbers) {
  constexpr int64_t kDim = 128;
  const std::vector<float> keys = RandomFloats(kDim * kBlockTokens, 1);
  const std::vector<float> query = RandomFloats(kDim, 2);
  const std::vector<float> scores = Scores(Oracle(), Plane(keys), query, kDim);
  Sums sums = {.dim = kDim, .weights = RandomFloats(kBlockTokens, 3)};
  const std::vector<float> out = sums.Run(Oracle(), Plane(keys));
  const auto rounded = [](float x) { return Bf16ToFloat(FloatToBf16(x)); };
  // One rounding of 2^-24 a term, of partial sums below the sum of magnitudes.
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    double exact = 0;
    double magnitude = 0;
    for (int64_t d = 0; d < kDim; ++d) {
      const double term = static_cast<double>(rounded(query[static_cast<size_t>(d)])) *
                          rounded(keys[static_cast<size_t>(d * kBlockTokens + t)]);
      exact += term;
      magnitude += std::fabs(term);
    }
    EXPECT_NEAR(scores[static_cast<size_t>(t)], exact, magnitude * kDim * 0x1p-24);
  }
  for (int64_t d = 0; d < kDim; ++d) {
    const auto at = static_cast<size_t>(d);
    double exact = static_cast<double>(sums.before[at]) * sums.rescale[0];
    double magnitude = std::fabs(exact);
    for (int64_t t = 0; t < kBlockTokens; ++t) {
      const double term = static_cast<double>(rounded(sums.weights[static_cast<size_t>(t)])) *
                          rounded(keys[static_cast<size_t>(t * kDim + d)]);
      exact += term;
      magnitude += std::fabs(term);
    }
    EXPECT_NEAR(out[at], exact, magnitude * (kBlockTokens + 1) * 0x1p-24);
  }
}

TEST(PairKernels, BitsAreTheSameOnEveryMachine) {
  constexpr int64_t kDim = 64;
  const std::vector<std::byte> plane = Plane(PortableFloats(kDim * kBlockTokens, 1));
  const std::vector<float> queries = PortableFloats(kDim * 5, 2);
  Sums sums = {.dim = kDim, .weights = PortableFloats(5 * kBlockTokens, 3)};
  sums.rescale = PortableFloats(5, 4);
  sums.before = PortableFloats(sums.before.size(), 5);
  for (const Isa isa : SupportedIsas()) {
    const uint64_t scores = HashBits(Scores(KernelsFor(isa), plane, queries, kDim));
    // Written by the oracle on x86-64.
    EXPECT_EQ(HashBits(sums.Run(KernelsFor(isa), plane), scores), 0x3F0D5CEFF0B796D9u)
        << IsaName(isa);
  }
}

}  // namespace
}  // namespace kvasir
