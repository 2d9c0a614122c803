// Kernels of packed cache formats: every table has the oracle's bytes and bits, for every codec,
// head size and number of rows; unseen slots and neighbours never matter.
#include <cstring>

#include "gtest/gtest.h"
#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/tensor/packed_codec.h"

namespace kvasir {
namespace {

using testing::AwkwardFloats;
using testing::ExpectSameBits;
using testing::HashBits;
using testing::kInfinity;
using testing::kNan;
using testing::Oracle;
using testing::PortableFloats;
using testing::RandomFloats;
using testing::SameBits;
using testing::SimdTables;

constexpr int64_t kDims[] = {16, 64, 80, 96, 128, 192, 256};
constexpr int64_t kRows[] = {1, 2, 3, 4, 5, 7, 8, 13, 64};

std::vector<KvCodec> Codecs() {
  std::vector<KvCodec> codecs;
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      codecs.push_back(KvCodec::Affine(bits, group));
      codecs.push_back(KvCodec::Affine(bits, group, KvCodec::Scales::kF32));
    }
    codecs.push_back(KvCodec::Affine(bits, 32, KvCodec::Scales::kF16, true));
  }
  for (const int bits : {2, 3, 4}) codecs.push_back(KvCodec::Turbo(bits));
  return codecs;
}

// Calls body(codec, dim) for every codec and head size that go together.
template <typename Body>
void ForEachShape(const Body& body) {
  for (const KvCodec& codec : Codecs()) {
    for (const int64_t dim : kDims) {
      if (codec.Validate(dim).ok()) body(codec, dim);
    }
  }
}

std::string Where(Isa isa, const KvCodec& codec, int64_t dim) {
  return std::string(IsaName(isa)) + " " + codec.name() + ", dim " + std::to_string(dim);
}

enum class Plane { kKeys, kValues };

void Encode(const KernelTable& table, Plane plane, const EncodeArgs& args) {
  const KvCodecKernels& kernels = table.ForCodec(args.codec);
  (plane == Plane::kKeys ? kernels.encode_keys : kernels.encode_values)(args);
}

// 64 rows in a plane exactly as large as it may be, so that sanitizers see a byte too many.
std::vector<std::byte> Encoded(Plane plane, const KvCodec& codec, const std::vector<float>& rows,
                               int64_t dim) {
  std::vector<std::byte> out(codec.HeadBytes(dim));
  Encode(Oracle(), plane, {rows.data(), dim, kBlockTokens, dim, 0, out.data(), codec});
  return out;
}

// Rows of every kind that an encoder may meet; row i of kind i % 10.
std::vector<float> AwkwardRows(int64_t rows, int64_t dim) {
  std::vector<float> out = RandomFloats(static_cast<size_t>(rows * dim), 7);
  const std::vector<float> awkward = AwkwardFloats(out.size(), 8);
  for (int64_t i = 0; i < rows; ++i) {
    float* const row = out.data() + i * dim;
    switch (i % 10) {
      case 1:  // all zero, of both signs
        for (int64_t d = 0; d < dim; ++d) row[d] = d % 3 == 0 ? -0.0f : 0.0f;
        break;
      case 2:
        std::fill_n(row, dim, -1.25f);
        break;
      case 3:
        row[dim / 2] = kNan;
        break;
      case 4:
        row[dim - 1] = -kInfinity;
        break;
      case 5:  // denormals
        for (int64_t d = 0; d < dim; ++d) row[d] *= 0x1p-140f;
        break;
      case 6:  // a norm, and the width of a group, beyond the largest float
        for (int64_t d = 0; d < dim; ++d) row[d] = d % 2 == 0 ? 3e38f : -3e38f;
        break;
      case 7:  // one-hot
        std::fill_n(row, dim, 0.0f);
        row[3] = 1e-30f;
        break;
      case 8:
        std::copy_n(awkward.data() + i * dim, dim, row);
        break;
      case 9:  // codes exactly between two steps
        for (int64_t d = 0; d < dim; ++d) row[d] = static_cast<float>(d % 31) * 0.5f;
        break;
      default:
        break;
    }
  }
  return out;
}

TEST(PackedEncode, TablesWriteTheOraclesBytesAndNothingElse) {
  ForEachShape([](const KvCodec& codec, int64_t dim) {
    const std::vector<float> rows = AwkwardRows(kBlockTokens, dim + 3);
    for (const auto& [slot, count] : {std::pair<int64_t, int64_t>{0, 64}, {5, 1}, {47, 17}}) {
      for (const Plane plane : {Plane::kKeys, Plane::kValues}) {
        std::vector<std::byte> expected(codec.HeadBytes(dim), std::byte{0x5A});
        EncodeArgs args = {rows.data(), dim + 3, count, dim, slot, expected.data(), codec};
        Encode(Oracle(), plane, args);
        for (const KernelTable* table : SimdTables()) {
          std::vector<std::byte> actual(expected.size(), std::byte{0x5A});
          args.plane = actual.data();
          Encode(*table, plane, args);
          ASSERT_EQ(expected, actual) << Where(table->isa, codec, dim) << ", slot " << slot;
        }
      }
    }
  });
}

TEST(PackedEncode, RotationHasTheOraclesBits) {
  for (int64_t dim = 16; dim <= 512; dim += 16) {
    const std::vector<float> rows = AwkwardRows(10, dim + 1);
    for (const KernelTable* table : SimdTables()) {
      std::vector<float> expected = rows;
      std::vector<float> actual = rows;
      Oracle().rotate(expected.data(), dim + 1, 10, dim);
      table->rotate(actual.data(), dim + 1, 10, dim);
      ExpectSameBits(expected, actual, Where(table->isa, {}, dim));
      Oracle().rotate_back(expected.data(), dim + 1, 10, dim);
      table->rotate_back(actual.data(), dim + 1, 10, dim);
      ExpectSameBits(expected, actual, Where(table->isa, {}, dim) + ", back");
    }
  }
}

TEST(PackedEncode, NormHasTheOraclesBits) {
  for (int64_t count = 1; count < 150; ++count) {
    const std::vector<float> x = AwkwardFloats(static_cast<size_t>(count), 3);
    for (const KernelTable* table : SimdTables()) {
      EXPECT_TRUE(SameBits(Oracle().norm(x.data(), count), table->norm(x.data(), count))) << count;
    }
  }
}

LinesAhead All(const std::vector<std::byte>& plane) {
  return {plane.data(), static_cast<int64_t>(plane.size())};
}

std::vector<float> Scores(const KernelTable& table, const KvCodec& codec,
                          const std::vector<std::byte>& keys, const float* queries, int64_t rows,
                          int64_t dim) {
  std::vector<float> scores(static_cast<size_t>(rows * kBlockTokens), kNan);
  table.ForCodec(codec).score_tile(
      {queries, dim + 5, rows, keys.data(), dim, scores.data(), All(keys), codec});
  return scores;
}

TEST(PackedScores, TablesHaveTheOraclesBits) {
  ForEachShape([](const KvCodec& codec, int64_t dim) {
    const auto size = static_cast<size_t>((dim + 5) * 64);
    const std::vector<float> queries = RandomFloats(size, 6);
    for (const bool awkward : {false, true}) {
      const std::vector<std::byte> keys =
          Encoded(Plane::kKeys, codec, awkward ? AwkwardRows(64, dim) : RandomFloats(size, 5), dim);
      for (const int64_t rows : kRows) {
        if (awkward && rows != 3) continue;
        const auto expected = Scores(Oracle(), codec, keys, queries.data(), rows, dim);
        for (const KernelTable* table : SimdTables()) {
          ExpectSameBits(expected, Scores(*table, codec, keys, queries.data(), rows, dim),
                         Where(table->isa, codec, dim) + ", rows " + std::to_string(rows));
        }
      }
    }
  });
}

// Weights, windows and accumulators of some rows, and what accumulate_tile makes of them.
struct SumCase {
  int64_t rows;
  int64_t dim;
  std::vector<float> weights;
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
  std::vector<float> rescale;
  std::vector<float> accumulator;  // stride dim + 1

  // Windows: 0 all, 1 random and sometimes empty, 2 causal.
  SumCase(int64_t rows, int64_t dim, uint32_t windows)
      : rows(rows),
        dim(dim),
        weights(RandomFloats(static_cast<size_t>(rows * kBlockTokens), windows)),
        begin(static_cast<size_t>(rows), 0),
        end(static_cast<size_t>(rows), kBlockTokens),
        rescale(RandomFloats(static_cast<size_t>(rows), windows + 1)),
        accumulator(RandomFloats(static_cast<size_t>(rows * (dim + 1)), windows + 2)) {
    std::mt19937 random(windows);
    for (int64_t r = 0; r < rows; ++r) {
      if (windows == 1) {
        begin[r] = static_cast<int32_t>(random() % 64);
        end[r] = begin[r] + static_cast<int32_t>(random() % (65 - begin[r]));
      }
      if (windows == 2) end[r] = static_cast<int32_t>(std::min<int64_t>(r, 64));
      if (begin[r] == end[r]) rescale[r] = 1.0f;
    }
  }

  std::vector<float> Run(const KernelTable& table, const KvCodec& codec,
                         const std::vector<std::byte>& values, int64_t first, int64_t count) const {
    std::vector<float> out = accumulator;
    table.ForCodec(codec).accumulate_tile(
        {weights.data() + first * kBlockTokens, count, begin.data() + first, end.data() + first,
         rescale.data() + first, values.data(), dim, out.data() + first * (dim + 1), dim + 1,
         All(values), codec});
    return out;
  }
};

TEST(PackedSums, TablesHaveTheOraclesBits) {
  ForEachShape([](const KvCodec& codec, int64_t dim) {
    for (const bool awkward : {false, true}) {
      const std::vector<std::byte> values = Encoded(
          Plane::kValues, codec,
          awkward ? AwkwardRows(64, dim) : RandomFloats(static_cast<size_t>(dim * 64), 5), dim);
      for (const int64_t rows : kRows) {
        if (awkward && rows != 3) continue;
        const SumCase c(rows, dim, static_cast<uint32_t>(rows % 3));
        const std::vector<float> expected = c.Run(Oracle(), codec, values, 0, rows);
        for (const KernelTable* table : SimdTables()) {
          ExpectSameBits(expected, c.Run(*table, codec, values, 0, rows),
                         Where(table->isa, codec, dim) + ", rows " + std::to_string(rows));
        }
      }
    }
  });
}

TEST(PackedSums, RowsOutsideTheVisibleRangeNeverMatter) {
  ForEachShape([](const KvCodec& codec, int64_t dim) {
    const std::vector<float> rows = RandomFloats(static_cast<size_t>(dim * kBlockTokens), 9);
    SumCase c(5, dim, 0);
    for (size_t r = 0; r < 5; ++r) {
      c.begin[r] = static_cast<int32_t>(10 + r);
      c.end[r] = static_cast<int32_t>(40 + r);
    }
    // A row whose sums are zeros of the negative sign, which unseen codes could flip.
    for (int64_t d = 0; d < dim; ++d) c.accumulator[d] = -0.0f;
    for (int t = 0; t < kBlockTokens; ++t) c.weights[t] = 0x1p-149f;
    std::vector<std::byte> clean = Encoded(Plane::kValues, codec, rows, dim);
    std::vector<std::byte> dirty(clean.size(), std::byte{0xFF});  // NaN scales, highest codes
    for (int64_t slot = 10; slot < 44; ++slot) {
      for (std::vector<std::byte>* plane : {&clean, &dirty}) {
        Encode(Oracle(), Plane::kValues,
               {rows.data() + slot * dim, dim, 1, dim, slot, plane->data(), codec});
      }
    }
    for (const Isa isa : SupportedIsas()) {
      ExpectSameBits(c.Run(KernelsFor(isa), codec, clean, 0, 5),
                     c.Run(KernelsFor(isa), codec, dirty, 0, 5), Where(isa, codec, dim));
    }
  });
}

TEST(PackedKernels, ARowHasTheSameBitsWhateverItsNeighbours) {
  constexpr int64_t kDim = 128;
  constexpr int64_t kMany = 70;
  const std::vector<float> cache = RandomFloats(kDim * kBlockTokens, 21);
  const std::vector<float> queries = RandomFloats((kDim + 5) * kMany, 22);
  for (const KvCodec& codec : Codecs()) {
    const std::vector<std::byte> keys = Encoded(Plane::kKeys, codec, cache, kDim);
    const std::vector<std::byte> values = Encoded(Plane::kValues, codec, cache, kDim);
    const SumCase c(kMany, kDim, 1);
    for (const KernelTable* table : SimdTables()) {
      const auto all = Scores(*table, codec, keys, queries.data(), kMany, kDim);
      const auto all_sums = c.Run(*table, codec, values, 0, kMany);
      for (const int64_t rows : {1, 2, 7}) {
        for (const int64_t first : {int64_t{0}, int64_t{5}, kMany - rows}) {
          const auto some =
              Scores(*table, codec, keys, queries.data() + first * (kDim + 5), rows, kDim);
          const auto some_sums = c.Run(*table, codec, values, first, rows);
          for (int64_t i = 0; i < rows * kBlockTokens; ++i) {
            ASSERT_TRUE(SameBits(all[first * kBlockTokens + i], some[i])) << codec.name();
          }
          for (int64_t i = first * (kDim + 1); i < (first + rows) * (kDim + 1); ++i) {
            ASSERT_TRUE(SameBits(all_sums[i], some_sums[i])) << codec.name();
          }
        }
      }
    }
  }
}

TEST(PackedKernels, BitsAreTheSameOnEveryMachine) {
  constexpr int64_t kDim = 192;
  const std::vector<float> cache = PortableFloats(kDim * kBlockTokens, 1);
  const std::vector<float> queries = PortableFloats((kDim + 5) * 5, 2);
  for (const Isa isa : SupportedIsas()) {
    std::vector<float> all;
    for (const KvCodec& codec : Codecs()) {
      if (!codec.Validate(kDim).ok()) continue;
      SumCase c(5, kDim, 2);
      c.weights = PortableFloats(c.weights.size(), 3);
      c.accumulator = PortableFloats(c.accumulator.size(), 4);
      c.rescale = PortableFloats(c.rescale.size(), 5);
      const auto scores = Scores(KernelsFor(isa), codec, Encoded(Plane::kKeys, codec, cache, kDim),
                                 queries.data(), 5, kDim);
      const auto sums =
          c.Run(KernelsFor(isa), codec, Encoded(Plane::kValues, codec, cache, kDim), 0, 5);
      all.insert(all.end(), scores.begin(), scores.end());
      all.insert(all.end(), sums.begin(), sums.end());
    }
    // Written by the oracle on x86-64; a change here changes every model's output.
    EXPECT_EQ(HashBits(all), 0x61CFDD7E1F3ED61Fu) << IsaName(isa);
  }
}

}  // namespace
}  // namespace kvasir
