#include "kvasir/convert/weight_encoder.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>

#include "kvasir/tensor/affine_codec.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

constexpr int kMicroscaledGroup = 32;

struct Name {
  std::string_view name;
  MlxFormat format;
};
constexpr Name kNames[] = {
    {"int4", {MlxMode::kAffine, 4, 64}}, {"int8", {MlxMode::kAffine, 8, 64}},
    {"int2", {MlxMode::kAffine, 2, 64}}, {"int3", {MlxMode::kAffine, 3, 64}},
    {"int5", {MlxMode::kAffine, 5, 64}}, {"int6", {MlxMode::kAffine, 6, 64}},
    {"mxfp4", {MlxMode::kMxfp4, 4, 32}}, {"mxfp8", {MlxMode::kMxfp8, 8, 32}},
    {"q4", {MlxMode::kAffine, 4, 64}},   {"fp4", {MlxMode::kAffine, 4, 64}},
    {"q8", {MlxMode::kAffine, 8, 64}},   {"fp8", {MlxMode::kAffine, 8, 64}},
};

void StoreFloat(float value, DType dtype, std::byte* to) {
  if (dtype == DType::kF32) {
    std::memcpy(to, &value, sizeof(value));
    return;
  }
  const uint16_t bits = dtype == DType::kF16 ? FloatToF16(value) : FloatToBf16(value);
  std::memcpy(to, &bits, sizeof(bits));
}

// Magnitudes of E2M1 and E4M3 by code, ascending; the sign is the next bit.
std::array<float, 127> Magnitudes(bool is_fp8) {
  std::array<float, 127> table = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  if (is_fp8) {
    for (int code = 0; code < 127; ++code) {
      const int exponent = code >> 3;
      const auto mantissa = static_cast<float>(code & 7);
      table[static_cast<size_t>(code)] =
          exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8.0f + mantissa, exponent - 10);
    }
  }
  return table;
}

// The code of the nearest of `count` magnitudes, of two equally near ones the even.
uint8_t Nearest(const std::array<float, 127>& table, int count, float magnitude) {
  const auto end = table.begin() + count;
  const auto above = std::lower_bound(table.begin(), end, magnitude);
  if (above == table.begin()) return 0;
  if (above == end) return static_cast<uint8_t>(count - 1);
  const auto code = static_cast<uint8_t>(above - table.begin());
  const float up = *above - magnitude;
  const float down = magnitude - *(above - 1);
  if (up == down) return code % 2 == 0 ? code : code - 1;
  return up < down ? code : code - 1;
}

}  // namespace

Result<MlxFormat> MlxFormatFromName(std::string_view name, int group_size) {
  for (const Name& known : kNames) {
    if (known.name != name) continue;
    MlxFormat format = known.format;
    if (group_size == 0) return format;
    if (format.mode != MlxMode::kAffine ||
        (group_size != 32 && group_size != 64 && group_size != 128)) {
      return {ErrorCode::kInvalidArgument,
              "a group size is 32, 64 or 128, and only for int2 to int8; " + std::string(name) +
                  " with " + std::to_string(group_size) + " does not exist"};
    }
    format.group_size = group_size;
    return format;
  }
  return {ErrorCode::kInvalidArgument,
          "quantization type '" + std::string(name.substr(0, 40)) +
              "' is unknown; use int4, int8, mxfp4, mxfp8, or int2, int3, int5, int6"};
}

std::string MlxFormatLabel(const MlxFormat& format) {
  if (format.mode != MlxMode::kAffine) return std::string(MlxModeName(format.mode));
  return "int" + std::to_string(format.bits);
}

WeightEncoder::WeightEncoder(const WeightEncoding& encoding, int64_t inputs)
    : encoding_(encoding), inputs_(inputs) {
  const auto columns = static_cast<size_t>(inputs);
  if (!encoding.is_quantized) {
    weight_bytes_ = columns * DTypeBytes(encoding.dtype);
    return;
  }
  const MlxFormat& format = encoding.format;
  const bool is_affine = format.mode == MlxMode::kAffine;
  const size_t groups = columns / static_cast<size_t>(format.group_size);
  weight_bytes_ = columns / 8 * static_cast<size_t>(format.bits);
  scale_bytes_ = groups * (is_affine ? DTypeBytes(encoding.dtype) : 1);
  bias_bytes_ = is_affine ? scale_bytes_ : 0;
}

void WeightEncoder::Encode(const float* row, std::byte* weight, std::byte* scales,
                           std::byte* biases) const {
  if (encoding_.is_quantized) {
    if (encoding_.format.mode == MlxMode::kAffine) return EncodeAffine(row, weight, scales, biases);
    return EncodeMicroscaled(row, weight, scales);
  }
  const size_t element = DTypeBytes(encoding_.dtype);
  for (int64_t i = 0; i < inputs_; ++i) {
    StoreFloat(row[i], encoding_.dtype, weight + static_cast<size_t>(i) * element);
  }
}

void WeightEncoder::EncodeAffine(const float* row, std::byte* weight, std::byte* scales,
                                 std::byte* biases) const {
  const auto size = static_cast<size_t>(encoding_.format.group_size);
  const size_t element = DTypeBytes(encoding_.dtype);
  std::vector<uint8_t> codes(static_cast<size_t>(inputs_));
  for (size_t g = 0; g < codes.size() / size; ++g) {
    const AffineGroup group =
        QuantizeAffineGroup(std::span(row + g * size, size), encoding_.format.bits,
                            KvCodec::Scales::kF32, codes.data() + g * size);
    StoreFloat(group.scale, encoding_.dtype, scales + g * element);
    StoreFloat(group.bias, encoding_.dtype, biases + g * element);
  }
  std::vector<uint32_t> words(weight_bytes_ / sizeof(uint32_t));
  PackRow(codes, encoding_.format.bits, words.data());
  std::memcpy(weight, words.data(), weight_bytes_);
}

void WeightEncoder::EncodeMicroscaled(const float* row, std::byte* weight,
                                      std::byte* scales) const {
  const bool is_fp8 = encoding_.format.mode == MlxMode::kMxfp8;
  // E4M3 ends at 448 = 1.75 * 2^8 (its last code is NaN), E2M1 at 6 = 1.5 * 2^2.
  const int count = is_fp8 ? 127 : 8;
  const int top_exponent = is_fp8 ? 8 : 2;
  const std::array<float, 127> table = Magnitudes(is_fp8);
  std::vector<uint8_t> codes(static_cast<size_t>(inputs_));
  for (size_t g = 0; g < codes.size() / kMicroscaledGroup; ++g) {
    const float* const values = row + g * kMicroscaledGroup;
    float largest = 0;
    for (int i = 0; i < kMicroscaledGroup; ++i) {
      const float magnitude = std::fabs(values[i]);
      if (std::isfinite(magnitude)) largest = std::max(largest, magnitude);
    }
    const int exponent =
        largest > 0 ? std::clamp(std::ilogb(largest) - top_exponent, -127, 127) : -127;
    scales[g] = static_cast<std::byte>(exponent + 127);
    for (size_t i = 0; i < kMicroscaledGroup; ++i) {
      const float scaled = std::ldexp(std::fabs(values[i]), -exponent);
      const uint8_t code = Nearest(table, count, std::isnan(scaled) ? table[1] * 0x1p20f : scaled);
      const int sign = std::signbit(values[i]) ? (is_fp8 ? 0x80 : 8) : 0;
      codes[g * kMicroscaledGroup + i] = static_cast<uint8_t>(code | sign);
    }
  }
  std::vector<uint32_t> words(weight_bytes_ / sizeof(uint32_t));
  PackRow(codes, encoding_.format.bits, words.data());
  std::memcpy(weight, words.data(), weight_bytes_);
}

}  // namespace kvasir
