// Matmul with mxfp8 weights: every table has the bits of bf16_dot with the same weights, whatever
// codes and scales are, whatever the cut in rows and panels.
#include <algorithm>
#include <cmath>
#include <random>

#include "gtest/gtest.h"
#include "kvasir/kernels/rounded_matmul_test_util.h"
#include "kvasir/tensor/dtype.h"
#include "kvasir/tensor/mxfp8.h"

namespace kvasir {
namespace {

using testing::AllTables;
using testing::AwkwardFloats;
using testing::Cut;
using testing::E4m3InFile;
using testing::ExpectSameBits;
using testing::kInfinity;
using testing::Oracle;
using testing::RandomFloats;
using testing::RunRows;

// What the codes of a file are, computed apart from what is tested.
float ValueInFile(uint8_t code, uint8_t scale) {
  return static_cast<float>(std::ldexp(double{E4m3InFile(code)}, scale - 127));
}

// A matrix in two forms: kept as coded, and widened to bf16 as files of other formats are.
struct Weights {
  PackedMatrix coded;
  PackedMatrix widened;
};

enum class Numbers { kUsual, kAny, kWithNan };

Weights RandomWeights(int64_t outputs, int64_t inputs, Numbers numbers, uint32_t seed) {
  std::mt19937 random(seed);
  Weights weights = {*PackedMatrix::Allocate(outputs, inputs, WeightFormat::kMxfp8),
                     *PackedMatrix::Allocate(outputs, inputs, WeightFormat::kBf16Dot)};
  std::vector<float> values(static_cast<size_t>(inputs));
  for (int64_t n = 0; n < outputs; ++n) {
    CodedRow row;
    for (int64_t g = 0; g < inputs / kQuantGroup; ++g) {
      const uint32_t scale = numbers == Numbers::kUsual ? 114 + random() % 4
                             : random() % 3 == 0        ? random() % (mxfp8::kMostScale + 1)
                                                        : 60 + random() % 70;
      row.sub_scales.push_back(static_cast<uint8_t>(scale));
      const bool has_nan = numbers == Numbers::kWithNan && random() % 40 == 0;
      for (int k = 0; k < kQuantGroup; ++k) {
        auto code = static_cast<uint8_t>(random());
        if ((code & 0x7F) == 0x7F && !(has_nan && k == 5)) code &= 0x87;
        if (has_nan && k == 7) code = 0xFF;
        row.codes.push_back(code);
        values[static_cast<size_t>(g * kQuantGroup + k)] =
            ValueInFile(code, static_cast<uint8_t>(scale));
      }
    }
    weights.coded.SetCodedRow(n, row);
    weights.widened.SetRow(n, values.data());
  }
  return weights;
}

class Mxfp8MatmulTest : public ::testing::TestWithParam<Numbers> {};

TEST_P(Mxfp8MatmulTest, EveryTableHasTheBitsOfWidenedWeights) {
  uint32_t seed = 1;
  // The last are several blocks, which one panel fills with 4,096.
  for (int64_t inputs : {32, 64, 96, 256, 352, 1280, 4352}) {
    for (int64_t outputs : {1, 16, 17, 48, 65, 130}) {
      if (inputs > 4096 && outputs > 65) continue;  // the oracle takes its time
      const Weights weights = RandomWeights(outputs, inputs, GetParam(), ++seed);
      const std::vector<float> bias = RandomFloats(static_cast<size_t>(outputs), ++seed);
      for (int64_t rows : {1, 2, 3, 4, 5, 6, 7, 13, 26}) {
        const auto count = static_cast<size_t>(rows * inputs);
        const auto x = rows % 3 == 0 ? AwkwardFloats(count, ++seed) : RandomFloats(count, ++seed);
        const float* const added = rows % 2 == 0 ? bias.data() : nullptr;
        const Cut all = {0, rows, 0, weights.coded.panels()};
        const auto wanted = RunRows(Oracle(), x, weights.widened, all, added);
        ExpectSameBits(wanted, RunRows(Oracle(), x, weights.coded, all, added), "oracle");
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

INSTANTIATE_TEST_SUITE_P(All, Mxfp8MatmulTest,
                         ::testing::Values(Numbers::kUsual, Numbers::kAny, Numbers::kWithNan),
                         [](const auto& info) {
                           return info.param == Numbers::kUsual ? "usual"
                                  : info.param == Numbers::kAny ? "any"
                                                                : "with_nan";
                         });

// Every code with every scale: through a matmul with one input that is 1 at a time, and GetRow.
TEST(Mxfp8Matmul, EveryCodeWithEveryScale) {
  constexpr int64_t kOutputs = mxfp8::kMostScale + 1;
  constexpr int64_t kInputs = 256;
  Weights weights = {*PackedMatrix::Allocate(kOutputs, kInputs, WeightFormat::kMxfp8),
                     *PackedMatrix::Allocate(kOutputs, kInputs, WeightFormat::kBf16Dot)};
  std::vector<float> values(kInputs);
  for (int64_t scale = 0; scale < kOutputs; ++scale) {
    CodedRow row;
    row.sub_scales.assign(kInputs / kQuantGroup, static_cast<uint8_t>(scale));
    for (int code = 0; code < kInputs; ++code) {
      // Without the two that are NaN, which take their neighbours along.
      row.codes.push_back(static_cast<uint8_t>((code & 0x7F) == 0x7F ? code - 1 : code));
      values[static_cast<size_t>(code)] =
          ValueInFile(row.codes.back(), static_cast<uint8_t>(scale));
    }
    weights.coded.SetCodedRow(scale, row);
    weights.widened.SetRow(scale, values.data());
    std::vector<float> kept(kInputs);
    weights.widened.GetRow(scale, values.data());
    weights.coded.GetRow(scale, kept.data());
    ExpectSameBits(values, kept, "scale " + std::to_string(scale));
  }
  std::vector<float> x(kInputs * kInputs, 0.0f);
  for (int64_t k = 0; k < kInputs; ++k) x[static_cast<size_t>(k * kInputs + k)] = 1.0f;
  const auto wanted = RunRows(Oracle(), x, weights.widened, {0, kInputs, 0, 9}, nullptr);
  std::vector<const KernelTable*> tables = AllTables();
  tables.push_back(&Oracle());
  for (const KernelTable* table : tables) {
    const std::string name(IsaName(table->isa));
    ExpectSameBits(wanted, RunRows(*table, x, weights.coded, {0, kInputs, 0, 9}, nullptr), name);
    // As few rows, whose weights are made elsewhere.
    for (int64_t row = 0; row < kInputs; row += 3) {
      const int64_t rows = std::min<int64_t>(3, kInputs - row);
      const auto some = RunRows(*table, x, weights.coded, {row, rows, 0, 9}, nullptr);
      const auto first = wanted.begin() + row * (kOutputs + 3);
      ExpectSameBits({first, first + rows * (kOutputs + 3)}, some, name);
    }
  }
}

// A NaN among the codes of a group makes the group NaN, and nothing else.
TEST(Mxfp8Matmul, NanTakesItsGroup) {
  constexpr int64_t kInputs = 96;
  PackedMatrix weights = *PackedMatrix::Allocate(18, kInputs, WeightFormat::kMxfp8);
  CodedRow row = {.codes = std::vector<uint8_t>(kInputs, 0x38), .sub_scales = {127, 0, 127}};
  for (int64_t n = 0; n < 18; ++n) {
    row.codes[40] = n == 3 ? 0x7F : n == 17 ? 0xFF : 0x38;
    weights.SetCodedRow(n, row);
  }
  std::vector<float> values(kInputs);
  weights.GetRow(3, values.data());
  for (size_t k = 0; k < kInputs; ++k) EXPECT_EQ(std::isnan(values[k]), k / 32 == 1) << k;
  for (int64_t rows : {1, 5, 9}) {
    const std::vector<float> x(static_cast<size_t>(rows * kInputs), 0.0f);
    for (const KernelTable* table : AllTables()) {
      const auto out = RunRows(*table, x, weights, {0, rows, 0, 2}, nullptr);
      for (int64_t i = 0; i < rows * 21; ++i) {
        const bool is_nan = std::isnan(out[static_cast<size_t>(i)]);
        EXPECT_EQ(is_nan, i % 21 == 3 || i % 21 == 17) << i;
      }
    }
  }
}

TEST(Mxfp8Matmul, ARowAndAPanelDependOnNothingElse) {
  testing::ExpectRowsAndPanelsApart(RandomWeights(100, 2048, Numbers::kUsual, 3).coded);
}

}  // namespace
}  // namespace kvasir
