// Rows that are widened to 8 bits for integer attention: every table has the oracle's bits, they
// are the rows that they were, and integer kernels take their groups of any number of dims.
#include <cmath>
#include <cstring>

#include "gtest/gtest.h"
#include "kvasir/kernels/integer_test_util.h"
#include "kvasir/tensor/packed_codec.h"
#include "kvasir/tensor/turbo_codebooks.h"

namespace kvasir {
namespace {

using testing::AwkwardRows;
using testing::AwkwardScores;
using testing::Encoded;
using testing::ExpectSameBits;
using testing::HashBits;
using testing::kInfinity;
using testing::kRows;
using testing::kWidths;
using testing::Oracle;
using testing::PortableFloats;
using testing::RandomFloats;
using testing::Scores;
using testing::SimdTables;
using testing::SumCase;
using testing::Where;

constexpr int64_t kWidenedTestDims[] = {32, 64, 96, 128, 256, 512};

// Calls body(codec, dim) for every codec and head size that is widened.
template <typename Body>
void ForEachWidened(const Body& body) {
  std::vector<KvCodec> codecs;
  for (const int bits : {2, 3, 5, 6}) {
    for (const int group : {32, 64, 128}) {
      codecs.push_back(KvCodec::Affine(bits, group));
      codecs.push_back(KvCodec::Affine(bits, group, KvCodec::Scales::kF32, true));
    }
  }
  for (const int bits : {2, 3, 4}) codecs.push_back(KvCodec::Turbo(bits));
  for (const KvCodec& codec : codecs) {
    EXPECT_TRUE(IsWidened(codec));
    for (const int64_t dim : kWidenedTestDims) {
      if (codec.Validate(dim).ok()) body(codec, dim);
    }
  }
}

std::vector<std::byte> Widened(const KernelTable& table, const KvCodec& codec, int64_t dim,
                               const std::vector<std::byte>& plane) {
  AlignedVector<std::byte> out(WidenedCodec(codec, dim).HeadBytes(dim));
  table.widen[KvFormatIndex(codec)](
      {.plane = plane.data(), .dim = dim, .codec = codec, .out = out.data()});
  return {out.begin(), out.end()};
}

std::vector<float> ParametersOf(const std::vector<std::byte>& widened, int64_t dim) {
  const size_t codes = static_cast<size_t>(dim) * kBlockTokens;
  std::vector<float> out((widened.size() - codes) / sizeof(float));
  std::memcpy(out.data(), widened.data() + codes, widened.size() - codes);
  return out;
}

TEST(WidenedRows, TablesHaveTheOraclesBits) {
  ForEachWidened([](const KvCodec& codec, int64_t dim) {
    const size_t codes = static_cast<size_t>(dim) * kBlockTokens;
    for (const bool awkward : {false, true}) {
      const std::vector<std::byte> plane = Encoded(
          true, codec, awkward ? AwkwardRows(kBlockTokens, dim) : RandomFloats(codes, 5), dim);
      const std::vector<std::byte> expected = Widened(Oracle(), codec, dim, plane);
      for (const KernelTable* table : SimdTables()) {
        const std::vector<std::byte> widened = Widened(*table, codec, dim, plane);
        const std::string where =
            std::string(IsaName(table->isa)) + " " + codec.name() + ", dim " + std::to_string(dim);
        EXPECT_EQ(std::memcmp(expected.data(), widened.data(), codes), 0) << where;
        ExpectSameBits(ParametersOf(expected, dim), ParametersOf(widened, dim), where);
      }
    }
  });
}

// Biases are rounded once more, to 2^-24 of 128 scales; levels of turbo to the nearest byte.
TEST(WidenedRows, AreTheRowsThatTheyWere) {
  ForEachWidened([](const KvCodec& codec, int64_t dim) {
    const std::vector<float> rows = RandomFloats(static_cast<size_t>(dim * kBlockTokens), 5);
    const KvCodec to = WidenedCodec(codec, dim);
    EXPECT_EQ(codec.rotates(), to.rotates());
    for (const bool keys : {true, false}) {
      const std::vector<std::byte> plane = Encoded(keys, codec, rows, dim);
      const std::vector<std::byte> widened = Widened(Oracle(), codec, dim, plane);
      std::vector<float> before(static_cast<size_t>(dim));
      std::vector<float> after(before.size());
      for (int slot = 0; slot < kBlockTokens; ++slot) {
        const auto decode = keys ? DecodePackedKeyRow : DecodePackedValueRow;
        decode(codec, plane.data(), slot, before);
        decode(to, widened.data(), slot, after);
        double limit = 0;  // rotations keep norms, and so sums of squares
        if (codec.kind == KvCodec::Kind::kTurbo) {
          const float norm = LoadTurboNorm(codec, plane.data(), dim, slot);
          limit = 0.5 * static_cast<double>(norm * TurboBytesOf(dim, codec.bits).unit);
        }
        limit = limit * limit * static_cast<double>(dim);
        // Scales are at most 9 / 3.
        limit += static_cast<double>(dim) * 0x1p-34;
        double error = 0;
        for (size_t d = 0; d < before.size(); ++d) {
          error += std::pow(double{before[d]} - double{after[d]}, 2);
        }
        ASSERT_LE(error, limit) << codec.name() << ", dim " << dim << ", slot " << slot;
      }
    }
  });
}

TEST(WidenedRows, TablesAgreeOnGroupsOfAllDims) {
  for (const int64_t dim : kWidenedTestDims) {
    const KvCodec turbo = KvCodec::Turbo(4);
    const KvCodec codec = WidenedCodec(turbo, dim);
    const auto size = static_cast<size_t>((dim + 5) * testing::kMostRows);
    for (const bool awkward : {false, true}) {
      const std::vector<float> cache =
          awkward ? AwkwardRows(kBlockTokens, dim)
                  : RandomFloats(static_cast<size_t>(dim * kBlockTokens), 5);
      const std::vector<float> queries =
          awkward ? AwkwardRows(testing::kMostRows, dim + 5) : RandomFloats(size, 6);
      const auto keys = Widened(Oracle(), turbo, dim, Encoded(true, turbo, cache, dim));
      const auto values = Widened(Oracle(), turbo, dim, Encoded(false, turbo, cache, dim));
      for (const MultiplierWidth width : kWidths) {
        for (const int64_t rows : kRows) {
          SumCase c(rows, dim, static_cast<uint32_t>(rows % 3));
          if (awkward) c.scores = AwkwardScores(c.scores.size());
          const auto scores = Scores(Oracle(), codec, width, keys, queries.data(), rows, dim);
          const auto sums = c.Run(Oracle(), codec, values, width).All();
          for (const KernelTable* table : SimdTables()) {
            const std::string where =
                Where(table->isa, turbo, dim, width) + ", rows " + std::to_string(rows);
            ExpectSameBits(scores, Scores(*table, codec, width, keys, queries.data(), rows, dim),
                           where);
            ExpectSameBits(sums, c.Run(*table, codec, values, width).All(), where);
          }
        }
      }
    }
  }
}

// 512 products of the largest levels and queries of two bytes are just below 2^31.
TEST(WidenedRows, TheLargestSumsFit) {
  constexpr int64_t kDim = 512;
  const KvCodec turbo = KvCodec::Turbo(4);
  const KvCodec codec = WidenedCodec(turbo, kDim);
  const float level = TurboLevels(kDim, 4)[15];
  for (const bool largest : {false, true}) {
    std::vector<std::byte> plane(turbo.HeadBytes(kDim), largest ? std::byte{0xFF} : std::byte{0});
    const std::vector<float> norms(kBlockTokens, 1.0f);
    std::memcpy(plane.data() + turbo.CodeBytes(kDim), norms.data(), norms.size() * sizeof(float));
    const std::vector<float> queries(kDim + 5, 1.0f);
    const double sign = largest ? 1 : -1;
    SumCase c(1, kDim, 0);
    std::fill(c.scores.begin(), c.scores.end(), 3.5f);
    c.max[0] = -kInfinity;
    std::fill(c.accumulator.begin(), c.accumulator.end(), 0.0f);
    for (const Isa isa : SupportedIsas()) {
      const KernelTable& table = KernelsFor(isa);
      const auto widened = Widened(table, turbo, kDim, plane);
      for (const MultiplierWidth width : kWidths) {
        const auto scores = Scores(table, codec, width, widened, queries.data(), 1, kDim);
        EXPECT_NEAR(scores[0], sign * kDim * level, kDim * level * 0.005) << IsaName(isa);
        const auto sums = c.Run(table, codec, widened, width).accumulator;
        EXPECT_NEAR(sums[0], sign * kBlockTokens * level, kBlockTokens * level * 0.01)
            << IsaName(isa);
      }
    }
  }
}

TEST(WidenedRows, BitsAreTheSameOnEveryMachine) {
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> all;
    ForEachWidened([&](const KvCodec& codec, int64_t dim) {
      const std::vector<float> rows = PortableFloats(static_cast<size_t>(dim * kBlockTokens), 1);
      const auto widened = Widened(KernelsFor(isa), codec, dim, Encoded(true, codec, rows, dim));
      std::vector<float> bits(widened.size() / sizeof(float));
      std::memcpy(bits.data(), widened.data(), widened.size());
      all.insert(all.end(), bits.begin(), bits.end());
    });
    // Written by the oracle on x86-64; a change here changes every model's output.
    EXPECT_EQ(HashBits(all), 0xB7D75FB95DDAF46Bu) << IsaName(isa);
  }
}

}  // namespace
}  // namespace kvasir
