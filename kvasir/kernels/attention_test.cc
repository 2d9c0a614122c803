// Attention kernels: every table has the oracle's bits, a row never depends on its neighbours,
// rows outside the visible range never matter, and a walk over blocks is softmax attention.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

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
using testing::SimdTables;

constexpr KvCodec::Kind kKinds[] = {KvCodec::Kind::kF32, KvCodec::Kind::kF16, KvCodec::Kind::kBf16};
constexpr int64_t kDims[] = {1, 3, 7, 16, 33, 64, 65, 80, 96, 127, 128, 192, 256, 576};
constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 6, 7, 8, 13, 16, 31, 64};

size_t Index(KvCodec::Kind kind) { return static_cast<size_t>(kind); }

size_t PlaneBytes(KvCodec::Kind kind, int64_t dim) { return KvCodec{kind}.HeadBytes(dim); }

// A plane exactly as large as it may be, so that sanitizers see a byte too many.
std::vector<std::byte> KeyPlane(KvCodec::Kind kind, const std::vector<float>& rows, int64_t dim) {
  std::vector<std::byte> plane(PlaneBytes(kind, dim));
  EncodeArgs args = {rows.data(), dim, kBlockTokens, dim, 0, plane.data()};
  Oracle().kv[Index(kind)].encode_keys(args);
  return plane;
}
std::vector<std::byte> ValuePlane(KvCodec::Kind kind, const std::vector<float>& rows, int64_t dim) {
  std::vector<std::byte> plane(PlaneBytes(kind, dim));
  EncodeArgs args = {rows.data(), dim, kBlockTokens, dim, 0, plane.data()};
  Oracle().kv[Index(kind)].encode_values(args);
  return plane;
}

std::string Where(Isa isa, KvCodec::Kind kind, int64_t dim, int64_t rows) {
  return std::string(IsaName(isa)) + " " + std::string(KvCodec{kind}.name()) + ", dim " +
         std::to_string(dim) + ", " + std::to_string(rows) + " rows";
}

TEST(EncodeKernels, TablesWriteTheOraclesBytesAndNothingElse) {
  for (KvCodec::Kind kind : kKinds) {
    for (int64_t dim : kDims) {
      for (auto [slot, count] : {std::pair<int64_t, int64_t>{0, 64}, {5, 1}, {63, 1}, {10, 17}}) {
        const int64_t stride = dim + 3;
        std::vector<float> rows = AwkwardFloats(static_cast<size_t>(stride * count), 11);
        rows[0] = kNan;
        rows[rows.size() / 2] = -kInfinity;
        for (const KernelTable* table : SimdTables()) {
          for (bool keys : {true, false}) {
            std::vector<std::byte> expected(PlaneBytes(kind, dim), std::byte{0x5A});
            std::vector<std::byte> actual = expected;
            EncodeArgs args = {rows.data(), stride, count, dim, slot, expected.data()};
            (keys ? Oracle().kv[Index(kind)].encode_keys
                  : Oracle().kv[Index(kind)].encode_values)(args);
            args.plane = actual.data();
            (keys ? table->kv[Index(kind)].encode_keys
                  : table->kv[Index(kind)].encode_values)(args);
            EXPECT_EQ(expected, actual) << Where(table->isa, kind, dim, count);
          }
        }
      }
    }
  }
}

TEST(EncodeKernels, SimdConversionsMatchDtype) {
  // Every 65,536th float and all neighbours of float16 ties: rounding, overflow, denormals, NaN.
  std::vector<float> rows;
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += 4099) {
    rows.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  }
  for (uint32_t half = 0; half < 0x10000; ++half) {
    const auto tie = std::bit_cast<uint32_t>(F16ToFloat(static_cast<uint16_t>(half))) + 0x1000;
    for (uint32_t bits : {tie - 1, tie, tie + 1}) rows.push_back(std::bit_cast<float>(bits));
  }
  const auto dim = static_cast<int64_t>(rows.size());
  for (KvCodec::Kind kind : {KvCodec::Kind::kF16, KvCodec::Kind::kBf16}) {
    for (Isa isa : SupportedIsas()) {
      std::vector<uint16_t> stored(rows.size());
      EncodeArgs args = {rows.data(), dim, 1, dim, 0, reinterpret_cast<std::byte*>(stored.data())};
      KernelsFor(isa).kv[Index(kind)].encode_values(args);
      for (size_t i = 0; i < rows.size(); ++i) {
        const uint16_t expected =
            kind == KvCodec::Kind::kF16 ? FloatToF16(rows[i]) : FloatToBf16(rows[i]);
        ASSERT_EQ(stored[i], expected) << IsaName(isa) << " " << std::hexfloat << rows[i];
      }
    }
  }
}

std::vector<float> Scores(const KernelTable& table, KvCodec::Kind kind,
                          const std::vector<std::byte>& keys, const float* queries,
                          int64_t query_stride, int64_t rows, int64_t dim,
                          int64_t tokens = kBlockTokens) {
  std::vector<float> scores(static_cast<size_t>(rows * kBlockTokens), kNan);
  ScoreTileArgs args = {queries, query_stride, rows, keys.data(), dim, scores.data()};
  args.tokens = tokens;
  table.kv[Index(kind)].score_tile(args);
  return scores;
}

TEST(ScoreTile, TablesHaveTheOraclesBits) {
  for (KvCodec::Kind kind : kKinds) {
    for (int64_t dim : kDims) {
      const auto size = static_cast<size_t>(dim * kBlockTokens);
      const std::vector<std::byte> keys =
          KeyPlane(kind, dim % 2 == 0 ? RandomFloats(size, 5) : AwkwardFloats(size, 5), dim);
      const int64_t stride = dim + 5;
      const std::vector<float> queries =
          RandomFloats(static_cast<size_t>(stride * kRows[std::size(kRows) - 1]), 6);
      for (int64_t rows : kRows) {
        const auto expected = Scores(Oracle(), kind, keys, queries.data(), stride, rows, dim);
        for (const KernelTable* table : SimdTables()) {
          ExpectSameBits(expected, Scores(*table, kind, keys, queries.data(), stride, rows, dim),
                         Where(table->isa, kind, dim, rows));
          ExpectSameBits(FirstHalves(expected),
                         FirstHalves(Scores(*table, kind, keys, queries.data(), stride, rows, dim,
                                            kHalfBlock)),
                         "half of " + Where(table->isa, kind, dim, rows));
        }
      }
    }
  }
}

TEST(AttentionKernels, TheNextPlaneIsOnlyAHint) {
  constexpr int64_t kDim = 96;
  constexpr int64_t kTileRows = 9;
  const std::vector<float> cache = RandomFloats(kDim * kBlockTokens, 41);
  const std::vector<float> queries = RandomFloats(kDim * kTileRows, 42);
  const std::vector<float> weights = RandomFloats(kTileRows * kBlockTokens, 43);
  const std::vector<float> rescale = RandomFloats(kTileRows, 44);
  const std::vector<int32_t> begin(kTileRows, 3);
  const std::vector<int32_t> end(kTileRows, 61);
  for (KvCodec::Kind kind : kKinds) {
    const std::vector<std::byte> keys = KeyPlane(kind, cache, kDim);
    const std::vector<std::byte> values = ValuePlane(kind, cache, kDim);
    for (const KernelTable* table : SimdTables()) {
      const auto run = [&](const LinesAhead& next) {
        std::vector<float> scores(kTileRows * kBlockTokens);
        std::vector<float> sums(kTileRows * kDim, 1.0f);
        table->kv[Index(kind)].score_tile(
            {queries.data(), kDim, kTileRows, keys.data(), kDim, scores.data(), next});
        table->kv[Index(kind)].accumulate_tile({weights.data(), kTileRows, begin.data(), end.data(),
                                                rescale.data(), values.data(), kDim, sums.data(),
                                                kDim, next});
        scores.insert(scores.end(), sums.begin(), sums.end());
        return scores;
      };
      const std::vector<float> without = run({});
      const auto plane = static_cast<int64_t>(values.size());
      ExpectSameBits(without, run({values.data(), plane}),
                     Where(table->isa, kind, kDim, kTileRows));
      // One byte is less than a plane: what lies behind it is fetched, never used.
      const std::byte one_byte = {};
      ExpectSameBits(without, run({&one_byte, plane, 2 * kCacheLineBytes}),
                     Where(table->isa, kind, kDim, kTileRows));
    }
  }
}

TEST(ScoreTile, OracleIsADotProduct) {
  constexpr int64_t kDim = 128;
  const std::vector<float> rows = RandomFloats(kDim * kBlockTokens, 1);
  const std::vector<float> query = RandomFloats(kDim, 2);
  const std::vector<std::byte> keys = KeyPlane(KvCodec::Kind::kF32, rows, kDim);
  const auto scores = Scores(Oracle(), KvCodec::Kind::kF32, keys, query.data(), kDim, 1, kDim);
  for (int64_t t = 0; t < kBlockTokens; ++t) {
    double exact = 0;
    double magnitude = 0;
    for (int64_t d = 0; d < kDim; ++d) {
      const double term = static_cast<double>(query[d]) * rows[t * kDim + d];
      exact += term;
      magnitude += std::fabs(term);
    }
    // At most one rounding of 2^-24 per term, of partial sums below the sum of magnitudes.
    EXPECT_NEAR(scores[t], exact, magnitude * kDim * 0x1p-24);
  }
}

// Everything softmax_tile reads and writes.
struct SoftmaxState {
  std::vector<float> scores;
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
  std::vector<float> max;
  std::vector<float> sum;
  std::vector<float> rescale;

  explicit SoftmaxState(int64_t rows)
      : scores(static_cast<size_t>(rows * kBlockTokens)),
        begin(rows, 0),
        end(rows, kBlockTokens),
        max(rows, -kInfinity),
        sum(rows, 0.0f),
        rescale(rows, kNan) {}

  SoftmaxState Row(int64_t row) const {
    SoftmaxState one(1);
    const auto r = static_cast<size_t>(row);
    std::copy_n(scores.begin() + row * kBlockTokens, kBlockTokens, one.scores.begin());
    one.begin[0] = begin[r];
    one.end[0] = end[r];
    one.max[0] = max[r];
    one.sum[0] = sum[r];
    one.rescale[0] = rescale[r];
    return one;
  }
  void Run(const KernelTable& table, float softcap) {
    table.softmax_tile({scores.data(), static_cast<int64_t>(max.size()), begin.data(), end.data(),
                        softcap, max.data(), sum.data(), rescale.data()});
  }
};

void ExpectSameState(const SoftmaxState& expected, const SoftmaxState& actual,
                     const std::string& what) {
  for (size_t row = 0; row < expected.max.size(); ++row) {
    if (expected.begin[row] == expected.end[row]) continue;
    for (size_t t = row * kBlockTokens; t < (row + 1) * kBlockTokens; ++t) {
      ASSERT_TRUE(SameBits(expected.scores[t], actual.scores[t])) << what << ", weight " << t;
    }
  }
  ExpectSameBits(expected.max, actual.max, what + ", max");
  ExpectSameBits(expected.sum, actual.sum, what + ", sum");
  ExpectSameBits(expected.rescale, actual.rescale, what + ", rescale");
}

// Random windows, empty ones among them.
void RandomWindows(uint32_t seed, std::vector<int32_t>* begin, std::vector<int32_t>* end) {
  std::mt19937 random(seed);
  for (size_t i = 0; i < begin->size(); ++i) {
    (*begin)[i] = static_cast<int32_t>(random() % 64);
    (*end)[i] = (*begin)[i] + static_cast<int32_t>(random() % (65 - (*begin)[i]));
  }
}

TEST(SoftmaxTile, TablesHaveTheOraclesBits) {
  for (int64_t rows : kRows) {
    for (uint32_t seed = 0; seed < 8; ++seed) {
      SoftmaxState start(rows);
      const auto size = static_cast<size_t>(rows * kBlockTokens);
      start.scores = seed % 2 == 0 ? RandomFloats(size, seed, 10.0f) : AwkwardFloats(size, seed);
      if (seed > 1) RandomWindows(seed, &start.begin, &start.end);
      if (seed > 3) {
        start.max = RandomFloats(static_cast<size_t>(rows), seed, 5.0f);
        start.sum = RandomFloats(static_cast<size_t>(rows), seed + 1, 3.0f);
      }
      for (float softcap : {0.0f, 50.0f}) {
        SoftmaxState expected = start;
        expected.Run(Oracle(), softcap);
        for (const KernelTable* table : SimdTables()) {
          SoftmaxState actual = start;
          actual.Run(*table, softcap);
          ExpectSameState(expected, actual,
                          std::string(IsaName(table->isa)) + ", " + std::to_string(rows) +
                              " rows, seed " + std::to_string(seed));
        }
      }
    }
  }
}

TEST(SoftmaxTile, NonFiniteScoresAgreeAndAreSensible) {
  // Row 0: all -infinity. 1: one NaN. 2: one +infinity. 3: NaN only where it is invisible.
  // 4: -infinity after finite blocks. 5: zeros of both signs. 6: empty.
  SoftmaxState start(7);
  start.scores = RandomFloats(start.scores.size(), 3);
  std::fill_n(start.scores.begin(), 64, -kInfinity);
  start.scores[64 + 10] = kNan;
  start.scores[2 * 64 + 20] = kInfinity;
  start.scores[3 * 64 + 30] = kNan;
  start.begin[3] = 31;
  std::fill_n(start.scores.begin() + 4 * 64, 64, -kInfinity);
  start.max[4] = 2.0f;
  start.sum[4] = 3.0f;
  for (int t = 0; t < 64; ++t) start.scores[5 * 64 + t] = t % 3 == 0 ? -0.0f : 0.0f;
  start.begin[6] = start.end[6] = 17;
  start.max[6] = 1.5f;
  start.sum[6] = 2.5f;
  SoftmaxState expected = start;
  expected.Run(Oracle(), 0);
  EXPECT_EQ(expected.sum[0], 0.0f);
  EXPECT_EQ(expected.rescale[0], 0.0f);
  EXPECT_EQ(expected.scores[5], 0.0f);
  EXPECT_TRUE(std::isnan(expected.sum[1]));
  EXPECT_TRUE(std::isnan(expected.scores[64 + 10]));
  EXPECT_TRUE(std::isnan(expected.sum[2]));
  EXPECT_TRUE(std::isfinite(expected.sum[3]));
  EXPECT_EQ(expected.scores[3 * 64 + 30], 0.0f);
  EXPECT_EQ(expected.sum[4], 3.0f);
  EXPECT_EQ(expected.rescale[4], 1.0f);
  EXPECT_EQ(expected.sum[5], 64.0f);
  EXPECT_EQ(expected.max[6], 1.5f);
  EXPECT_EQ(expected.sum[6], 2.5f);
  EXPECT_EQ(expected.rescale[6], 1.0f);
  for (const KernelTable* table : SimdTables()) {
    SoftmaxState actual = start;
    actual.Run(*table, 0);
    ExpectSameState(expected, actual, std::string(IsaName(table->isa)));
    // Tiles of few rows take another way.
    for (int64_t row = 0; row < 7; ++row) {
      SoftmaxState one = start.Row(row);
      one.Run(*table, 0);
      ExpectSameState(expected.Row(row), one, std::string(IsaName(table->isa)) + ", alone");
    }
  }
}

TEST(SoftmaxTile, ExpHasTheOraclesBitsOverItsRange) {
  // With max 0 a weight is exp(score). 743 is prime: exponents and mantissas all get their turn.
  std::vector<float> scores;
  for (uint32_t bits = 0; bits < std::bit_cast<uint32_t>(120.0f); bits += 743) {
    scores.push_back(-std::bit_cast<float>(bits));
  }
  const auto rows = static_cast<int64_t>(scores.size() / kBlockTokens);
  SoftmaxState expected(rows);
  scores.resize(expected.scores.size());
  expected.scores = scores;
  std::fill(expected.max.begin(), expected.max.end(), 0.0f);
  const SoftmaxState start = expected;
  expected.Run(Oracle(), 0);
  for (const KernelTable* table : SimdTables()) {
    SoftmaxState actual = start;
    actual.Run(*table, 0);
    ExpectSameState(expected, actual, std::string(IsaName(table->isa)));
  }
}

struct AccumulateCase {
  int64_t rows;
  int64_t dim;
  std::vector<float> weights;
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
  std::vector<float> rescale;
  std::vector<float> accumulator;  // stride dim + 1

  AccumulateCase(int64_t rows, int64_t dim, uint32_t seed)
      : rows(rows),
        dim(dim),
        weights(RandomFloats(static_cast<size_t>(rows * kBlockTokens), seed)),
        begin(rows, 0),
        end(rows, kBlockTokens),
        rescale(RandomFloats(static_cast<size_t>(rows), seed + 1)),
        accumulator(RandomFloats(static_cast<size_t>(rows * (dim + 1)), seed + 2)) {
    if (seed % 3 == 1) RandomWindows(seed, &begin, &end);
    if (seed % 3 == 2) {
      // Causal: each row sees one token more, as in the diagonal block of a prefill chunk.
      for (int64_t r = 0; r < rows; ++r) end[r] = static_cast<int32_t>(std::min<int64_t>(r, 64));
    }
    for (int64_t r = 0; r < rows; ++r) {
      if (begin[r] == end[r]) rescale[r] = 1.0f;
    }
  }

  std::vector<float> Run(const KernelTable& table, KvCodec::Kind kind,
                         const std::vector<std::byte>& values, int64_t first = 0,
                         int64_t count = -1) const {
    std::vector<float> out = accumulator;
    table.kv[Index(kind)].accumulate_tile(
        {weights.data() + first * kBlockTokens, count < 0 ? rows : count, begin.data() + first,
         end.data() + first, rescale.data() + first, values.data(), dim,
         out.data() + first * (dim + 1), dim + 1});
    return out;
  }
};

TEST(AccumulateTile, TablesHaveTheOraclesBits) {
  for (KvCodec::Kind kind : kKinds) {
    for (int64_t dim : kDims) {
      const auto size = static_cast<size_t>(dim * kBlockTokens);
      const std::vector<std::byte> values =
          ValuePlane(kind, dim % 2 == 0 ? RandomFloats(size, 5) : AwkwardFloats(size, 5), dim);
      for (int64_t rows : kRows) {
        for (uint32_t seed = 0; seed < 3; ++seed) {
          const AccumulateCase c(rows, dim, seed);
          const std::vector<float> expected = c.Run(Oracle(), kind, values);
          for (const KernelTable* table : SimdTables()) {
            ExpectSameBits(expected, c.Run(*table, kind, values),
                           Where(table->isa, kind, dim, rows) + ", seed " + std::to_string(seed));
          }
        }
      }
    }
  }
}

TEST(AccumulateTile, RowsOutsideTheVisibleRangeNeverMatter) {
  constexpr int64_t kDim = 96;
  for (KvCodec::Kind kind : kKinds) {
    std::vector<float> clean = RandomFloats(kDim * kBlockTokens, 9);
    std::vector<float> dirty = clean;
    AccumulateCase c(13, kDim, 0);
    for (int64_t r = 0; r < 13; ++r) {
      c.begin[r] = static_cast<int32_t>(10 + r);
      c.end[r] = static_cast<int32_t>(40 + r);
    }
    for (int64_t t = 0; t < kBlockTokens; ++t) {
      if (t >= 10 && t < 52) continue;
      std::fill_n(dirty.begin() + t * kDim, kDim, kNan);
    }
    for (Isa isa : SupportedIsas()) {
      ExpectSameBits(c.Run(KernelsFor(isa), kind, ValuePlane(kind, clean, kDim)),
                     c.Run(KernelsFor(isa), kind, ValuePlane(kind, dirty, kDim)),
                     Where(isa, kind, kDim, 13));
    }
    // Each row on its own, with NaN right up to its own window.
    for (int64_t r = 0; r < 13; ++r) {
      std::vector<float> tight = clean;
      std::fill_n(tight.begin(), c.begin[r] * kDim, kNan);
      std::fill(tight.begin() + c.end[r] * kDim, tight.end(), kNan);
      for (Isa isa : SupportedIsas()) {
        const std::vector<float> expected =
            c.Run(KernelsFor(isa), kind, ValuePlane(kind, clean, kDim));
        const std::vector<float> actual =
            c.Run(KernelsFor(isa), kind, ValuePlane(kind, tight, kDim));
        for (int64_t d = 0; d < kDim; ++d) {
          ASSERT_TRUE(SameBits(expected[r * (kDim + 1) + d], actual[r * (kDim + 1) + d]))
              << Where(isa, kind, kDim, 13) << ", row " << r;
        }
      }
    }
  }
}

TEST(AttentionKernels, ARowHasTheSameBitsWhateverItsNeighbours) {
  constexpr int64_t kDim = 80;
  constexpr int64_t kMany = 512;
  const std::vector<float> cache = RandomFloats(kDim * kBlockTokens, 21);
  const std::vector<float> queries = RandomFloats(kDim * kMany, 22);
  for (KvCodec::Kind kind : kKinds) {
    const std::vector<std::byte> keys = KeyPlane(kind, cache, kDim);
    const std::vector<std::byte> values = ValuePlane(kind, cache, kDim);
    const AccumulateCase c(kMany, kDim, 1);
    for (Isa isa : SupportedIsas()) {
      const KernelTable& table = KernelsFor(isa);
      const auto all = Scores(table, kind, keys, queries.data(), kDim, kMany, kDim);
      const auto all_sums = c.Run(table, kind, values);
      for (int64_t rows : {1, 2, 7, 64}) {
        for (int64_t first : {int64_t{0}, int64_t{5}, kMany - rows}) {
          const auto some =
              Scores(table, kind, keys, queries.data() + first * kDim, kDim, rows, kDim);
          const auto some_sums = c.Run(table, kind, values, first, rows);
          for (int64_t i = 0; i < rows * kBlockTokens; ++i) {
            ASSERT_TRUE(SameBits(all[first * kBlockTokens + i], some[i])) << IsaName(isa);
          }
          for (int64_t i = first * (kDim + 1); i < (first + rows) * (kDim + 1); ++i) {
            ASSERT_TRUE(SameBits(all_sums[i], some_sums[i])) << IsaName(isa);
          }
        }
      }
    }
  }
}

// Attention of `rows` queries over a cache of several blocks, query r seeing
// [window_begin[r], window_end[r]) tokens.
struct Walk {
  int64_t rows = 6;
  int64_t key_dim = 64;
  int64_t value_dim = 48;
  int64_t tokens = 230;
  std::vector<int64_t> window_begin = {0, 0, 100, 64, 63, 150};
  std::vector<int64_t> window_end = {1, 230, 130, 128, 229, 151};
  std::vector<float> queries = RandomFloats(6 * 64, 31, 0.4f);
  std::vector<float> keys = RandomFloats(256 * 64, 32);
  std::vector<float> values = RandomFloats(256 * 48, 33);

  std::vector<float> Run(const KernelTable& table, KvCodec::Kind kind, float softcap) const;
  std::vector<double> Naive(float softcap) const;
};

std::vector<float> Walk::Run(const KernelTable& table, KvCodec::Kind kind, float softcap) const {
  SoftmaxState state(rows);
  std::vector<float> out(static_cast<size_t>(rows * value_dim), 0.0f);
  for (int64_t block = 0; block * kBlockTokens < tokens; ++block) {
    const int64_t first = block * kBlockTokens;
    std::vector<std::byte> key_plane(PlaneBytes(kind, key_dim));
    std::vector<std::byte> value_plane(PlaneBytes(kind, value_dim));
    table.kv[Index(kind)].encode_keys(
        {keys.data() + first * key_dim, key_dim, kBlockTokens, key_dim, 0, key_plane.data()});
    table.kv[Index(kind)].encode_values({values.data() + first * value_dim, value_dim, kBlockTokens,
                                         value_dim, 0, value_plane.data()});
    for (int64_t r = 0; r < rows; ++r) {
      state.begin[r] = static_cast<int32_t>(std::clamp<int64_t>(window_begin[r] - first, 0, 64));
      state.end[r] = static_cast<int32_t>(std::clamp<int64_t>(window_end[r] - first, 0, 64));
    }
    state.scores = Scores(table, kind, key_plane, queries.data(), key_dim, rows, key_dim);
    state.Run(table, softcap);
    table.kv[Index(kind)].accumulate_tile({state.scores.data(), rows, state.begin.data(),
                                           state.end.data(), state.rescale.data(),
                                           value_plane.data(), value_dim, out.data(), value_dim});
  }
  for (int64_t i = 0; i < rows * value_dim; ++i) out[i] /= state.sum[i / value_dim];
  return out;
}

std::vector<double> Walk::Naive(float softcap) const {
  std::vector<double> out(static_cast<size_t>(rows * value_dim), 0.0);
  for (int64_t r = 0; r < rows; ++r) {
    double sum = 0;
    for (int64_t t = window_begin[r]; t < window_end[r]; ++t) {
      double score = 0;
      for (int64_t d = 0; d < key_dim; ++d) {
        score += static_cast<double>(queries[r * key_dim + d]) * keys[t * key_dim + d];
      }
      if (softcap > 0) score = softcap * std::tanh(score / softcap);
      const double weight = std::exp(score);
      sum += weight;
      for (int64_t d = 0; d < value_dim; ++d) {
        out[r * value_dim + d] += weight * values[t * value_dim + d];
      }
    }
    for (int64_t d = 0; d < value_dim; ++d) out[r * value_dim + d] /= sum;
  }
  return out;
}

TEST(AttentionKernels, BitsAreTheSameOnEveryMachine) {
  Walk walk;
  walk.queries = PortableFloats(walk.queries.size(), 1);
  for (float& query : walk.queries) query *= 0.125f;
  walk.keys = PortableFloats(walk.keys.size(), 2);
  walk.values = PortableFloats(walk.values.size(), 3);
  for (Isa isa : SupportedIsas()) {
    std::vector<float> all;
    for (KvCodec::Kind kind : kKinds) {
      for (float softcap : {0.0f, 20.0f}) {
        const std::vector<float> out = walk.Run(KernelsFor(isa), kind, softcap);
        all.insert(all.end(), out.begin(), out.end());
      }
    }
    // Written by the oracle on x86-64; a change here changes every model's output.
    EXPECT_EQ(HashBits(all), 0xD84280B50C48AAA5u) << IsaName(isa);
  }
}

TEST(AttentionKernels, AWalkOverBlocksIsSoftmaxAttention) {
  const Walk walk;
  for (float softcap : {0.0f, 20.0f}) {
    const std::vector<double> exact = walk.Naive(softcap);
    for (KvCodec::Kind kind : kKinds) {
      // f32: scores of about 3 carry errors of 64 roundings, 64 * 3 * 2^-24, and change a weight
      // by as much relatively. Stored halves: each key and value is off by 2^-11 (f16) or 2^-8
      // (bf16) relatively, independently, and scores of about 3 move by 3 of those at most.
      const double tolerance = kind == KvCodec::Kind::kF32   ? 2e-5
                               : kind == KvCodec::Kind::kF16 ? 4 * 0x1p-11
                                                             : 4 * 0x1p-8;
      const std::vector<float> oracle = walk.Run(Oracle(), kind, softcap);
      for (size_t i = 0; i < exact.size(); ++i) EXPECT_NEAR(oracle[i], exact[i], tolerance);
      for (const KernelTable* table : SimdTables()) {
        ExpectSameBits(oracle, walk.Run(*table, kind, softcap),
                       Where(table->isa, kind, walk.key_dim, walk.rows));
      }
    }
  }
}

}  // namespace
}  // namespace kvasir
