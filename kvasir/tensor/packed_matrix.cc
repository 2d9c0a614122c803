#include "kvasir/tensor/packed_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

constexpr WeightFormat kAllFormats[] = {WeightFormat::kF32, WeightFormat::kF16, WeightFormat::kBf16,
                                        WeightFormat::kQ8, WeightFormat::kQ4};

size_t CodeBytesPerGroup(WeightFormat format) {
  return format == WeightFormat::kQ8 ? kQuantGroup * kPanelOutputs
                                     : kQuantGroup * kPanelOutputs / 2;
}

size_t PanelBytes(int64_t inputs, WeightFormat format) {
  const size_t columns = static_cast<size_t>(inputs);
  switch (format) {
    case WeightFormat::kF32:
      return columns * kPanelOutputs * 4;
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
      return columns * kPanelOutputs * 2;
    case WeightFormat::kQ8:
    case WeightFormat::kQ4:
      return columns / kQuantGroup * (CodeBytesPerGroup(format) + 2 * kPanelOutputs);
  }
  KVASIR_CHECK(false);
}

// Largest code magnitude and the code of zero.
struct CodeRange {
  int limit;
  int zero;
};
CodeRange RangeOf(WeightFormat format) {
  return format == WeightFormat::kQ8 ? CodeRange{127, 128} : CodeRange{7, 8};
}

}  // namespace

std::string_view WeightFormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "f32";
    case WeightFormat::kF16:
      return "f16";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kQ8:
      return "q8";
    case WeightFormat::kQ4:
      return "q4";
  }
  return "";
}

Result<WeightFormat> WeightFormatFromName(std::string_view name) {
  for (WeightFormat format : kAllFormats) {
    if (WeightFormatName(format) == name) return format;
  }
  return {ErrorCode::kInvalidArgument,
          "weight format '" + std::string(name) + "' is unknown; use f32, f16, bf16, q8 or q4"};
}

bool IsQuantized(WeightFormat format) {
  return format == WeightFormat::kQ8 || format == WeightFormat::kQ4;
}

Result<PackedMatrix> PackedMatrix::Allocate(int64_t outputs, int64_t inputs, WeightFormat format) {
  KVASIR_CHECK(outputs >= 0 && inputs >= 0);
  if (IsQuantized(format) && inputs % kQuantGroup != 0) {
    return {ErrorCode::kInvalidArgument, std::string(WeightFormatName(format)) +
                                             " needs a multiple of " + std::to_string(kQuantGroup) +
                                             " inputs, not " + std::to_string(inputs)};
  }
  PackedMatrix matrix;
  matrix.outputs_ = outputs;
  matrix.inputs_ = inputs;
  matrix.format_ = format;
  matrix.panel_bytes_ = PanelBytes(inputs, format);
  KVASIR_TRY(matrix.data_,
             AlignedBuffer::Allocate(static_cast<size_t>(matrix.panels()) * matrix.panel_bytes_));
  if (IsQuantized(format) && inputs > 0) {
    const int zero = RangeOf(format).zero;
    const int fill = format == WeightFormat::kQ8 ? zero : zero | (zero << 4);
    for (int64_t p = 0; p < matrix.panels(); ++p) {
      std::memset(matrix.data_.data() + p * matrix.panel_bytes_, fill,
                  matrix.scales_offset_bytes());
    }
  }
  return matrix;
}

Result<PackedMatrix> PackedMatrix::Pack(const TensorView& weights, WeightFormat format) {
  KVASIR_CHECK(weights.shape.size() == 2 && IsFloatType(weights.dtype));
  const int64_t inputs = weights.shape[1];
  KVASIR_TRY(PackedMatrix matrix, Allocate(weights.shape[0], inputs, format));
  std::vector<float> row(static_cast<size_t>(inputs));
  for (int64_t output = 0; output < matrix.outputs(); ++output) {
    ReadFloats(weights, output * inputs, inputs, row.data());
    matrix.SetRow(output, row.data());
  }
  return matrix;
}

size_t PackedMatrix::scales_offset_bytes() const {
  KVASIR_CHECK(IsQuantized(format_));
  return static_cast<size_t>(inputs_) / kQuantGroup * CodeBytesPerGroup(format_);
}

void PackedMatrix::SetRow(int64_t output, const float* row) {
  KVASIR_CHECK(output >= 0 && output < outputs_);
  std::byte* const panel = data_.data() + (output / kPanelOutputs) * panel_bytes_;
  const int64_t lane = output % kPanelOutputs;
  if (format_ == WeightFormat::kF32) {
    float* out = reinterpret_cast<float*>(panel) + lane;
    for (int64_t k = 0; k < inputs_; ++k) out[k * kPanelOutputs] = row[k];
    return;
  }
  if (!IsQuantized(format_)) {
    uint16_t* out = reinterpret_cast<uint16_t*>(panel) + lane;
    const bool is_half = format_ == WeightFormat::kF16;
    for (int64_t k = 0; k < inputs_; ++k) {
      out[k * kPanelOutputs] = is_half ? FloatToF16(row[k]) : FloatToBf16(row[k]);
    }
    return;
  }
  const CodeRange range = RangeOf(format_);
  uint8_t* const codes = reinterpret_cast<uint8_t*>(panel) + lane * 4;
  uint16_t* const scales = reinterpret_cast<uint16_t*>(panel + scales_offset_bytes()) + lane;
  const size_t group_bytes = CodeBytesPerGroup(format_);
  for (int64_t g = 0; g < inputs_ / kQuantGroup; ++g) {
    const float* values = row + g * kQuantGroup;
    float largest = 0;
    for (int k = 0; k < kQuantGroup; ++k) largest = std::max(largest, std::fabs(values[k]));
    // The stored, rounded scale is the one that codes are made for.
    const uint16_t scale_bits = FloatToF16(largest / static_cast<float>(range.limit));
    const float scale = F16ToFloat(scale_bits);
    scales[g * kPanelOutputs] = scale_bits;
    uint8_t* const group = codes + g * group_bytes;
    for (int k = 0; k < kQuantGroup; ++k) {
      const float quotient = scale > 0 ? std::nearbyint(values[k] / scale) : 0.0f;
      const float limit = static_cast<float>(range.limit);
      const int code = static_cast<int>(std::clamp(quotient, -limit, limit)) + range.zero;
      if (format_ == WeightFormat::kQ8) {
        group[(k / 4) * 64 + k % 4] = static_cast<uint8_t>(code);
      } else {
        uint8_t& byte = group[(k % 16 / 4) * 64 + k % 4];
        byte = static_cast<uint8_t>(k < 16 ? (byte & 0xF0) | code : (byte & 0x0F) | (code << 4));
      }
    }
  }
}

void PackedMatrix::GetRow(int64_t output, float* row) const {
  KVASIR_CHECK(output >= 0 && output < outputs_);
  const std::byte* const base = panel(output / kPanelOutputs);
  const int64_t lane = output % kPanelOutputs;
  if (format_ == WeightFormat::kF32) {
    const float* in = reinterpret_cast<const float*>(base) + lane;
    for (int64_t k = 0; k < inputs_; ++k) row[k] = in[k * kPanelOutputs];
    return;
  }
  if (!IsQuantized(format_)) {
    const uint16_t* in = reinterpret_cast<const uint16_t*>(base) + lane;
    const bool is_half = format_ == WeightFormat::kF16;
    for (int64_t k = 0; k < inputs_; ++k) {
      row[k] = is_half ? F16ToFloat(in[k * kPanelOutputs]) : Bf16ToFloat(in[k * kPanelOutputs]);
    }
    return;
  }
  const CodeRange range = RangeOf(format_);
  const uint8_t* const codes = reinterpret_cast<const uint8_t*>(base) + lane * 4;
  const uint16_t* const scales =
      reinterpret_cast<const uint16_t*>(base + scales_offset_bytes()) + lane;
  const size_t group_bytes = CodeBytesPerGroup(format_);
  for (int64_t k = 0; k < inputs_; ++k) {
    const int64_t g = k / kQuantGroup;
    const int64_t i = k % kQuantGroup;
    const uint8_t* const group = codes + g * group_bytes;
    int code;
    if (format_ == WeightFormat::kQ8) {
      code = group[(i / 4) * 64 + i % 4];
    } else {
      const uint8_t byte = group[(i % 16 / 4) * 64 + i % 4];
      code = i < 16 ? byte & 0x0F : byte >> 4;
    }
    row[k] = static_cast<float>(code - range.zero) * F16ToFloat(scales[g * kPanelOutputs]);
  }
}

}  // namespace kvasir
