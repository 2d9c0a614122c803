#include "kvasir/tensor/packed_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kvasir/base/rng.h"

namespace kvasir {
namespace {

std::vector<float> RandomWeights(int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = static_cast<float>(UniformDouble(3, i) * 2 - 1);
  }
  return values;
}

TensorView View(const std::vector<float>& values, int64_t outputs, int64_t inputs) {
  return {DType::kF32, {outputs, inputs}, reinterpret_cast<const std::byte*>(values.data())};
}

bool IsBf16(WeightFormat format) {
  return format == WeightFormat::kBf16 || format == WeightFormat::kBf16Dot;
}

class PackedMatrixTest : public testing::TestWithParam<WeightFormat> {};

TEST_P(PackedMatrixTest, RowsComeBackWithinTheFormatsPrecision) {
  // Half a step of each format relative to the group's largest weight (below 1), plus the f16
  // rounding of the scale (2^-11). Of 4 bits a step: the scale that fits all best may cut the
  // largest off, and where that is -8 there is no code 8.
  const float tolerance = GetParam() == WeightFormat::kF32   ? 0.0f
                          : GetParam() == WeightFormat::kF16 ? 0x1.0p-12f
                          : IsBf16(GetParam())               ? 0x1.0p-9f
                          : GetParam() == WeightFormat::kQ8  ? 0.5f / 127 + 0x1.0p-11f
                                                             : 1.0f / 7;
  for (const auto& [outputs, inputs] : {std::pair{1, 32}, {16, 64}, {17, 96}, {40, 320}}) {
    const auto weights = RandomWeights(outputs * inputs);
    const auto matrix = PackedMatrix::Pack(View(weights, outputs, inputs), GetParam());
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    std::vector<float> row(static_cast<size_t>(inputs));
    for (int64_t output = 0; output < outputs; ++output) {
      matrix->GetRow(output, row.data());
      for (int64_t k = 0; k < inputs; ++k) {
        ASSERT_NEAR(row[k], weights[output * inputs + k], tolerance) << output << " " << k;
      }
    }
  }
}

TEST_P(PackedMatrixTest, ReencodingDecodedRowsChangesNothing) {
  const auto weights = RandomWeights(20 * 64);
  auto matrix = *PackedMatrix::Pack(View(weights, 20, 64), GetParam());
  std::vector<float> row(64), again(64);
  for (int64_t output = 0; output < 20; ++output) {
    matrix.GetRow(output, row.data());
    matrix.SetRow(output, row.data());
    matrix.GetRow(output, again.data());
    ASSERT_EQ(row, again);
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, PackedMatrixTest,
                         testing::Values(WeightFormat::kF32, WeightFormat::kF16,
                                         WeightFormat::kBf16, WeightFormat::kBf16Dot,
                                         WeightFormat::kQ8, WeightFormat::kQ4),
                         [](const auto& info) {
                           return std::string(WeightFormatName(info.param));
                         });

TEST(PackedMatrixTest, OddInputsCannotBeQuantized) {
  const auto weights = RandomWeights(33);
  const auto matrix = PackedMatrix::Pack(View(weights, 1, 33), WeightFormat::kQ8);
  ASSERT_FALSE(matrix.ok());
  EXPECT_EQ(matrix.error().message, "q8 needs a multiple of 32 inputs, not 33");
}

// A panel of raw rows is what its rows one by one are; weights that no sum of bf16_dot takes are 0.
TEST(PackedMatrixTest, RawPanelsAreTheirRows) {
  constexpr int64_t kOutputs = 19;
  constexpr int64_t kInputs = 1030;  // more than one chunk, no multiple of 16
  std::vector<uint16_t> raw(kOutputs * kInputs);
  for (size_t i = 0; i < raw.size(); ++i)
    raw[i] = static_cast<uint16_t>(UniformDouble(4, i) * 65536);
  const TensorView view = {
      DType::kBf16, {kOutputs, kInputs}, reinterpret_cast<const std::byte*>(raw.data())};
  for (const WeightFormat format : {WeightFormat::kBf16, WeightFormat::kBf16Dot}) {
    const auto rows = *PackedMatrix::Pack(view, format);
    auto panels = *PackedMatrix::Allocate(kOutputs, kInputs, format);
    for (int64_t p = 0; p < panels.panels(); ++p) {
      panels.SetPanel(p, view.data + p * kPanelOutputs * kInputs * 2, kInputs * 2);
    }
    std::vector<float> row(kInputs), again(kInputs);
    for (int64_t output = 0; output < kOutputs; ++output) {
      rows.GetRow(output, row.data());
      panels.GetRow(output, again.data());
      for (int64_t k = 0; k < kInputs; ++k) {
        const float stored = Bf16ToFloat(raw[static_cast<size_t>(output * kInputs + k)]);
        if (std::isnan(stored)) continue;  // unpacked rows are floats, which quiet it
        const bool is_small = std::fabs(stored) < 0x1p-60f && format == WeightFormat::kBf16Dot;
        ASSERT_EQ(row[k], is_small ? 0.0f : stored) << output << " " << k;
        ASSERT_EQ(again[k], row[k]) << output << " " << k;
      }
    }
  }
}

// Buffers of an arena are zero, apart, and stay when it and their neighbours go.
TEST(AlignedArenaTest, BuffersAreTheirOwn) {
  std::vector<AlignedBuffer> buffers;
  size_t sizes = 0;
  {
    AlignedArena arena;
    for (const size_t bytes :
         {size_t{1}, size_t{5000}, size_t{15} << 20, size_t{0}, size_t{16} << 20, size_t{14} << 20,
          size_t{15} << 20, size_t{15} << 20, (size_t{16} << 20) + 1, size_t{64}}) {
      auto buffer = arena.Allocate(bytes);
      ASSERT_TRUE(buffer.ok()) << buffer.error().message;
      ASSERT_GE(buffer->size_bytes(), bytes);
      if (bytes == 0) continue;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
      for (const size_t at : {size_t{0}, bytes / 2, bytes - 1}) {
        EXPECT_EQ(buffer->data()[at], std::byte{0});
      }
      buffer->data()[0] = buffer->data()[bytes - 1] = std::byte(buffers.size() + 1);
      sizes += bytes;
      buffers.push_back(*std::move(buffer));
    }
  }
  EXPECT_GT(sizes, size_t{64} << 20);  // more than a slab
  for (size_t i = 0; i < buffers.size(); i += 2) buffers[i] = AlignedBuffer();
  for (size_t i = 1; i < buffers.size(); i += 2) {
    EXPECT_EQ(buffers[i].data()[0], std::byte(i + 1));
  }
}

// Every line of a panel is scales of one unit or codes of one group.
TEST(PackedMatrixTest, GroupsOfAPanelFollowEachOther) {
  using enum WeightFormat;
  struct Case {
    WeightFormat format;
    int group_inputs;
    size_t groups;  // of a unit
  };
  constexpr Case kCases[] = {{kQ8, 32, 2},       {kQ4, 32, 2},       {kMxfp4, 32, 4},
                             {kMxfp8, 32, 4},    {kFp8, 32, 4},      {kNvfp4, 32, 2},
                             {kQ4Affine, 32, 1}, {kQ4Affine, 64, 2}, {kQ8Affine, 128, 4},
                             {kQ8Affine, 64, 2}};
  for (const Case& c : kCases) {
    const GroupUnits units = UnitsOf(c.format, {c.group_inputs, DType::kF16, false});
    EXPECT_EQ(units.groups, c.groups);
    EXPECT_EQ(units.PanelBytes(0), 0u);
    for (size_t groups = 1; groups < 10; ++groups) {
      const size_t bytes = units.PanelBytes(groups);
      std::vector<int> owners(bytes, 0);
      for (size_t g = 0; g < groups; ++g) {
        // Shared scales belong to the first group.
        const size_t shared = g % c.groups == 0 ? GroupUnits::kLineBytes : 0;
        const size_t scale_bytes = units.scale_bytes == 0 ? shared : units.scale_bytes;
        for (size_t i = 0; i < scale_bytes; ++i) ++owners[units.ScalesOf(g) + i];
        for (size_t i = 0; i < units.code_bytes; ++i) ++owners[units.CodesOf(g) + i];
        EXPECT_EQ(units.CodesOf(g) % kPanelAlignment, 0u);
      }
      const size_t missing = (c.groups - groups % c.groups) % c.groups;  // groups of the last unit
      const auto unused = std::count(owners.begin(), owners.end(), 0);
      EXPECT_EQ(static_cast<size_t>(unused), missing * units.scale_bytes);
      EXPECT_EQ(std::count(owners.begin(), owners.end(), 1) + unused, static_cast<int>(bytes));
    }
  }
}

TEST(PackedMatrixTest, AllZeroGroupsStayZero) {
  const std::vector<float> weights(64, 0.0f);
  const auto matrix = *PackedMatrix::Pack(View(weights, 1, 64), WeightFormat::kQ4);
  std::vector<float> row(64, 1.0f);
  matrix.GetRow(0, row.data());
  EXPECT_EQ(row, weights);
}

}  // namespace
}  // namespace kvasir
