// What the encoder writes, the reader of MLX's weights decodes: close to what went in, and a second
// time to the very same codes.
#include "kvasir/convert/weight_encoder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>

#include "kvasir/formats/mlx_weights.h"

namespace kvasir {
namespace {

constexpr int64_t kInputs = 256;

std::vector<float> RandomRow(uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 0.02f);
  std::vector<float> row(kInputs);
  for (float& value : row) value = normal(random);
  return row;
}

struct Encoded {
  std::vector<std::byte> weight;
  std::vector<std::byte> scales;
  std::vector<std::byte> biases;
};

Encoded Encode(const WeightEncoding& encoding, const std::vector<float>& row) {
  const WeightEncoder encoder(encoding, kInputs);
  Encoded out = {std::vector<std::byte>(encoder.weight_bytes()),
                 std::vector<std::byte>(encoder.scale_bytes()),
                 std::vector<std::byte>(encoder.bias_bytes())};
  encoder.Encode(row.data(), out.weight.data(), out.scales.data(), out.biases.data());
  return out;
}

std::vector<float> Decode(const WeightEncoding& encoding, const Encoded& encoded) {
  const MlxFormat& format = encoding.format;
  const bool is_affine = format.mode == MlxMode::kAffine;
  const std::vector<int64_t> groups = {1, kInputs / format.group_size};
  const TensorView weight = {DType::kU32, {1, kInputs / 32 * format.bits}, encoded.weight.data()};
  const TensorView scales = {is_affine ? encoding.dtype : DType::kU8, groups,
                             encoded.scales.data()};
  const TensorView biases = {encoding.dtype, groups, encoded.biases.data()};
  const auto rows =
      MlxWeights({&weight, &scales, is_affine ? &biases : nullptr}, format, 1, kInputs);
  EXPECT_TRUE(rows.ok());
  std::vector<float> out(kInputs);
  rows->read_row(0, out.data());
  return out;
}

class WeightEncoderTest : public testing::TestWithParam<const char*> {};

TEST_P(WeightEncoderTest, DecodedWeightsAreNear) {
  const MlxFormat format = *MlxFormatFromName(GetParam());
  const WeightEncoding encoding = {DType::kF16, true, format};
  const std::vector<float> row = RandomRow(3);
  const std::vector<float> decoded = Decode(encoding, Encode(encoding, row));
  for (int64_t begin = 0; begin < kInputs; begin += format.group_size) {
    float low = row[begin];
    float high = row[begin];
    for (int64_t i = begin; i < begin + format.group_size; ++i) {
      low = std::min(low, row[i]);
      high = std::max(high, row[i]);
    }
    const float largest = std::max(std::fabs(low), std::fabs(high));
    for (int64_t i = begin; i < begin + format.group_size; ++i) {
      // Affine: half a step, and its end moves by up to one when zero is put on a code; f16 scales
      // and values. E2M1 leaves gaps of a third, E4M3 of an eighth, of the value, and E2M1's
      // largest may lie above the last code by a third; nvfp4's scale may cut a quarter of it
      // off, or leave a fifth where it lies between elements 4 and 6, and is off by 2^-10 where it
      // is denormal, six of which the largest is.
      const float step = (high - low) / static_cast<float>((1 << format.bits) - 1);
      const float tolerance = format.mode == MlxMode::kAffine  ? 1.5f * step + largest * 0x1.0p-9f
                              : format.mode == MlxMode::kMxfp4 ? largest / 3.5f
                              : format.mode == MlxMode::kNvfp4 ? largest / 4 + 6 * 0x1p-10f
                                                               : largest / 15.9f;
      ASSERT_NEAR(decoded[i], row[i], tolerance) << "element " << i;
    }
  }
}

// The values of a microscaled group are on its grid already, so encoding them again loses nothing.
TEST(WeightEncoder, MicroscaledValuesAreEncodedToThemselves) {
  for (const char* name : {"mxfp4", "mxfp8", "nvfp4"}) {
    const WeightEncoding encoding = {DType::kBf16, true, *MlxFormatFromName(name)};
    const std::vector<float> once = Decode(encoding, Encode(encoding, RandomRow(5)));
    EXPECT_EQ(Decode(encoding, Encode(encoding, once)), once) << name;
  }
}

// Of a group's values with elements of four bits under `scale`.
double SquaredErrorE2m1(std::span<const float> values, float scale) {
  double sum = 0;
  for (const float value : values) {
    double least = std::fabs(value);
    for (const float element : {0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f}) {
      least = std::min(least, std::fabs(double{element * scale} - double{std::fabs(value)}));
    }
    sum += least * least;
  }
  return sum;
}

double SquaredError(std::span<const float> values, std::span<const float> decoded) {
  double sum = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += std::pow(double{decoded[i]} - double{values[i]}, 2);
  }
  return sum;
}

TEST(WeightEncoder, NoOtherScaleOfMxfp4IsNearer) {
  const WeightEncoding encoding = {DType::kBf16, true, *MlxFormatFromName("mxfp4")};
  for (int seed = 10; seed < 30; ++seed) {
    const std::vector<float> row = RandomRow(static_cast<uint64_t>(seed));
    const Encoded encoded = Encode(encoding, row);
    const std::vector<float> decoded = Decode(encoding, encoded);
    for (size_t group = 0; group < row.size() / 32; ++group) {
      const auto values = std::span(row).subspan(32 * group, 32);
      const double own = SquaredError(values, std::span(decoded).subspan(32 * group, 32));
      for (const int other : {-2, -1, 1, 2}) {
        const float scale = std::ldexp(1.0f, static_cast<int>(encoded.scales[group]) - 127 + other);
        EXPECT_GE(SquaredErrorE2m1(values, scale), own)
            << "group " << group << ", times 2^" << other;
      }
    }
  }
}

// Scales of 0.02 / 2 and of less are the smallest there are, denormal.
TEST(WeightEncoder, ScalesOfNvfp4AreNearTheBest) {
  const WeightEncoding encoding = {DType::kBf16, true, *MlxFormatFromName("nvfp4")};
  for (const float size : {0.02f, 0.2f, 1.0f, 50.0f, 4000.0f}) {
    double own = 0;
    double best = 0;
    for (int seed = 10; seed < 30; ++seed) {
      std::vector<float> row = RandomRow(static_cast<uint64_t>(seed));
      for (float& value : row) value *= 50 * size;
      const std::vector<float> decoded = Decode(encoding, Encode(encoding, row));
      for (size_t group = 0; group < row.size() / 16; ++group) {
        const auto values = std::span(row).subspan(16 * group, 16);
        own += SquaredError(values, std::span(decoded).subspan(16 * group, 16));
        double least = INFINITY;
        for (int code = 0; code < 127; ++code) {
          const int exponent = code >> 3;
          const auto mantissa = static_cast<float>(code & 7);
          const float scale =
              exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0f + mantissa, exponent - 10);
          least = std::min(least, SquaredErrorE2m1(values, scale));
        }
        best += least;
      }
    }
    EXPECT_LE(own, 1.02 * best) << "weights of " << size;
  }
}

// Numbers that the scale nearest to a sixth of them would make zeros.
TEST(WeightEncoder, SmallGroupsOfNvfp4Stay) {
  const WeightEncoding encoding = {DType::kBf16, true, *MlxFormatFromName("nvfp4")};
  std::vector<float> row(kInputs, 0.0f);
  for (size_t i = 0; i < row.size(); ++i) row[i] = i % 2 == 0 ? 0.002f : -0.001f;
  const std::vector<float> decoded = Decode(encoding, Encode(encoding, row));
  for (size_t i = 0; i < row.size(); ++i) ASSERT_NEAR(decoded[i], row[i], 0.00005f);
}

TEST(WeightEncoder, OddGroups) {
  std::vector<float> row(kInputs, 0.0f);
  row[40] = std::nanf("");
  row[70] = INFINITY;
  row[100] = 1e-42f;
  for (const char* name : {"int4", "int8", "mxfp4", "mxfp8", "nvfp4"}) {
    const WeightEncoding encoding = {DType::kF16, true, *MlxFormatFromName(name)};
    const std::vector<float> decoded = Decode(encoding, Encode(encoding, row));
    for (int64_t i = 128; i < kInputs; ++i) ASSERT_EQ(decoded[i], 0.0f) << name;
  }
}

TEST(WeightEncoder, DenseRowsAreRounded) {
  const std::vector<float> row = RandomRow(9);
  const Encoded encoded = Encode({DType::kBf16, false, {}}, row);
  ASSERT_EQ(encoded.weight.size(), size_t{2 * kInputs});
  for (size_t i = 0; i < row.size(); ++i) {
    uint16_t bits;
    std::memcpy(&bits, encoded.weight.data() + 2 * i, sizeof(bits));
    ASSERT_EQ(bits, FloatToBf16(row[i]));
  }
}

TEST(WeightEncoder, UnknownNamesListWhatExists) {
  const auto format = MlxFormatFromName("int7");
  ASSERT_FALSE(format.ok());
  EXPECT_NE(format.error().message.find("int4, int8, mxfp4"), std::string::npos);
  EXPECT_FALSE(MlxFormatFromName("mxfp4", 64).ok());
  EXPECT_FALSE(MlxFormatFromName("int4", 48).ok());
  EXPECT_EQ(MlxFormatFromName("q4", 128)->group_size, 128);
}

INSTANTIATE_TEST_SUITE_P(Types, WeightEncoderTest,
                         testing::Values("int2", "int3", "int4", "int5", "int6", "int8", "mxfp4",
                                         "mxfp8", "nvfp4"),
                         [](const auto& info) { return std::string(info.param); });

}  // namespace
}  // namespace kvasir
