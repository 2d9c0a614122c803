#include "kvasir/backend/matmul_inputs.h"

#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kvasir/base/stream_copy.h"

namespace kvasir {
namespace {

constexpr int64_t kInputs = 96;
constexpr int64_t kGroups = kInputs / 32;

std::vector<float> Numbers(int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>(static_cast<int>(i * 37 % 101) - 50) / 7;
  }
  return numbers;
}

template <typename T>
void ExpectSame(const T* given, const std::vector<T>& expected) {
  ASSERT_NE(given, nullptr);
  EXPECT_EQ(std::memcmp(given, expected.data(), expected.size() * sizeof(T)), 0);
}

// The caller's own and the helpers' copy, of few rows, which the caller makes alone, and of many.
TEST(MatmulInputsTest, EveryThreadReadsWhatTheKernelsMake) {
  const KernelTable& kernels = KernelsFor(SupportedIsas().back());
  ThreadPool pool(3);
  MatmulInputs inputs(kernels, pool);
  for (const int64_t rows : {1, 2, 200, 1}) {
    const std::vector<float> x = Numbers(rows * kInputs);
    inputs.Make({x.data(), rows, kInputs, kInputs}, {true, true, true});
    for (const int64_t row : {int64_t{0}, rows - 1}) {
      const float* const numbers = x.data() + row * kInputs;
      std::vector<std::byte> rounded(static_cast<size_t>(KernelTable::RoundedBytes(kInputs)));
      std::vector<int8_t> codes(kInputs);
      std::vector<float> scales(kGroups);
      std::vector<int32_t> sums(kGroups);
      kernels.round_rows(numbers, kInputs, 1, kInputs, rounded.data());
      rounded.resize(kInputs * sizeof(uint16_t));  // a table that rounds to pairs writes no more
      kernels.quantize_rows(numbers, kInputs, 1, kInputs, codes.data(), scales.data(), sums.data());
      std::vector<int32_t> half_sums(kGroups);
      for (size_t k = 0; k < kInputs; ++k) {
        if (k % 32 < 16) half_sums[k / 32] += codes[k];
      }
      for (int thread = 0; thread < 3; ++thread) {
        MatmulArgs args;
        inputs.Give(thread, row, &args);
        ExpectSame(args.x_rounded, rounded);
        ExpectSame(args.x_codes, codes);
        ExpectSame(args.x_scales, scales);
        ExpectSame(args.x_sums, sums);
        ExpectSame(args.x_half_sums, half_sums);
      }
    }
  }
}

TEST(MatmulInputsTest, OnlyOfFewRowsHelpersHaveACopy) {
  ThreadPool pool(2);
  MatmulInputs inputs(KernelsFor(SupportedIsas().back()), pool);
  for (const int64_t rows : {1, 200}) {
    const std::vector<float> x = Numbers(rows * kInputs);
    inputs.Make({x.data(), rows, kInputs, kInputs}, {.codes = true});
    MatmulArgs own, helpers;
    inputs.Give(0, 0, &own);
    inputs.Give(1, 0, &helpers);
    EXPECT_EQ(own.x_codes != helpers.x_codes, kCanStreamCopy && rows == 1) << rows;
  }
}

TEST(MatmulInputsTest, GivesOnlyTheFormsThatWereMade) {
  const KernelTable& kernels = KernelsFor(SupportedIsas().back());
  ThreadPool pool(2);
  MatmulInputs inputs(kernels, pool);
  const std::vector<float> x = Numbers(kInputs);
  inputs.Make({x.data(), 1, kInputs, kInputs}, {true, true, true});
  InputForms forms;
  forms.Add(WeightFormat::kQ8);
  inputs.Make({x.data(), 1, kInputs, kInputs}, forms);
  MatmulArgs args;
  inputs.Give(1, 0, &args);
  EXPECT_NE(args.x_codes, nullptr);
  EXPECT_EQ(args.x_rounded, nullptr);
  EXPECT_EQ(args.x_half_sums, nullptr);
}

}  // namespace
}  // namespace kvasir
