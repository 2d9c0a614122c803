// Every format against what MLX decoded (tools/goldens/make_mlx_weights.py), bit for bit.
#include "kvasir/formats/mlx_weights.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <map>

#include "kvasir/formats/safetensors.h"

namespace kvasir {
namespace {

const SafetensorsFile& Golden() {
  static const SafetensorsFile file = *SafetensorsFile::Open(
      std::string(KVASIR_SOURCE_DIR) + "/testdata/formats/mlx_weights.safetensors");
  return file;
}

// "affine_4_64_bf16": mode, bits, group size, type of the scales.
MlxFormat FormatOf(const std::string& name) {
  const size_t first = name.find('_');
  const size_t second = name.find('_', first + 1);
  MlxFormat format;
  for (const MlxMode mode : {MlxMode::kAffine, MlxMode::kMxfp4, MlxMode::kMxfp8, MlxMode::kNvfp4}) {
    if (name.substr(0, first) == MlxModeName(mode)) format.mode = mode;
  }
  format.bits = std::stoi(name.substr(first + 1));
  format.group_size = std::stoi(name.substr(second + 1));
  return format;
}

MlxTensors TensorsOf(const std::string& name) {
  return {Golden().Find(name + ".weight"), Golden().Find(name + ".scales"),
          Golden().Find(name + ".biases")};
}

TEST(MlxWeights, DecodeToMlxsBits) {
  int formats = 0;
  for (const auto& [tensor, decoded] : Golden().tensors()) {
    if (!tensor.ends_with(".decoded")) continue;
    const std::string name = tensor.substr(0, tensor.rfind('.'));
    ++formats;
    const int64_t columns = decoded.shape[1];
    const auto weights = MlxWeights(TensorsOf(name), FormatOf(name), decoded.shape[0], columns);
    ASSERT_TRUE(weights.ok()) << name << ": " << weights.error().message;
    // Affine codes with 16-bit scales are kept; anything else is as wide as what MLX decodes to.
    const bool keeps_codes = IsQuantized(weights->stored_format);
    // Of the microscaled matrices each has a scale that is NaN, or rows that matmuls cannot take.
    const bool is_affine = name.starts_with("affine");
    EXPECT_EQ(keeps_codes, is_affine && decoded.dtype != DType::kF32) << name;
    if (!keeps_codes) {
      EXPECT_EQ(weights->stored_format, DenseWeights(decoded).stored_format) << name;
    }
    EXPECT_EQ(DecodedFormat(*weights), is_affine ? WeightFormat::kF32 : WeightFormat::kBf16);
    auto packed =
        *PackedMatrix::Allocate(decoded.shape[0], columns, weights->stored_format, weights->affine);
    std::vector<float> wanted(static_cast<size_t>(columns));
    std::vector<float> actual(static_cast<size_t>(columns));
    for (int64_t row = 0; row < decoded.shape[0]; ++row) {
      ReadFloats(decoded, row * columns, columns, wanted.data());
      weights->read_row(row, actual.data());
      if (keeps_codes) {
        CodedRow codes;
        weights->read_codes(row, &codes);
        packed.SetCodedRow(row, codes);
        std::vector<float> kept(static_cast<size_t>(columns));
        packed.GetRow(row, kept.data());
        ASSERT_EQ(kept, actual) << name << " row " << row;
      }
      for (size_t i = 0; i < wanted.size(); ++i) {
        // Which NaN it is means nothing.
        const bool both_nan = std::isnan(wanted[i]) && std::isnan(actual[i]);
        ASSERT_TRUE(both_nan ||
                    std::bit_cast<uint32_t>(wanted[i]) == std::bit_cast<uint32_t>(actual[i]))
            << name << " row " << row << " column " << i << ": " << actual[i] << ", MLX has "
            << wanted[i];
      }
    }
  }
  EXPECT_EQ(formats, 7 * 3 * 3 + 4);
}

// What MLX's quantized matmuls multiply, and what it decodes to once scales are widened to float32.
TEST(MlxWeights, UnroundedValuesAreSumsInFloat32) {
  for (const std::string name : {"affine_4_64_bf16", "affine_6_32_f16", "affine_1_128_bf16"}) {
    const MlxTensors tensors = TensorsOf(name);
    const MlxFormat format = FormatOf(name);
    const auto weights = *MlxWeights(tensors, format, 2, 128);
    const WeightTensor unrounded = Unrounded(weights);
    int differ = 0;
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<float> rounded(128);
      std::vector<float> actual(128);
      CodedRow coded;
      weights.read_row(row, rounded.data());
      unrounded.read_row(row, actual.data());
      weights.read_codes(row, &coded);
      for (size_t i = 0; i < actual.size(); ++i) {
        const int64_t group = (row * 128 + static_cast<int64_t>(i)) / format.group_size;
        float scale;
        float bias;
        ReadFloats(*tensors.scales, group, 1, &scale);
        ReadFloats(*tensors.biases, group, 1, &bias);
        ASSERT_EQ(actual[i], static_cast<float>(coded.codes[i]) * scale + bias) << name << " " << i;
        differ += actual[i] != rounded[i] ? 1 : 0;
      }
    }
    EXPECT_GT(differ, 0) << name;
  }
}

// What packing makes of the values of mxfp8, in groups of 32: a NaN takes its group along, and what
// is smaller than matmuls see is 0.
void RoundMxfp8(std::vector<float>* values) {
  for (size_t begin = 0; begin < values->size(); begin += 32) {
    const auto group = values->begin() + static_cast<int64_t>(begin);
    const bool has_nan = std::any_of(group, group + 32, [](float x) { return std::isnan(x); });
    std::transform(group, group + 32, group, [has_nan](float x) {
      return has_nan ? std::nanf("") : std::fabs(x) < 0x1p-60f ? 0.0f : x;
    });
  }
}

TEST(MlxWeights, MicroscaledCodesAreKeptButForScalesThatDoNotFit) {
  int formats = 0;
  for (const auto& [tensor, decoded] : Golden().tensors()) {
    if (!tensor.ends_with("_u8.decoded")) continue;
    const std::string name = tensor.substr(0, tensor.rfind('.'));
    const MlxFormat format = FormatOf(name);
    const WeightFormat kept = format.mode == MlxMode::kMxfp4   ? WeightFormat::kMxfp4
                              : format.mode == MlxMode::kMxfp8 ? WeightFormat::kMxfp8
                                                               : WeightFormat::kNvfp4;
    ++formats;
    const int64_t outputs = decoded.shape[0];
    const int64_t inputs = decoded.shape[1];
    MlxTensors tensors = TensorsOf(name);
    std::vector<std::byte> bytes(tensors.scales->data,
                                 tensors.scales->data + tensors.scales->elements());
    for (std::byte& scale : bytes) {
      if (!IsKeptMicroscale(static_cast<uint8_t>(scale), kept)) scale = std::byte{1};
    }
    TensorView scales = *tensors.scales;
    scales.data = bytes.data();
    tensors.scales = &scales;
    const auto weights = MlxWeights(tensors, format, outputs, inputs);
    ASSERT_TRUE(weights.ok()) << name << ": " << weights.error().message;
    EXPECT_EQ(weights->stored_format, kept) << name;
    auto packed = *PackedMatrix::Allocate(outputs, inputs, kept);
    std::vector<float> wanted(static_cast<size_t>(inputs));
    std::vector<float> actual(static_cast<size_t>(inputs));
    for (int64_t row = 0; row < outputs; ++row) {
      CodedRow codes;
      weights->read_codes(row, &codes);
      packed.SetCodedRow(row, codes);
      packed.GetRow(row, actual.data());
      weights->read_row(row, wanted.data());
      if (kept == WeightFormat::kMxfp8) RoundMxfp8(&wanted);
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_TRUE(actual[i] == wanted[i] || (std::isnan(actual[i]) && std::isnan(wanted[i])))
            << name << " row " << row << " column " << i;
      }
    }
    bytes.back() = std::byte{0xFF};
    EXPECT_EQ(MlxWeights(tensors, format, outputs, inputs)->stored_format, WeightFormat::kBf16)
        << name;
  }
  EXPECT_EQ(formats, 3);
}

TEST(MlxWeights, PartsThatDoNotFitAreNamed) {
  const std::string name = "affine_4_64_bf16";
  const MlxTensors good = TensorsOf(name);
  const MlxFormat format = FormatOf(name);
  const auto error = [&](const MlxTensors& tensors, int64_t outputs, int64_t inputs) {
    const auto weights = MlxWeights(tensors, format, outputs, inputs);
    return weights.ok() ? std::string() : weights.error().message;
  };
  EXPECT_EQ(error(good, 2, 128), "");
  EXPECT_NE(error(good, 3, 128).find("weight is u32 [2, 16]"), std::string::npos);
  EXPECT_NE(error(good, 2, 256).find("weight"), std::string::npos);
  EXPECT_NE(error(good, 2, 100).find("multiple of 64"), std::string::npos);
  EXPECT_NE(error({good.weight, good.scales, nullptr}, 2, 128).find("biases missing"),
            std::string::npos);
  EXPECT_NE(error({nullptr, good.scales, good.biases}, 2, 128).find("weight"), std::string::npos);
  const MlxTensors other = TensorsOf("affine_4_64_f32");
  EXPECT_NE(error({good.weight, good.scales, other.biases}, 2, 128).find("biases is f32"),
            std::string::npos);
  const MlxTensors coarse = TensorsOf("affine_4_128_bf16");
  EXPECT_NE(error({good.weight, coarse.scales, coarse.biases}, 2, 128).find("scales is bf16"),
            std::string::npos);
}

}  // namespace
}  // namespace kvasir
