// Matmul with fp8 weights: every table has the oracle's bits whatever the cut in rows and panels;
// the oracle's are those of bf16_dot by 128 inputs, times their scales.
#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "kvasir/kernels/rounded_matmul_test_util.h"

namespace kvasir {
namespace {

using testing::AllTables;
using testing::AwkwardFloats;
using testing::Cut;
using testing::E4m3InFile;
using testing::ExpectSameBits;
using testing::kInfinity;
using testing::kUntouched;
using testing::Oracle;
using testing::RandomFloats;
using testing::RunRows;

struct Weights {
  PackedMatrix coded;
  PackedMatrix codes_alone;   // bf16_dot
  std::vector<float> scales;  // [outputs][units]

  int64_t units() const { return (coded.inputs() + kFp8Inputs - 1) / kFp8Inputs; }
};

enum class Numbers { kUsual, kAny, kWithNan };

Weights RandomWeights(int64_t outputs, int64_t inputs, Numbers numbers, uint32_t seed) {
  std::mt19937 random(seed);
  Weights weights = {*PackedMatrix::Allocate(outputs, inputs, WeightFormat::kFp8),
                     *PackedMatrix::Allocate(outputs, inputs, WeightFormat::kBf16Dot),
                     {}};
  std::vector<float> values(static_cast<size_t>(inputs));
  for (int64_t n = 0; n < outputs; ++n) {
    CodedRow row;
    for (int64_t unit = 0; unit < weights.units(); ++unit) {
      float scale = static_cast<float>(1 + random() % 4096) / 4194304;
      if (numbers != Numbers::kUsual && random() % 3 == 0) {
        const float any[] = {0.0f, -scale, 1e-42f, 3e38f, kInfinity};
        scale = any[random() % 5];
      }
      row.wide_scales.push_back(scale);
      weights.scales.push_back(scale);
    }
    for (size_t k = 0; k < values.size(); ++k) {
      auto code = static_cast<uint8_t>(random());
      const bool is_nan = numbers == Numbers::kWithNan && random() % 1000 == 0;
      if ((code & 0x7F) == 0x7F || is_nan) code = is_nan ? code | 0x7F : code & 0x87;
      row.codes.push_back(code);
      values[k] = is_nan ? 0.0f : E4m3InFile(code);
      if (is_nan) {
        const size_t first = weights.scales.size() - static_cast<size_t>(weights.units());
        weights.scales[first + k / kFp8Inputs] = std::nanf("");
      }
    }
    weights.coded.SetCodedRow(n, row);
    weights.codes_alone.SetRow(n, values.data());
  }
  return weights;
}

// bf16_dot with all inputs 0 but those of a unit, for each unit.
std::vector<float> SumsOfUnits(const Weights& weights, const std::vector<float>& x, int64_t rows,
                               const float* bias) {
  const int64_t inputs = weights.coded.inputs();
  const int64_t outputs = weights.coded.outputs();
  const int64_t stride = outputs + 3;
  std::vector<float> out(static_cast<size_t>(rows * stride), kUntouched);
  for (int64_t row = 0; row < rows; ++row) std::fill_n(out.begin() + row * stride, outputs, 0.0f);
  for (int64_t unit = 0; unit < weights.units(); ++unit) {
    std::vector<float> part(x.size(), 0.0f);
    const int64_t begin = unit * kFp8Inputs;
    const int64_t count = std::min<int64_t>(kFp8Inputs, inputs - begin);
    for (int64_t row = 0; row < rows; ++row) {
      std::copy_n(x.begin() + row * inputs + begin, count, part.begin() + row * inputs + begin);
    }
    const auto sums =
        RunRows(Oracle(), part, weights.codes_alone, {0, rows, 0, weights.coded.panels()}, nullptr);
    for (int64_t i = 0; i < rows * stride; ++i) {
      if (i % stride >= outputs) continue;
      const auto at = static_cast<size_t>(i);
      const float scale = weights.scales[static_cast<size_t>(i % stride * weights.units() + unit)];
      out[at] = std::fma(sums[at], scale, out[at]);
    }
  }
  if (bias == nullptr) return out;
  for (int64_t i = 0; i < rows * stride; ++i) {
    if (i % stride < outputs) out[static_cast<size_t>(i)] += bias[i % stride];
  }
  return out;
}

class Fp8MatmulTest : public ::testing::TestWithParam<Numbers> {};

TEST_P(Fp8MatmulTest, EveryTableHasTheBitsOfScaledUnits) {
  uint32_t seed = 1;
  // Also less than a unit, one that is not full, and several blocks.
  for (int64_t inputs : {32, 96, 128, 256, 352, 1280, 4352}) {
    for (int64_t outputs : {1, 16, 17, 48, 65, 130}) {
      if (inputs > 1280 && outputs > 65) continue;  // the oracle takes its time
      const Weights weights = RandomWeights(outputs, inputs, GetParam(), ++seed);
      const std::vector<float> bias = RandomFloats(static_cast<size_t>(outputs), ++seed);
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 26}) {
        const auto count = static_cast<size_t>(rows * inputs);
        const auto x = rows % 3 == 0 ? AwkwardFloats(count, ++seed) : RandomFloats(count, ++seed);
        const float* const added = rows % 2 == 0 ? bias.data() : nullptr;
        const Cut all = {0, rows, 0, weights.coded.panels()};
        const auto wanted = RunRows(Oracle(), x, weights.coded, all, added);
        // The other way round takes as many matmuls as there are units.
        if (inputs <= 352 && rows % 3 != 0) {
          ExpectSameBits(SumsOfUnits(weights, x, rows, added), wanted, "oracle");
        }
        for (const KernelTable* table : AllTables()) {
          ExpectSameBits(wanted, RunRows(*table, x, weights.coded, all, added),
                         std::string(IsaName(table->isa)) + " rows " + std::to_string(rows) +
                             " outputs " + std::to_string(outputs) + " inputs " +
                             std::to_string(inputs));
          if (HasFatalFailure()) return;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, Fp8MatmulTest,
                         ::testing::Values(Numbers::kUsual, Numbers::kAny, Numbers::kWithNan),
                         [](const auto& info) {
                           return info.param == Numbers::kUsual ? "usual"
                                  : info.param == Numbers::kAny ? "any"
                                                                : "with_nan";
                         });

// Every code in every lane: through a matmul with one input that is 1 at a time, and GetRow.
TEST(Fp8Matmul, EveryCodeIsItsValueTimesTheScale) {
  constexpr int64_t kOutputs = 17;
  constexpr int64_t kInputs = 256;
  PackedMatrix weights = *PackedMatrix::Allocate(kOutputs, kInputs, WeightFormat::kFp8);
  std::vector<float> wanted(static_cast<size_t>(kInputs * (kOutputs + 3)), kUntouched);
  for (int64_t n = 0; n < kOutputs; ++n) {
    CodedRow row;
    row.wide_scales = {0.0123f * static_cast<float>(n + 1), 3.0f};
    std::vector<float> values;
    for (int code = 0; code < kInputs; ++code) {
      // Without the two that are NaN.
      row.codes.push_back(static_cast<uint8_t>((code & 0x7F) == 0x7F ? code - 1 : code));
      const float scale = row.wide_scales[static_cast<size_t>(code / kFp8Inputs)];
      values.push_back(E4m3InFile(row.codes.back()) * scale);
      // -0 is no sum.
      wanted[static_cast<size_t>(code * (kOutputs + 3) + n)] = values.back() + 0.0f;
    }
    weights.SetCodedRow(n, row);
    std::vector<float> kept(kInputs);
    weights.GetRow(n, kept.data());
    ExpectSameBits(values, kept, "output " + std::to_string(n));
  }
  std::vector<float> x(kInputs * kInputs, 0.0f);
  for (int64_t k = 0; k < kInputs; ++k) x[static_cast<size_t>(k * kInputs + k)] = 1.0f;
  std::vector<const KernelTable*> tables = AllTables();
  tables.push_back(&Oracle());
  for (const KernelTable* table : tables) {
    const std::string name(IsaName(table->isa));
    ExpectSameBits(wanted, RunRows(*table, x, weights, {0, kInputs, 0, 2}, nullptr), name);
    // As few rows, whose weights are made elsewhere.
    for (int64_t row = 0; row < kInputs; row += 3) {
      const int64_t rows = std::min<int64_t>(3, kInputs - row);
      const auto some = RunRows(*table, x, weights, {row, rows, 0, 2}, nullptr);
      const auto first = wanted.begin() + row * (kOutputs + 3);
      ExpectSameBits({first, first + rows * (kOutputs + 3)}, some, name);
    }
  }
}

TEST(Fp8Matmul, ARowAndAPanelDependOnNothingElse) {
  testing::ExpectRowsAndPanelsApart(RandomWeights(100, 2048, Numbers::kUsual, 3).coded);
}

}  // namespace
}  // namespace kvasir
