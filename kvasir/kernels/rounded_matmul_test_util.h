// What tests of matmuls with rounded activations share (RoundsInputs): mxfp8 and fp8.
#ifndef KVASIR_KERNELS_ROUNDED_MATMUL_TEST_UTIL_H_
#define KVASIR_KERNELS_ROUNDED_MATMUL_TEST_UTIL_H_

#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "kvasir/kernels/kernel_test_util.h"
#include "kvasir/tensor/packed_matrix.h"

namespace kvasir::testing {

inline constexpr float kUntouched = 12345.0f;

// What E4M3 says, computed apart from what is tested.
inline float E4m3InFile(uint8_t code) {
  const int exponent = code >> 3 & 15;
  const int mantissa = code & 7;
  if ((code & 0x7F) == 0x7F) return std::nanf("");
  const double magnitude =
      exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
  return static_cast<float>(code < 128 ? magnitude : -magnitude);
}

struct Cut {
  int64_t first_row = 0;
  int64_t rows = 0;
  int64_t panel_begin = 0;
  int64_t panel_end = 0;
};

inline std::vector<float> RunRows(const KernelTable& table, const std::vector<float>& x,
                                  const PackedMatrix& weights, const Cut& cut, const float* bias) {
  const int64_t inputs = weights.inputs();
  std::vector<std::byte> rounded(static_cast<size_t>(cut.rows * KernelTable::RoundedBytes(inputs)));
  table.round_rows(x.data() + cut.first_row * inputs, inputs, cut.rows, inputs, rounded.data());
  MatmulArgs args;
  args.x_rounded = rounded.data();
  args.rows = cut.rows;
  args.fetch_into = cut.rows % 2 == 0 ? CacheLevel::kFirst : CacheLevel::kSecond;
  args.weights = &weights;
  args.panel_begin = cut.panel_begin;
  args.panel_end = cut.panel_end;
  args.bias = bias;
  args.out_stride = weights.outputs() + 3;
  std::vector<float> out(static_cast<size_t>(cut.rows * args.out_stride), kUntouched);
  args.out = out.data();
  table.matmul[static_cast<size_t>(weights.format())](args);
  return out;
}

// Every table: rows alone, and some panels, have the bits that they have among others.
inline void ExpectRowsAndPanelsApart(const PackedMatrix& weights) {
  constexpr int64_t kRows = 9;
  const int64_t inputs = weights.inputs();
  std::vector<float> x = RandomFloats(static_cast<size_t>(kRows * inputs), 4);
  x[5] = kInfinity;  // of row 0
  std::vector<const KernelTable*> tables = AllTables();
  tables.push_back(&Oracle());
  const int64_t stride = weights.outputs() + 3;
  for (const KernelTable* table : tables) {
    const auto all = RunRows(*table, x, weights, {0, kRows, 0, 7}, nullptr);
    for (int64_t row = 0; row < kRows; ++row) {
      const auto alone = RunRows(*table, x, weights, {row, 1, 0, 7}, nullptr);
      ExpectSameBits({all.begin() + row * stride, all.begin() + (row + 1) * stride}, alone,
                     "row " + std::to_string(row));
    }
    const auto part = RunRows(*table, x, weights, {0, kRows, 2, 5}, nullptr);
    for (int64_t i = 0; i < kRows * stride; ++i) {
      const bool is_in = i % stride >= 32 && i % stride < 80;
      const float wanted = is_in ? all[static_cast<size_t>(i)] : kUntouched;
      ASSERT_TRUE(SameBits(part[static_cast<size_t>(i)], wanted)) << i;
    }
  }
}

}  // namespace kvasir::testing

#endif  // KVASIR_KERNELS_ROUNDED_MATMUL_TEST_UTIL_H_
