#include "kvasir/tensor/packed_matrix.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/base/check.h"
#include "kvasir/tensor/bf16_pairs.h"
#include "kvasir/tensor/quantize_group.h"

namespace kvasir {
namespace {

size_t PanelBytes(int64_t inputs, WeightFormat format, const AffineScales& affine) {
  const size_t columns = static_cast<size_t>(inputs);
  switch (format) {
    case WeightFormat::kF32:
      return columns * kPanelOutputs * 4;
    case WeightFormat::kF16:
    case WeightFormat::kBf16:
    case WeightFormat::kBf16Dot:
      return columns * kPanelOutputs * 2;
    default:
      return CodedPanelBytes(inputs, format, affine);
  }
}

}  // namespace

Result<PackedMatrix> PackedMatrix::Shaped(const PackedShape& shape) {
  KVASIR_CHECK(shape.outputs >= 0 && shape.inputs >= 0);
  const int unit = InputUnit(shape.format, shape.affine);
  if (shape.inputs % unit != 0) {
    return {ErrorCode::kInvalidArgument, std::string(WeightFormatName(shape.format)) +
                                             " needs a multiple of " + std::to_string(unit) +
                                             " inputs, not " + std::to_string(shape.inputs)};
  }
  PackedMatrix matrix;
  matrix.outputs_ = shape.outputs;
  matrix.inputs_ = shape.inputs;
  matrix.format_ = shape.format;
  matrix.affine_ = shape.affine;
  matrix.panel_bytes_ = PanelBytes(shape.inputs, shape.format, shape.affine);
  return matrix;
}

Result<PackedMatrix> PackedMatrix::Allocate(int64_t outputs, int64_t inputs, WeightFormat format,
                                            const AffineScales& affine, AlignedArena* arena) {
  KVASIR_TRY(PackedMatrix matrix, Shaped({outputs, inputs, format, affine}));
  const size_t bytes = matrix.bytes();
  KVASIR_TRY(matrix.data_, arena ? arena->Allocate(bytes) : AlignedBuffer::Allocate(bytes));
  matrix.panels_ = matrix.data_.data();
  return matrix;
}

Result<PackedMatrix> PackedMatrix::Over(const PackedShape& shape, std::span<const std::byte> panels,
                                        std::shared_ptr<const void> owner) {
  KVASIR_TRY(PackedMatrix matrix, Shaped(shape));
  if (panels.size() != matrix.bytes()) {
    return {ErrorCode::kCorrupt, std::to_string(panels.size()) + " bytes of panels where " +
                                     std::to_string(matrix.bytes()) + " are needed"};
  }
  if (reinterpret_cast<uintptr_t>(panels.data()) % kPanelAlignment != 0) {
    return {ErrorCode::kCorrupt, "panels do not begin at a multiple of 64 bytes"};
  }
  matrix.panels_ = panels.data();
  matrix.owner_ = std::move(owner);
  return matrix;
}

std::byte* PackedMatrix::MutablePanel(int64_t p) {
  KVASIR_CHECK(owner_ == nullptr);
  return data_.data() + static_cast<size_t>(p) * panel_bytes_;
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

void PackedMatrix::SetRow(int64_t output, const float* row) {
  KVASIR_CHECK(output >= 0 && output < outputs_ && !IsCodedOnly(format_));
  if (inputs_ == 0) return;  // there is no panel, either
  std::byte* const panel = MutablePanel(output / kPanelOutputs);
  const int64_t lane = output % kPanelOutputs;
  if (format_ == WeightFormat::kF32) {
    float* out = reinterpret_cast<float*>(panel) + lane;
    for (int64_t k = 0; k < inputs_; ++k) out[k * kPanelOutputs] = row[k];
    return;
  }
  if (format_ == WeightFormat::kBf16Dot) {
    uint16_t* out = reinterpret_cast<uint16_t*>(panel) + lane * 2;
    for (int64_t k = 0; k < inputs_; ++k) {
      out[k / 2 * 2 * kPanelOutputs + k % 2] = bf16_pairs::RoundWeight(FloatToBf16(row[k]));
    }
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
  const int bits = CodeBits(format_);
  const int zero = 1 << (bits - 1);  // the code of 0
  const GroupUnits units = UnitsOf(format_);
  for (size_t g = 0; g < static_cast<size_t>(inputs_ / kQuantGroup); ++g) {
    const QuantizedGroup quantized = QuantizeGroup(row + g * kQuantGroup, bits);
    reinterpret_cast<uint16_t*>(panel + units.ScalesOf(g))[lane] = quantized.scale;
    uint8_t codes[kQuantGroup];
    for (size_t k = 0; k < kQuantGroup; ++k) {
      codes[k] = static_cast<uint8_t>(quantized.codes[k] + zero);
    }
    WriteGroupCodes(codes, format_, static_cast<int>(lane), panel + units.CodesOf(g));
  }
}

void PackedMatrix::SetCodedRow(int64_t output, const CodedRow& row) {
  KVASIR_CHECK(output >= 0 && output < outputs_ && IsQuantized(format_));
  const int lane = static_cast<int>(output % kPanelOutputs);
  WriteCodedRow(row, inputs_, format_, affine_, lane, MutablePanel(output / kPanelOutputs));
}

namespace {

uint16_t Keep(uint16_t element) { return element; }
uint32_t Keep(uint32_t element) { return element; }

// The transpose of a panel of elements, each as `convert` leaves it.
template <typename T, typename Convert = T (*)(T)>
void CopyPanel(const std::byte* rows, size_t row_bytes, int64_t count, int64_t inputs, T* out,
               const Convert& convert = Keep) {
  // So many inputs of 16 rows are read before the next: they and what is written stay in the
  // first-level cache.
  constexpr int64_t kChunk = 256;
  T chunk[kChunk];
  for (int64_t begin = 0; begin < inputs; begin += kChunk) {
    const int64_t size = std::min(kChunk, inputs - begin);
    for (int64_t lane = 0; lane < count; ++lane) {
      std::memcpy(chunk, rows + static_cast<size_t>(lane) * row_bytes + begin * sizeof(T),
                  static_cast<size_t>(size) * sizeof(T));
      T* const to = out + begin * kPanelOutputs + lane;
      for (int64_t k = 0; k < size; ++k) to[k * kPanelOutputs] = convert(chunk[k]);
    }
  }
}

}  // namespace

void PackedMatrix::SetPanel(int64_t panel, const std::byte* rows, size_t row_bytes) {
  KVASIR_CHECK(panel >= 0 && panel < panels() && !IsQuantized(format_));
  const int64_t count = std::min<int64_t>(kPanelOutputs, outputs_ - panel * kPanelOutputs);
  std::byte* const out = MutablePanel(panel);
  if (format_ == WeightFormat::kF32) {
    CopyPanel(rows, row_bytes, count, inputs_, reinterpret_cast<uint32_t*>(out));
  } else if (format_ == WeightFormat::kBf16Dot) {
    // A pair is an element here.
    CopyPanel(rows, row_bytes, count, inputs_ / 2, reinterpret_cast<uint32_t*>(out),
              bf16_pairs::RoundWeights);
  } else {
    CopyPanel(rows, row_bytes, count, inputs_, reinterpret_cast<uint16_t*>(out));
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
  if (format_ == WeightFormat::kBf16Dot) {
    const uint16_t* in = reinterpret_cast<const uint16_t*>(base) + lane * 2;
    for (int64_t k = 0; k < inputs_; ++k) {
      row[k] = Bf16ToFloat(in[k / 2 * 2 * kPanelOutputs + k % 2]);
    }
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
  ReadCodedRow(base, inputs_, format_, affine_, static_cast<int>(lane), row);
}

}  // namespace kvasir
