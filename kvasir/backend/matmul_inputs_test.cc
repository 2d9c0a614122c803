#include "kvasir/backend/matmul_inputs.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kvasir/base/stream_copy.h"

namespace kvasir {
namespace {

constexpr int64_t kInputs = 96;  // rows of which are no whole cache lines

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

void ExpectWhatTheKernelsMake(MatmulInputs* inputs, int64_t rows, int64_t cols, bool is_rounded) {
  const KernelTable& kernels = KernelsFor(SupportedIsas().back());
  const std::vector<float> x = Numbers(rows * cols);
  inputs->Make({x.data(), rows, cols, cols}, {is_rounded, true, true});
  const auto groups = static_cast<size_t>(cols / 32);
  for (int64_t row = 0; row < rows; row += std::max<int64_t>(rows / 5, 1)) {
    const float* const numbers = x.data() + row * cols;
    std::vector<std::byte> rounded(static_cast<size_t>(KernelTable::RoundedBytes(cols)));
    std::vector<int8_t> codes(static_cast<size_t>(cols));
    std::vector<float> scales(groups);
    std::vector<int32_t> sums(groups);
    kernels.round_rows(numbers, cols, 1, cols, rounded.data());
    rounded.resize(codes.size() * sizeof(uint16_t));  // a table that rounds to pairs writes no more
    kernels.quantize_rows(numbers, cols, 1, cols, codes.data(), scales.data(), sums.data());
    std::vector<int32_t> half_sums(groups);
    for (size_t k = 0; k < codes.size(); ++k) {
      if (k % 32 < 16) half_sums[k / 32] += codes[k];
    }
    for (int thread = 0; thread < 3; ++thread) {
      SCOPED_TRACE(testing::Message() << "row " << row << " of " << rows << ", thread " << thread);
      MatmulArgs args;
      inputs->Give(thread, row, &args);
      if (is_rounded) ExpectSame(args.x_rounded, rounded);
      ExpectSame(args.x_codes, codes);
      ExpectSame(args.x_scales, scales);
      ExpectSame(args.x_sums, sums);
      ExpectSame(args.x_half_sums, half_sums);
    }
  }
}

// Of few rows, which the caller makes alone, of more, whose codes all stream, and of many.
TEST(MatmulInputsTest, EveryThreadReadsWhatTheKernelsMake) {
  ThreadPool pool(3);
  MatmulInputs inputs(KernelsFor(SupportedIsas().back()), pool);
  for (const int64_t cols : {int64_t{96}, int64_t{512}, int64_t{1536}}) {
    for (const int64_t rows : {1, 2, 13, 40, 200, 40, 1}) {
      ExpectWhatTheKernelsMake(&inputs, rows, cols, true);
      ExpectWhatTheKernelsMake(&inputs, rows, cols, false);
    }
  }
}

TEST(MatmulInputsTest, RowsThatAllThreadsMakeAreStreamedIfTheyAreWholeLines) {
  ThreadPool pool(2);
  MatmulInputs inputs(KernelsFor(SupportedIsas().back()), pool);
  const auto codes_of = [&](int64_t rows, int64_t cols) {
    const std::vector<float> x = Numbers(rows * cols);
    inputs.Make({x.data(), rows, cols, cols}, {.codes = true});
    MatmulArgs callers, helpers;
    inputs.Give(0, 0, &callers);
    inputs.Give(1, 0, &helpers);
    EXPECT_EQ(callers.x_codes, helpers.x_codes) << rows;
    return callers.x_codes;
  };
  const int8_t* const not_streamed = codes_of(500, 512);  // memory of many rows, which others fit
  EXPECT_EQ(codes_of(500, 512), not_streamed);
  EXPECT_EQ(codes_of(12, 480), not_streamed);
  EXPECT_EQ(codes_of(12, 512) != not_streamed, kCanStreamCopy);
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
