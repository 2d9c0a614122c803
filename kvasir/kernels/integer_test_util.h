// What tests of integer attention share: the codecs, head sizes and numbers of rows that they walk,
// rows and scores that are awkward, and one run of scores or of sums on a table.
#ifndef KVASIR_KERNELS_INTEGER_TEST_UTIL_H_
#define KVASIR_KERNELS_INTEGER_TEST_UTIL_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "kvasir/kernels/integer_steps.h"
#include "kvasir/kernels/kernel_test_util.h"

namespace kvasir::testing {

inline constexpr int64_t kDims[] = {16, 32, 64, 80, 96, 128, 192, 256, 272};
// 150: twice as many as are weighed together, sixteen more, and few.
inline constexpr int64_t kRows[] = {1, 2, 3, 5, 7, 8, 16, 64, 150};
inline constexpr int64_t kMostRows = 150;

inline constexpr MultiplierWidth kWidths[] = {MultiplierWidth::kOneByte,
                                              MultiplierWidth::kTwoBytes};

inline const KvCodec kHalves = {KvCodec::Kind::kF16};

inline size_t BytesOf(MultiplierWidth width) { return width == MultiplierWidth::kOneByte ? 1 : 2; }

inline float QueryLevelsOf(const KvCodec& codec, MultiplierWidth width) {
  return codec == kHalves ? kHalfLevels : QueryLevels(BytesOf(width));
}

// How far a weight times a scale can be from its code, as a share of the largest of such products:
// the code and the share of the scale are rounded, what is shifted out of the weight is lost.
inline double WeightError(const KvCodec& codec, MultiplierWidth width) {
  const WeightRounding rounding =
      codec == kHalves ? kHalfWeightRounding : WeightRoundingOf(BytesOf(width));
  return (0.5 * rounding.unit + 0.5) / rounding.shares +
         std::ldexp(1.0, rounding.shift) * kWeightUnit;
}

// Of a weight itself, relative (integer_steps.h); besides, it is rounded to its unit.
inline constexpr double kWeightPowerError = 2.4e-4;

// How far codes are from cached numbers of up to 4.5, whose steps are 2^(2 - 12) in f16.
inline double CodeError(const KvCodec& codec) { return codec == kHalves ? 0x1p-11 : 0; }

// Calls body(codec, dim, width) for every codec, head size and width that go together.
template <typename Body>
void ForEachShape(const Body& body) {
  for (const int bits : {4, 8}) {
    for (const int group : {32, 64, 128}) {
      for (const auto scales : {KvCodec::Scales::kF16, KvCodec::Scales::kF32}) {
        const KvCodec codec = KvCodec::Affine(bits, group, scales);
        for (const int64_t dim : kDims) {
          if (!codec.Validate(dim).ok()) continue;
          for (const MultiplierWidth width : kWidths) body(codec, dim, width);
        }
      }
    }
  }
  for (const int64_t dim : kDims) body(kHalves, dim, MultiplierWidth::kTwoBytes);
}

inline std::string Where(Isa isa, const KvCodec& codec, int64_t dim, MultiplierWidth width) {
  return std::string(IsaName(isa)) + " " + codec.name() + ", dim " + std::to_string(dim) +
         (width == MultiplierWidth::kOneByte ? ", bytes" : ", two bytes");
}

inline std::vector<std::byte> Encoded(bool keys, const KvCodec& codec,
                                      const std::vector<float>& rows, int64_t dim) {
  std::vector<std::byte> out(codec.HeadBytes(dim));
  const KvCodecKernels& kernels = Oracle().ForCodec(codec);
  (keys ? kernels.encode_keys
        : kernels.encode_values)({rows.data(), dim, kBlockTokens, dim, 0, out.data(), codec});
  return out;
}

// Rows of which some are zero, tiny, huge, one-hot or not finite, some strewn with odd numbers.
inline std::vector<float> AwkwardRows(int64_t rows, int64_t dim) {
  std::vector<float> out = RandomFloats(static_cast<size_t>(rows * dim), 7);
  const std::vector<float> awkward = AwkwardFloats(out.size(), 8);
  for (int64_t i = 0; i < rows; ++i) {
    float* const row = out.data() + i * dim;
    for (int64_t d = 0; d < dim; ++d) {
      if (i % 8 == 1) row[d] = d % 3 == 0 ? -0.0f : 0.0f;
      if (i % 8 == 4) row[d] *= 0x1p-140f;
      if (i % 8 == 5) row[d] = d % 2 == 0 ? 3e38f : -3e38f;
      if (i % 8 == 6) row[d] = d == 3 ? 1e-30f : 0.0f;
      if (i % 8 == 7) row[d] = awkward[static_cast<size_t>(i * dim + d)];
    }
    if (i % 8 == 2) row[dim / 2] = kNan;
    if (i % 8 == 3) row[dim - 1] = -kInfinity;
  }
  return out;
}

// Scores of `rows` queries, which lie `dim` + 5 apart, or of those in `index`; scales and sums of
// the queries behind them.
inline std::vector<float> Scores(const KernelTable& table, const KvCodec& codec,
                                 MultiplierWidth width, const std::vector<std::byte>& keys,
                                 const float* queries, int64_t rows, int64_t dim,
                                 const std::vector<int32_t>& index = {},
                                 int64_t tokens = kBlockTokens) {
  const auto count = static_cast<size_t>(rows);
  const auto groups = static_cast<size_t>(IntegerGroups(codec, dim));
  std::vector<std::byte> codes(count * static_cast<size_t>(IntegerQueries::CodeBytes(dim)));
  std::vector<float> scales(count * groups);
  std::vector<float> sums(count * groups);
  std::vector<int32_t> starts(count * groups);
  const IntegerQueries integers = {codes.data(), scales.data(), sums.data(), starts.data()};
  const IntegerKvKernels& kernels = *table.IntegerForCodec(codec, width);
  std::vector<float> listed;
  for (const int32_t row : index) {
    listed.insert(listed.end(), queries + row * (dim + 5), queries + (row + 1) * (dim + 5));
  }
  if (!index.empty()) {
    queries = listed.data();
    rows = static_cast<int64_t>(index.size());
  }
  kernels.quantize_queries({queries, dim + 5, rows, dim, codec, 1.0f, integers});
  std::vector<float> out(count * kBlockTokens, kNan);
  kernels.score_tile({.rows = rows,
                      .keys = keys.data(),
                      .key_dim = dim,
                      .scores = out.data(),
                      .next = {keys.data(), static_cast<int64_t>(keys.size())},
                      .codec = codec,
                      .tokens = tokens,
                      .integers = integers,
                      .index = index.empty() ? nullptr : index.data()});
  out.insert(out.end(), scales.begin(), scales.end());
  out.insert(out.end(), sums.begin(), sums.end());
  out.insert(out.end(), starts.begin(), starts.end());
  return out;
}

// Scores of base 2, of which some rows see only tiny ones, some infinities and some NaN.
inline std::vector<float> AwkwardScores(size_t count) {
  std::vector<float> out(count);
  std::mt19937 random(11);
  constexpr float kOdd[] = {0.0f, -0.0f, 8.0f, -30.0f, -124.7f, -126.0f, 0x1p-149f, 1e-3f};
  for (size_t i = 0; i < count; ++i) {
    out[i] = kOdd[random() % 8];
    const size_t row = i / kBlockTokens;
    if (row % 8 == 1) out[i] -= row % 16 == 1 ? 1e30f : 1e36f;
    if (row % 8 == 2 && random() % 16 == 0) out[i] = kNan;
    if (row % 8 == 3 && random() % 4 == 0) out[i] = -kInfinity;
    if (row % 8 == 4) out[i] = -kInfinity;
    if (row % 8 == 5) out[i] = kNan;
    if (row % 8 == 6 && random() % 16 == 0) out[i] = kInfinity;
  }
  return out;
}

// Scores, windows and states of some rows, and what weigh_tile and accumulate_tile make of them.
struct SumCase {
  int64_t rows;
  int64_t dim;
  std::vector<float> scores;
  std::vector<int32_t> begin;
  std::vector<int32_t> end;
  std::vector<float> max;
  std::vector<float> sum;
  std::vector<float> accumulator;  // stride dim + 1
  float softcap = 0;
  float to_base2 = 1;

  // Windows: 0 all, 1 random and sometimes empty, 2 causal.
  SumCase(int64_t rows, int64_t dim, uint32_t windows)
      : rows(rows),
        dim(dim),
        scores(RandomFloats(static_cast<size_t>(rows * kBlockTokens), windows, 3.0f)),
        begin(static_cast<size_t>(rows), 0),
        end(static_cast<size_t>(rows), kBlockTokens),
        max(RandomFloats(static_cast<size_t>(rows), windows + 1, 12.0f)),
        sum(static_cast<size_t>(rows), 1.5f),
        accumulator(RandomFloats(static_cast<size_t>(rows * (dim + 1)), windows + 2)) {
    std::mt19937 random(windows);
    for (size_t r = 0; r < begin.size(); ++r) {
      if (r % 3 == 1) max[r] = -kInfinity;
      if (windows == 1) {
        begin[r] = static_cast<int32_t>(random() % 64);
        end[r] = begin[r] + static_cast<int32_t>(random() % (65 - static_cast<uint32_t>(begin[r])));
      }
      if (windows == 2) end[r] = static_cast<int32_t>(std::min<size_t>(r, 64));
    }
  }

  struct Result {
    std::vector<float> accumulator;
    std::vector<float> max;
    std::vector<float> sum;
    std::vector<float> rescale;

    std::vector<float> All() const {
      std::vector<float> out = accumulator;
      for (const std::vector<float>* part : {&max, &sum, &rescale}) {
        out.insert(out.end(), part->begin(), part->end());
      }
      return out;
    }
  };

  Result Run(const KernelTable& table, const KvCodec& codec, const std::vector<std::byte>& values,
             MultiplierWidth width, int64_t first = 0) const {
    return RunRows(table, codec, values, width, first, nullptr);
  }
  // Of the rows in `index` alone, whose windows and states are listed.
  Result RunSome(const KernelTable& table, const KvCodec& codec,
                 const std::vector<std::byte>& values, MultiplierWidth width,
                 const std::vector<int32_t>& index) const {
    SumCase some = *this;
    some.rows = static_cast<int64_t>(index.size());
    for (size_t i = 0; i < index.size(); ++i) {
      const auto row = static_cast<size_t>(index[i]);
      some.begin[i] = begin[row];
      some.end[i] = end[row];
      some.max[i] = max[row];
      some.sum[i] = sum[row];
    }
    return some.RunRows(table, codec, values, width, 0, index.data());
  }
  Result RunRows(const KernelTable& table, const KvCodec& codec,
                 const std::vector<std::byte>& values, MultiplierWidth width, int64_t first,
                 const int32_t* index) const {
    Result out = {accumulator, max, sum, std::vector<float>(max.size(), kNan)};
    std::vector<float> left = scores;
    const auto groups = static_cast<size_t>(rows * IntegerGroups(codec, dim));
    std::vector<std::byte> codes(groups * static_cast<size_t>(IntegerWeights::kCodeBytes));
    std::vector<float> steps(groups, kNan);  // of rows that see nothing, which nobody may read
    std::vector<float> shifts(groups, kNan);
    std::vector<int32_t> starts(groups);
    std::vector<float> tops(max.size());
    std::vector<float> rounders(kBlockTokens);
    const IntegerWeights weights = {codes.data(),  steps.data(), shifts.data(),
                                    starts.data(), tops.data(),  rounders.data()};
    const IntegerKvKernels& kernels = *table.IntegerForCodec(codec, width);
    std::vector<float> largest(max.size());
    const WeighTileArgs args = {.scores = left.data() + first * kBlockTokens,
                                .rows = rows - first,
                                .begin = begin.data() + first,
                                .end = end.data() + first,
                                .softcap = softcap,
                                .to_base2 = to_base2,
                                .max = out.max.data() + first,
                                .sum = out.sum.data() + first,
                                .rescale = out.rescale.data() + first,
                                .largest = largest.data(),
                                .values = values.data(),
                                .value_dim = dim,
                                .codec = codec,
                                .out = weights,
                                .index = index};
    table.prepare_scores(args);
    kernels.weigh_tile(args);
    kernels.accumulate_tile({.rows = rows - first,
                             .begin = begin.data() + first,
                             .end = end.data() + first,
                             .rescale = out.rescale.data() + first,
                             .values = values.data(),
                             .value_dim = dim,
                             .accumulator = out.accumulator.data() + first * (dim + 1),
                             .accumulator_stride = dim + 1,
                             .next = {values.data(), static_cast<int64_t>(values.size())},
                             .codec = codec,
                             .integers = weights,
                             .index = index});
    return out;
  }

  // What the float kernel makes of weights that count from `result.max`.
  std::vector<float> RunFloat(const KvCodec& codec, const std::vector<std::byte>& values,
                              const Result& result) const {
    std::vector<float> out = accumulator;
    std::vector<float> weights(scores.size());
    for (size_t i = 0; i < weights.size(); ++i) {
      weights[i] = std::exp2(scores[i] - result.max[i / kBlockTokens]);
    }
    Oracle().ForCodec(codec).accumulate_tile({.weights = weights.data(),
                                              .rows = rows,
                                              .begin = begin.data(),
                                              .end = end.data(),
                                              .rescale = result.rescale.data(),
                                              .values = values.data(),
                                              .value_dim = dim,
                                              .accumulator = out.data(),
                                              .accumulator_stride = dim + 1,
                                              .codec = codec});
    return out;
  }
};

}  // namespace kvasir::testing

#endif  // KVASIR_KERNELS_INTEGER_TEST_UTIL_H_
