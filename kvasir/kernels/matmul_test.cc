// Matmul kernels: every table has the oracle's bits whatever the cut in rows and panels, and the
// oracle is close to double precision.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using testing::AwkwardFloats;
using testing::ExpectSameBits;
using testing::kInfinity;
using testing::kNan;
using testing::Oracle;
using testing::RandomFloats;
using testing::SimdTables;

constexpr float kUntouched = 12345.0f;

PackedMatrix PackRows(const std::vector<float>& values, int64_t outputs, int64_t inputs,
                      WeightFormat format) {
  Result<PackedMatrix> matrix = PackedMatrix::Allocate(outputs, inputs, format);
  EXPECT_TRUE(matrix.ok());
  for (int64_t n = 0; n < outputs; ++n) matrix->SetRow(n, values.data() + n * inputs);
  return std::move(*matrix);
}

// What the kernels read of the activations, as the table under test prepares it.
struct Activations {
  int64_t rows;
  int64_t inputs;
  int64_t stride;
  std::vector<float> x;
  std::vector<int8_t> codes;
  std::vector<float> scales;
  std::vector<int32_t> sums;

  // `values` is [rows, inputs]. What lies between the rows is poison.
  Activations(const std::vector<float>& values, int64_t row_count, int64_t input_count)
      : rows(row_count), inputs(input_count), stride(input_count + 5), x(rows * stride, kNan) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * inputs, inputs, x.begin() + r * stride);
    }
  }

  void Quantize(const KernelTable& table) {
    codes.assign(rows * inputs, 99);
    scales.assign(rows * inputs / kQuantGroup, kUntouched);
    sums.assign(rows * inputs / kQuantGroup, 99);
    table.quantize_rows(x.data(), stride, rows, inputs, codes.data(), scales.data(), sums.data());
  }
};

// Rows [0, rows), panels [begin, end) into a matrix of kUntouched with a stride beyond outputs.
std::vector<float> RunMatmul(const KernelTable& table, const Activations& x,
                             const PackedMatrix& weights, int64_t rows, int64_t panel_begin,
                             int64_t panel_end, const float* bias) {
  MatmulArgs args;
  args.out_stride = weights.outputs() + 3;
  std::vector<float> out(rows * args.out_stride, kUntouched);
  args.x = x.x.data();
  args.x_stride = x.stride;
  args.x_codes = x.codes.data();
  args.x_scales = x.scales.data();
  args.x_sums = x.sums.data();
  args.rows = rows;
  args.weights = &weights;
  args.panel_begin = panel_begin;
  args.panel_end = panel_end;
  args.bias = bias;
  args.out = out.data();
  table.matmul[static_cast<int>(weights.format())](args);
  return out;
}

std::string Name(const KernelTable& table, const PackedMatrix& weights, int64_t rows) {
  return std::string(IsaName(table.isa)) + " " + std::string(WeightFormatName(weights.format())) +
         " rows " + std::to_string(rows) + " outputs " + std::to_string(weights.outputs()) +
         " inputs " + std::to_string(weights.inputs());
}

class MatmulTest : public ::testing::TestWithParam<WeightFormat> {
 protected:
  // Float formats take any number of inputs, the quantized ones whole groups.
  std::vector<int64_t> InputCounts() const {
    if (IsQuantized(GetParam())) return {32, 64, 96, 160, 1056};
    return {1, 2, 3, 7, 16, 17, 31, 64, 65, 96, 257};
  }

  void CompareWithOracle(const std::vector<float>& x_values, const PackedMatrix& weights,
                         int64_t rows, const float* bias) {
    Activations x(x_values, rows, weights.inputs());
    if (IsQuantized(weights.format())) x.Quantize(Oracle());
    const std::vector<float> expected =
        RunMatmul(Oracle(), x, weights, rows, 0, weights.panels(), bias);
    for (const KernelTable* table : SimdTables()) {
      ExpectSameBits(expected, RunMatmul(*table, x, weights, rows, 0, weights.panels(), bias),
                     Name(*table, weights, rows));
    }
  }
};

TEST_P(MatmulTest, EveryTableHasTheOraclesBits) {
  uint32_t seed = 1;
  for (int64_t inputs : InputCounts()) {
    for (int64_t outputs : {1, 15, 16, 17, 33, 48, 63, 64, 65, 113, 128, 130}) {
      const PackedMatrix weights =
          PackRows(RandomFloats(outputs * inputs, ++seed), outputs, inputs, GetParam());
      const std::vector<float> bias = RandomFloats(outputs, ++seed);
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 12, 13, 17, 33}) {
        const std::vector<float> x = RandomFloats(rows * inputs, ++seed);
        CompareWithOracle(x, weights, rows, rows % 2 == 0 ? bias.data() : nullptr);
        if (HasFatalFailure()) return;
      }
    }
  }
}

TEST_P(MatmulTest, AwkwardNumbers) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const int64_t inputs = 96;
    const int64_t outputs = 70;
    const int64_t rows = 9;
    std::vector<float> weight_values = AwkwardFloats(outputs * inputs, seed);
    std::vector<float> x = AwkwardFloats(rows * inputs, seed + 1000);
    if (seed % 4 == 3) {
      x[5] = kInfinity;
      x[inputs + 40] = kNan;
      x[3 * inputs] = -kInfinity;
    }
    if (IsQuantized(GetParam())) {
      // A scale is a half: larger weights than these have none.
      for (float& w : weight_values) w = std::clamp(w, -1000.0f, 1000.0f);
    }
    CompareWithOracle(x, PackRows(weight_values, outputs, inputs, GetParam()), rows, x.data());
    if (HasFatalFailure()) return;
  }
}

TEST_P(MatmulTest, ZeroWeightsKeepTheSignOfZero) {
  const int64_t inputs = 32;
  const PackedMatrix weights =
      PackRows(std::vector<float>(20 * inputs, -0.0f), 20, inputs, GetParam());
  const std::vector<float> bias(20, -0.0f);
  const std::vector<float> x = RandomFloats(3 * inputs, 4);
  CompareWithOracle(x, weights, 3, nullptr);
  CompareWithOracle(x, weights, 3, bias.data());
}

TEST_P(MatmulTest, NoInputsGiveTheBias) {
  const PackedMatrix weights = PackRows({}, 35, 0, GetParam());
  const std::vector<float> bias = RandomFloats(35, 5);
  for (int64_t rows : {1, 9}) {
    CompareWithOracle({}, weights, rows, nullptr);
    CompareWithOracle({}, weights, rows, bias.data());
  }
}

// The bits of a row do not depend on how many rows go with it.
TEST_P(MatmulTest, RowsAreIndependent) {
  const int64_t inputs = 2048 + 96;  // several blocks of inputs in every format
  const int64_t outputs = 147;
  const int64_t all_rows = 512;
  const PackedMatrix weights =
      PackRows(RandomFloats(outputs * inputs, 6), outputs, inputs, GetParam());
  const std::vector<float> bias = RandomFloats(outputs, 7);
  Activations x(RandomFloats(all_rows * inputs, 8), all_rows, inputs);
  if (IsQuantized(GetParam())) x.Quantize(Oracle());
  for (const KernelTable* table : SimdTables()) {
    const std::vector<float> all =
        RunMatmul(*table, x, weights, all_rows, 0, weights.panels(), bias.data());
    for (int64_t rows : {1, 2, 3, 5, 7, 8, 13, 64, 200}) {
      const std::vector<float> some =
          RunMatmul(*table, x, weights, rows, 0, weights.panels(), bias.data());
      ExpectSameBits({all.begin(), all.begin() + static_cast<int64_t>(some.size())}, some,
                     Name(*table, weights, rows));
    }
  }
}

// A range of panels writes its own outputs only, with the bits of the whole.
TEST_P(MatmulTest, PanelRanges) {
  const int64_t inputs = 160;
  const int64_t outputs = 16 * 11 + 4;
  const PackedMatrix weights =
      PackRows(RandomFloats(outputs * inputs, 9), outputs, inputs, GetParam());
  const std::vector<float> bias = RandomFloats(outputs, 10);
  for (int64_t rows : {1, 4, 19}) {
    Activations x(RandomFloats(rows * inputs, 11), rows, inputs);
    if (IsQuantized(GetParam())) x.Quantize(Oracle());
    std::vector<const KernelTable*> tables = SimdTables();
    tables.push_back(&Oracle());
    const std::vector<float> whole =
        RunMatmul(Oracle(), x, weights, rows, 0, weights.panels(), bias.data());
    for (const KernelTable* table : tables) {
      for (int64_t begin = 0; begin <= weights.panels(); ++begin) {
        for (int64_t end = begin; end <= weights.panels(); ++end) {
          std::vector<float> expected = whole;
          for (size_t i = 0; i < expected.size(); ++i) {
            const int64_t output = static_cast<int64_t>(i) % (outputs + 3);
            if (output < begin * 16 || output >= end * 16) expected[i] = kUntouched;
          }
          ExpectSameBits(expected, RunMatmul(*table, x, weights, rows, begin, end, bias.data()),
                         Name(*table, weights, rows) + " panels " + std::to_string(begin) + " to " +
                             std::to_string(end));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

// A fused multiply-add rounds once: the error of a chain of n is below n * 2^-24 times the largest
// partial sum, which the sum of magnitudes bounds (Higham, Accuracy and Stability, section 3.1).
// The quantized formats add two roundings per group of 32, for the scale and for the product with
// it, so 3 * n covers them too.
TEST_P(MatmulTest, OracleIsCloseToDoublePrecision) {
  const int64_t inputs = 320;
  const int64_t outputs = 37;
  const int64_t rows = 5;
  const PackedMatrix weights =
      PackRows(RandomFloats(outputs * inputs, 12), outputs, inputs, GetParam());
  Activations x(RandomFloats(rows * inputs, 13), rows, inputs);
  if (IsQuantized(GetParam())) x.Quantize(Oracle());
  const std::vector<float> actual =
      RunMatmul(Oracle(), x, weights, rows, 0, weights.panels(), nullptr);
  std::vector<float> w(inputs);
  for (int64_t n = 0; n < outputs; ++n) {
    weights.GetRow(n, w.data());
    for (int64_t r = 0; r < rows; ++r) {
      double sum = 0;
      double magnitude = 0;
      for (int64_t k = 0; k < inputs; ++k) {
        double input = x.x[r * x.stride + k];
        if (IsQuantized(GetParam())) {
          input = static_cast<double>(x.codes[r * inputs + k]) *
                  x.scales[(r * inputs + k) / kQuantGroup];
        }
        sum += input * w[k];
        magnitude += std::fabs(input * w[k]);
      }
      EXPECT_NEAR(actual[r * (outputs + 3) + n], sum, 3 * inputs * 0x1p-24 * magnitude);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, MatmulTest,
                         ::testing::Values(WeightFormat::kF32, WeightFormat::kF16,
                                           WeightFormat::kBf16, WeightFormat::kQ8,
                                           WeightFormat::kQ4),
                         [](const auto& info) {
                           return std::string(WeightFormatName(info.param));
                         });

// Every byte is a weight code, also those that quantization never makes, and the largest sums of
// products are exact.
TEST(QuantMatmul, EveryCode) {
  const int64_t inputs = 64;
  const int64_t outputs = 64;
  for (WeightFormat format : {WeightFormat::kQ8, WeightFormat::kQ4}) {
    for (int kind = 0; kind < 6; ++kind) {
      const PackedMatrix weights =
          PackRows(RandomFloats(outputs * inputs, 14), outputs, inputs, format);
      std::mt19937 random(15);
      for (int64_t p = 0; p < weights.panels(); ++p) {
        // Packing never makes these codes, so the test writes them where a loader could.
        std::byte* const codes = const_cast<std::byte*>(weights.panel(p));
        for (size_t i = 0; i < weights.scales_offset_bytes(); ++i) {
          codes[i] = std::byte(kind < 2 ? 0xFF : kind < 4 ? 0 : random() % 256);
        }
      }
      std::vector<float> values = RandomFloats(7 * inputs, 16);
      if (kind < 4) std::fill(values.begin(), values.end(), kind % 2 == 0 ? 1.0f : -1.0f);
      Activations x(values, 7, inputs);
      x.Quantize(Oracle());
      const std::vector<float> expected =
          RunMatmul(Oracle(), x, weights, 7, 0, weights.panels(), nullptr);
      for (const KernelTable* table : SimdTables()) {
        ExpectSameBits(expected, RunMatmul(*table, x, weights, 7, 0, weights.panels(), nullptr),
                       Name(*table, weights, 7));
      }
    }
  }
}

TEST(QuantizeRows, EveryTableHasTheOraclesBits) {
  for (uint32_t seed = 0; seed < 50; ++seed) {
    const int64_t rows = 1 + seed % 5;
    const int64_t inputs = 32 * (1 + seed % 7);
    std::vector<float> values = AwkwardFloats(rows * inputs, seed);
    // Whole groups of denormals, whose scale is coarse or zero.
    if (seed % 5 == 1) {
      for (float& value : values) value *= 0x1p-140f;
    }
    if (seed % 5 == 2) {
      values[seed % values.size()] = kNan;
      values[values.size() - 1] = -kInfinity;
    }
    // Halves of a code: 127 sets the scale to 1.
    if (seed % 5 == 3) {
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = i % 32 == 0 ? 127.0f : static_cast<float>(static_cast<int>(i % 23) - 11) / 2;
      }
    }
    Activations expected(values, rows, inputs);
    expected.Quantize(Oracle());
    for (const KernelTable* table : SimdTables()) {
      Activations actual(values, rows, inputs);
      actual.Quantize(*table);
      EXPECT_EQ(expected.codes, actual.codes) << IsaName(table->isa) << " seed " << seed;
      EXPECT_EQ(expected.sums, actual.sums) << IsaName(table->isa) << " seed " << seed;
      ExpectSameBits(expected.scales, actual.scales, std::string(IsaName(table->isa)));
    }
  }
}

TEST(QuantizeRows, OracleFollowsTheContract) {
  std::vector<float> values(64, 0.0f);
  values[0] = -254.0f;  // scale 2
  values[1] = 5.0f;     // 2.5 rounds to 2
  values[2] = 7.0f;     // 3.5 rounds to 4
  values[3] = -0.9f;
  values[40] = kNan;
  Activations x(values, 1, 64);
  x.Quantize(Oracle());
  EXPECT_EQ(x.scales[0], 2.0f);
  EXPECT_EQ(x.codes[0], -127);
  EXPECT_EQ(x.codes[1], 2);
  EXPECT_EQ(x.codes[2], 4);
  EXPECT_EQ(x.codes[3], 0);
  EXPECT_EQ(x.sums[0], -121);
  EXPECT_TRUE(std::isnan(x.scales[1]));
  EXPECT_EQ(x.sums[1], 0);

  std::fill(values.begin(), values.end(), 0.0f);
  x = Activations(values, 1, 64);
  x.Quantize(Oracle());
  EXPECT_EQ(x.scales[0], 0.0f);
  EXPECT_EQ(x.codes, std::vector<int8_t>(64, 0));
}

}  // namespace
}  // namespace kvasir
