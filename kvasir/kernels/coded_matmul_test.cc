// Matmul with weights kept as a file coded them: every table has the oracle's bits whatever the cut
// in rows and panels, and the oracle multiplies the values that GetRow gives.
#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using testing::AllTables;
using testing::ExpectSameBits;
using testing::Oracle;
using testing::RandomFloats;

struct Format {
  const char* name;
  WeightFormat format;
  AffineScales affine = {};

  int most() const { return (1 << CodeBits(format)) - 1; }  // largest code
};

constexpr Format kFormats[] = {
    {"q5", WeightFormat::kQ5},
    {"iq4_nl", WeightFormat::kIq4Nl},
    {"q1_affine_f16_128", WeightFormat::kQ1Affine, {128, DType::kF16, false}},
    {"q1_affine_bf16", WeightFormat::kQ1Affine, {32, DType::kBf16, true}},
    {"q2_affine_bf16", WeightFormat::kQ2Affine, {64, DType::kBf16, true}},
    {"q3_affine_f16", WeightFormat::kQ3Affine, {128, DType::kF16, true}},
    {"q4_affine_f16", WeightFormat::kQ4Affine, {32, DType::kF16, false}},
    {"q4_affine_bf16_64", WeightFormat::kQ4Affine, {64, DType::kBf16, true}},
    {"q5_affine_f16", WeightFormat::kQ5Affine, {32, DType::kF16, false}},
    {"q6_affine_bf16_64", WeightFormat::kQ6Affine, {64, DType::kBf16, true}},
    {"q8_affine_f16_128", WeightFormat::kQ8Affine, {128, DType::kF16, true}},
    {"q8_affine_bf16", WeightFormat::kQ8Affine, {32, DType::kBf16, false}},
    {"q4_affine_f16_zeros", WeightFormat::kQ4Affine, {128, DType::kF16, false, true}},
    {"q3_affine_f16_zeros", WeightFormat::kQ3Affine, {64, DType::kF16, false, true}},
    {"q8_affine_bf16_zeros", WeightFormat::kQ8Affine, {32, DType::kBf16, false, true}},
    {"q2_k", WeightFormat::kQ2K},
    {"q3_k", WeightFormat::kQ3K},
    {"q4_k", WeightFormat::kQ4K},
    {"q5_k", WeightFormat::kQ5K},
    {"q6_k", WeightFormat::kQ6K},
    {"iq4_xs", WeightFormat::kIq4Xs},
    {"mxfp4", WeightFormat::kMxfp4},
    {"nvfp4", WeightFormat::kNvfp4},
};

// Mostly about 1, but for every fifth one, which is anything but NaN and what overflows.
std::vector<uint8_t> Microscales(WeightFormat format, int64_t inputs, std::mt19937& random) {
  std::vector<uint8_t> scales(static_cast<size_t>(inputs / 16));
  const bool is_mxfp4 = format == WeightFormat::kMxfp4;
  for (size_t i = 0; i < scales.size(); ++i) {
    const uint32_t any = is_mxfp4 ? random() % 200 : random() % 256;
    const uint32_t usual = is_mxfp4 ? 117 + random() % 20 : 32 + random() % 48;
    scales[i] = static_cast<uint8_t>(i % 5 == 0 ? any : usual);
    if (!IsKeptMicroscale(scales[i], format)) scales[i] = 0;
  }
  return scales;
}

// From 0 to 256, the most that are kept (IntegerMatrix).
void SetZeros(const Format& format, std::mt19937& random, std::vector<uint16_t>* biases) {
  for (uint16_t& bits : *biases) {
    const uint32_t below = static_cast<uint32_t>(format.most()) + 2;
    const auto zero = static_cast<float>(random() % below);
    bits = format.affine.dtype == DType::kBf16 ? FloatToBf16(zero) : FloatToF16(zero);
  }
}

// Codes and small scales cover their range, and each row has one group of the largest everywhere.
PackedMatrix RandomMatrix(const Format& format, int64_t outputs, int64_t inputs, uint32_t seed) {
  std::mt19937 random(seed);
  const auto bytes = [&](int64_t count, int most) {
    std::vector<uint8_t> out(static_cast<size_t>(count));
    for (uint8_t& byte : out) byte = static_cast<uint8_t>(random() % (most + 1));
    return out;
  };
  const auto halves = [&](int64_t count) {
    std::vector<uint16_t> out(static_cast<size_t>(count));
    const bool is_bf16 = format.affine.dtype == DType::kBf16;
    for (uint16_t& bits : out) {
      const float value = (static_cast<float>(random() % 4001) - 2000.0f) * 1e-5f;
      bits = is_bf16 ? FloatToBf16(value) : FloatToF16(value);
    }
    return out;
  };
  PackedMatrix matrix = *PackedMatrix::Allocate(outputs, inputs, format.format, format.affine);
  for (int64_t n = 0; n < outputs; ++n) {
    CodedRow row;
    row.codes = bytes(inputs, format.most());
    std::fill_n(row.codes.begin(), kQuantGroup, static_cast<uint8_t>(format.most()));
    row.scales = halves(inputs / 32);
    row.biases = halves(inputs / 32);
    if (format.affine.has_zeros) SetZeros(format, random, &row.biases);
    const bool is_signed = format.format == WeightFormat::kQ3K ||
                           format.format == WeightFormat::kQ6K ||
                           format.format == WeightFormat::kIq4Xs;
    const int most_small = is_signed ? 255 : format.format == WeightFormat::kQ2K ? 15 : 63;
    row.sub_scales = bytes(inputs / 16, most_small);
    if (IsMicroscaled(format.format)) row.sub_scales = Microscales(format.format, inputs, random);
    row.sub_mins = bytes(inputs / 16, most_small);
    matrix.SetCodedRow(n, row);
  }
  return matrix;
}

struct Activations {
  int64_t inputs;
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;
  std::vector<int32_t> half_sums;

  Activations(const std::vector<float>& x, int64_t rows, int64_t input_count)
      : inputs(input_count),
        codes(x.size()),
        scales(x.size() / kQuantGroup),
        sums(scales.size()),
        half_sums(scales.size()) {
    Oracle().quantize_rows(x.data(), inputs, rows, inputs, codes.data(), scales.data(),
                           sums.data());
    for (size_t g = 0; g < sums.size(); ++g) {
      for (size_t k = 0; k < 16; ++k) half_sums[g] += codes[g * kQuantGroup + k];
    }
  }
};

// Row 0 has every activation at the largest code, so that sums are the largest there are.
std::vector<float> Inputs(int64_t rows, int64_t inputs, uint32_t seed) {
  std::vector<float> x = RandomFloats(static_cast<size_t>(rows * inputs), seed);
  std::fill_n(x.begin(), inputs, 1.0f);
  return x;
}

std::vector<float> RunRows(const KernelTable& table, const Activations& x,
                           const PackedMatrix& weights, int64_t first_row, int64_t rows,
                           int64_t panel_begin, int64_t panel_end, const float* bias) {
  const int64_t groups = x.inputs / kQuantGroup;
  MatmulArgs args;
  args.x_codes = x.codes.data() + first_row * x.inputs;
  args.x_scales = x.scales.data() + first_row * groups;
  args.x_sums = x.sums.data() + first_row * groups;
  args.x_half_sums = x.half_sums.data() + first_row * groups;
  args.rows = rows;
  args.fetch_into = rows % 2 == 0 ? CacheLevel::kFirst : CacheLevel::kSecond;
  args.weights = &weights;
  args.panel_begin = panel_begin;
  args.panel_end = panel_end;
  args.bias = bias;
  args.out_stride = weights.outputs() + 3;
  std::vector<float> out(static_cast<size_t>(rows * args.out_stride), 12345.0f);
  args.out = out.data();
  const auto matmul = table.matmul[static_cast<size_t>(weights.format())];
  matmul(args);
  if (rows <= 2) {
    std::vector<float> streamed(out.size(), 12345.0f);
    args.may_stream = true;
    args.out = streamed.data();
    matmul(args);
    ExpectSameBits(out, streamed, std::string(IsaName(table.isa)) + " as one stream");
  }
  return out;
}

class CodedMatmulTest : public ::testing::TestWithParam<Format> {};

TEST_P(CodedMatmulTest, EveryTableHasTheOraclesBits) {
  uint32_t seed = 1;
  // Also fewer than a unit of a panel, and what ends within one.
  for (int64_t inputs : {32, 64, 96, 160, 256, 352, 512, 1280, 6144}) {
    if (inputs % InputUnit(GetParam().format, GetParam().affine) != 0) continue;
    for (int64_t outputs : {1, 16, 17, 48, 65, 130}) {
      const PackedMatrix weights = RandomMatrix(GetParam(), outputs, inputs, ++seed);
      const std::vector<float> bias = RandomFloats(static_cast<size_t>(outputs), ++seed);
      for (int64_t rows : {1, 2, 3, 4, 5, 7, 13, 67}) {
        if (rows == 67 && outputs != 17 && outputs != 65) continue;  // the oracle takes its time
        const Activations x(Inputs(rows, inputs, ++seed), rows, inputs);
        const float* const added = rows % 2 == 0 ? bias.data() : nullptr;
        const auto expected = RunRows(Oracle(), x, weights, 0, rows, 0, weights.panels(), added);
        for (const KernelTable* table : AllTables()) {
          ExpectSameBits(expected, RunRows(*table, x, weights, 0, rows, 0, weights.panels(), added),
                         std::string(IsaName(table->isa)) + " rows " + std::to_string(rows) +
                             " outputs " + std::to_string(outputs) + " inputs " +
                             std::to_string(inputs));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// Sums go to memory and back between blocks, which one panel of codes of 2 bits fills with 32,768
// inputs.
TEST_P(CodedMatmulTest, SeveralBlocksOfInputs) {
  constexpr int64_t kInputs = 32768 + 256;
  uint32_t seed = 50;
  for (int64_t outputs : {16, 50}) {
    const PackedMatrix weights = RandomMatrix(GetParam(), outputs, kInputs, ++seed);
    for (int64_t rows : {1, 8, 13, 18}) {
      const Activations x(Inputs(rows, kInputs, ++seed), rows, kInputs);
      const auto expected = RunRows(Oracle(), x, weights, 0, rows, 0, weights.panels(), nullptr);
      for (const KernelTable* table : AllTables()) {
        ExpectSameBits(expected, RunRows(*table, x, weights, 0, rows, 0, weights.panels(), nullptr),
                       std::string(IsaName(table->isa)) + " rows " + std::to_string(rows));
      }
    }
  }
}

TEST_P(CodedMatmulTest, ARowAndAPanelDependOnNothingElse) {
  constexpr int64_t kRows = 35;  // of every kind of tile
  constexpr int64_t kInputs = 2304;
  const PackedMatrix weights = RandomMatrix(GetParam(), 100, kInputs, 3);
  const Activations x(Inputs(kRows, kInputs, 4), kRows, kInputs);
  for (const Isa isa : SupportedIsas()) {
    const KernelTable& table = KernelsFor(isa);
    const auto all = RunRows(table, x, weights, 0, kRows, 0, weights.panels(), nullptr);
    const size_t stride = static_cast<size_t>(weights.outputs() + 3);
    for (int64_t row = 0; row < kRows; ++row) {
      auto whole = std::vector<float>(all.begin() + row * stride, all.begin() + (row + 1) * stride);
      const auto alone = RunRows(table, x, weights, row, 1, 0, weights.panels(), nullptr);
      ExpectSameBits(whole, alone, "row " + std::to_string(row));
    }
    const auto part = RunRows(table, x, weights, 0, kRows, 2, 5, nullptr);
    for (int64_t row = 0; row < kRows; ++row) {
      for (size_t n = 0; n < stride; ++n) {
        const float wanted = n >= 32 && n < 80 ? all[row * stride + n] : 12345.0f;
        ASSERT_EQ(part[row * stride + n], wanted) << "row " << row << " output " << n;
      }
    }
  }
}

// GetRow is what a matmul multiplies with, but for the rounding of single values that MLX does.
TEST_P(CodedMatmulTest, TheOracleMultipliesTheDecodedValues) {
  constexpr int64_t kInputs = 1024;
  Format format = GetParam();
  format.affine.rounds_values = false;
  const PackedMatrix weights = RandomMatrix(format, 33, kInputs, 5);
  const Activations x(Inputs(2, kInputs, 6), 2, kInputs);
  const auto out = RunRows(Oracle(), x, weights, 0, 2, 0, weights.panels(), nullptr);
  std::vector<float> row(kInputs);
  for (int64_t n = 0; n < weights.outputs(); ++n) {
    weights.GetRow(n, row.data());
    for (int64_t r = 0; r < 2; ++r) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < kInputs; ++k) {
        const double product = double{row[k]} * x.codes[r * kInputs + k] *
                               double{x.scales[(r * kInputs + k) / kQuantGroup]};
        sum += product;
        magnitude += std::fabs(product);
      }
      // Each of 64 terms is rounded twice; a bias of many times the weights can cancel.
      EXPECT_NEAR(out[r * (weights.outputs() + 3) + n], sum, 64 * 0x1.0p-23 * magnitude * 4);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CodedMatmulTest, ::testing::ValuesIn(kFormats),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kvasir
