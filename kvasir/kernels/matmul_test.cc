// Matmul kernels: every table has the oracle's bits whatever the cut in rows and panels, and the
// oracle is close to double precision.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "gtest/gtest.h"
#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/kernels/table_parts.h"
#include "kvasir/tensor/bf16_pairs.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {
namespace {

using testing::AllTables;
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
  std::vector<std::byte> rounded;

  // `values` is [rows, inputs]. What lies between the rows is poison.
  Activations(const std::vector<float>& values, int64_t row_count, int64_t input_count)
      : rows(row_count), inputs(input_count), stride(input_count + 5), x(rows * stride, kNan) {
    for (int64_t r = 0; r < rows; ++r) {
      std::copy_n(values.begin() + r * inputs, inputs, x.begin() + r * stride);
    }
  }

  // What the table's matmul of `format` reads besides x.
  void Prepare(const KernelTable& table, WeightFormat format) {
    if (IsQuantized(format)) Quantize(table);
    if (format == WeightFormat::kBf16Dot) {
      rounded.assign(rows * KernelTable::RoundedBytes(inputs), std::byte{0x7F});
      table.round_rows(x.data(), stride, rows, inputs, rounded.data());
    }
  }

  void Quantize(const KernelTable& table) {
    codes.assign(rows * inputs, 99);
    scales.assign(rows * inputs / kQuantGroup, kUntouched);
    sums.assign(rows * inputs / kQuantGroup, 99);
    table.quantize_rows(x.data(), stride, rows, inputs, codes.data(), scales.data(), sums.data());
  }
};

std::string Name(const KernelTable& table, const PackedMatrix& weights, int64_t rows) {
  return std::string(IsaName(table.isa)) + " " + std::string(WeightFormatName(weights.format())) +
         " rows " + std::to_string(rows) + " outputs " + std::to_string(weights.outputs()) +
         " inputs " + std::to_string(weights.inputs());
}

// Rows [0, rows), panels [begin, end) into a matrix of kUntouched with a stride beyond outputs.
std::vector<float> RunMatmul(const KernelTable& table, Activations& x, const PackedMatrix& weights,
                             int64_t rows, int64_t panel_begin, int64_t panel_end,
                             const float* bias) {
  x.Prepare(table, weights.format());
  MatmulArgs args;
  args.out_stride = weights.outputs() + 3;
  std::vector<float> out(rows * args.out_stride, kUntouched);
  args.x = x.x.data();
  args.x_stride = x.stride;
  args.x_rounded = x.rounded.data();
  args.x_codes = x.codes.data();
  args.x_scales = x.scales.data();
  args.x_sums = x.sums.data();
  args.rows = rows;
  args.fetch_into = rows % 2 == 0 ? CacheLevel::kFirst : CacheLevel::kSecond;
  args.weights = &weights;
  args.panel_begin = panel_begin;
  args.panel_end = panel_end;
  args.bias = bias;
  args.out = out.data();
  const auto matmul = table.matmul[static_cast<int>(weights.format())];
  matmul(args);
  if (rows <= 2) {
    std::vector<float> streamed(out.size(), kUntouched);
    args.may_stream = true;
    args.out = streamed.data();
    matmul(args);
    ExpectSameBits(out, streamed, Name(table, weights, rows) + " as one stream");
  }
  return out;
}

class MatmulTest : public ::testing::TestWithParam<WeightFormat> {
 protected:
  // Float formats take any number of inputs, the quantized ones whole groups.
  std::vector<int64_t> InputCounts() const {
    if (IsQuantized(GetParam())) return {32, 64, 96, 160, 1056};
    if (GetParam() == WeightFormat::kBf16Dot) return {2, 4, 14, 16, 18, 32, 64, 66, 258, 1056};
    return {1, 2, 3, 7, 16, 17, 31, 64, 65, 96, 257};
  }

  void CompareWithOracle(const std::vector<float>& x_values, const PackedMatrix& weights,
                         int64_t rows, const float* bias) {
    Activations x(x_values, rows, weights.inputs());
    const std::vector<float> expected =
        RunMatmul(Oracle(), x, weights, rows, 0, weights.panels(), bias);
    for (const KernelTable* table : AllTables()) {
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

// Sums go to memory and back between blocks, which one panel fills with 16,384 inputs at most.
TEST_P(MatmulTest, SeveralBlocksOfInputs) {
  const int64_t inputs = 16384 + 96;
  uint32_t seed = 50;
  for (int64_t outputs : {16, 70}) {
    const PackedMatrix weights =
        PackRows(RandomFloats(outputs * inputs, ++seed), outputs, inputs, GetParam());
    const std::vector<float> bias = RandomFloats(outputs, ++seed);
    for (int64_t rows : {1, 7, 13, 19}) {
      CompareWithOracle(RandomFloats(rows * inputs, ++seed), weights, rows, bias.data());
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
  for (int64_t rows : {1, 9, 70}) {
    CompareWithOracle({}, weights, rows, nullptr);
    CompareWithOracle({}, weights, rows, bias.data());
  }
}

// The bits of a row do not depend on how many rows go with it.
TEST_P(MatmulTest, RowsAreIndependent) {
  const int64_t inputs = 2048 + 96;
  const int64_t outputs = 147;
  const int64_t all_rows = 512;
  const PackedMatrix weights =
      PackRows(RandomFloats(outputs * inputs, 6), outputs, inputs, GetParam());
  const std::vector<float> bias = RandomFloats(outputs, 7);
  Activations x(RandomFloats(all_rows * inputs, 8), all_rows, inputs);
  for (const KernelTable* table : AllTables()) {
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
    std::vector<const KernelTable*> tables = AllTables();
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
        if (GetParam() == WeightFormat::kBf16Dot) {
          input = bf16_pairs::RoundInput(static_cast<float>(input));
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
                                           WeightFormat::kBf16, WeightFormat::kBf16Dot,
                                           WeightFormat::kQ8, WeightFormat::kQ4),
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
        std::byte* const panel = const_cast<std::byte*>(weights.panel(p));
        const GroupUnits units = UnitsOf(format);
        for (size_t g = 0; g < inputs / kQuantGroup; ++g) {
          for (size_t i = 0; i < units.code_bytes; ++i) {
            panel[units.CodesOf(g) + i] = std::byte(kind < 2   ? 0xFF
                                                    : kind < 4 ? 0
                                                               : random() % 256);
          }
        }
      }
      std::vector<float> values = RandomFloats(7 * inputs, 16);
      if (kind < 4) std::fill(values.begin(), values.end(), kind % 2 == 0 ? 1.0f : -1.0f);
      Activations x(values, 7, inputs);
      const std::vector<float> expected =
          RunMatmul(Oracle(), x, weights, 7, 0, weights.panels(), nullptr);
      for (const KernelTable* table : AllTables()) {
        ExpectSameBits(expected, RunMatmul(*table, x, weights, 7, 0, weights.panels(), nullptr),
                       Name(*table, weights, 7));
      }
    }
  }
}

// Inputs and weights around the least that count, and sums that cancel to the least products there
// are: no table may take them for denormals.
TEST(Bf16DotMatmul, TheLeastProducts) {
  const int64_t inputs = 256;
  const int64_t outputs = 32;
  const int64_t rows = 3;
  std::mt19937 random(17);
  const auto number = [&](uint32_t least_exponent) {
    const uint32_t exponent = least_exponent + random() % 3;
    const uint32_t rest = random() & 0x807F0000u;
    return std::bit_cast<float>(exponent << 23 | rest);
  };
  for (int kind = 0; kind < 40; ++kind) {
    std::vector<float> weight_values(outputs * inputs);
    for (float& w : weight_values) w = number(127 - 61);
    std::vector<float> values(rows * inputs);
    for (float& x : values) x = number(127 - 53);
    // Every second pair takes the one before it back, but for the last bit of a weight.
    for (int64_t k = 0; k < inputs; k += 4) {
      for (int64_t r = 0; r < rows; ++r) {
        float* const x = values.data() + r * inputs + k;
        x[2] = -x[1];
        x[3] = -x[0];
      }
      for (int64_t n = 0; n < outputs; ++n) {
        float* const w = weight_values.data() + n * inputs + k;
        const uint32_t last_bit = kind % 2 == 0 ? 0 : 0x10000;
        w[2] = std::bit_cast<float>(std::bit_cast<uint32_t>(w[1]) ^ last_bit);
        w[3] = w[0];
      }
    }
    const PackedMatrix weights = PackRows(weight_values, outputs, inputs, WeightFormat::kBf16Dot);
    Activations x(values, rows, inputs);
    const std::vector<float> expected =
        RunMatmul(Oracle(), x, weights, rows, 0, weights.panels(), nullptr);
    for (const float sum : expected) {
      EXPECT_TRUE(sum == 0 || std::fabs(sum) >= 0x1p-126f) << sum;
    }
    for (const KernelTable* table : AllTables()) {
      ExpectSameBits(expected, RunMatmul(*table, x, weights, rows, 0, weights.panels(), nullptr),
                     Name(*table, weights, rows));
    }
  }
}

// The instruction against multiply-adds, on machines that have it: 21 million pairs whose sums
// round, cancel and overflow.
TEST(Bf16DotMatmul, TheInstructionIsTwoMultiplyAdds) {
  KernelTable dots = {.isa = Isa::kAvx512};
  if (!FillBf16DotMatmul(Isa::kAvx512, &dots)) {
    GTEST_SKIP() << "this CPU has no VDPBF16PS that is two fused multiply-adds";
  }
  KernelTable fused = {.isa = Isa::kAvx512};
  FillFloatMatmul(Isa::kAvx512, &fused);
  const int64_t inputs = 2048;
  const int64_t outputs = 64;
  const int64_t rows = 64;
  std::mt19937 random(18);
  for (const int exponents : {1, 3, 12, 40, 110}) {
    const auto number = [&](int least_exponent) {
      const uint32_t exponent = least_exponent + random() % static_cast<uint32_t>(exponents);
      const uint32_t rest = random() & 0x807FFFFFu;
      return std::bit_cast<float>(exponent << 23 | rest);
    };
    std::vector<float> weight_values(outputs * inputs);
    for (float& w : weight_values) w = number(127 - exponents / 2);
    std::vector<float> values(rows * inputs);
    for (float& x : values) x = number(127 - std::min(exponents / 2, 45));
    const PackedMatrix weights = PackRows(weight_values, outputs, inputs, WeightFormat::kBf16Dot);
    Activations x(values, rows, inputs);
    ExpectSameBits(RunMatmul(fused, x, weights, rows, 0, weights.panels(), nullptr),
                   RunMatmul(dots, x, weights, rows, 0, weights.panels(), nullptr),
                   "exponents " + std::to_string(exponents));
  }
}

TEST(RoundRows, OracleRoundsToNearestEven) {
  const std::vector<float> values = {0x1.01p0f,   0x1.03p0f, -0x1.02fffep0f, 0x1p-53f, -0x1p-52f,
                                     0x1.ffp-53f, kNan,      -kInfinity,     3.4e38f,  -0.0f};
  const std::vector<float> expected = {0x1.00p0f, 0x1.04p0f, -0x1.02p0f, 0.0f,      -0x1p-52f,
                                       0x1p-52f,  kNan,      -kInfinity, kInfinity, 0.0f};
  Activations x(values, 1, 10);
  x.Prepare(Oracle(), WeightFormat::kBf16Dot);
  std::vector<float> rounded(10);
  std::memcpy(rounded.data(), x.rounded.data(), 10 * sizeof(float));
  ExpectSameBits(expected, rounded, "rounded");
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
    for (const KernelTable* table : AllTables()) {
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
