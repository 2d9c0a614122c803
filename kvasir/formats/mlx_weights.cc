#include "kvasir/formats/mlx_weights.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "kvasir/formats/integer_weights.h"
#include "kvasir/tensor/packed_codes.h"

namespace kvasir {
namespace {

// Every width packs 32 codes into `bits` whole words, and every group but nvfp4's, of 16, holds 32
// codes.
constexpr int kChunk = 32;

// Where a matrix's parts lie, copied so that the reader owns it.
struct Layout {
  MlxFormat format;
  TensorView weight;
  TensorView scales;
  TensorView biases;
  int64_t inputs = 0;

  int64_t groups() const { return inputs / format.group_size; }
  int64_t row_words() const { return RowWords(inputs, format.bits); }
};

// The codes of a row from `begin`, a multiple of kChunk, on: kChunk of them or the row's last ones.
std::span<const uint8_t> ReadCodes(const Layout& layout, int64_t row, int64_t begin,
                                   std::array<uint8_t, kChunk>* buffer) {
  const int bits = layout.format.bits;
  const int64_t count = std::min<int64_t>(layout.inputs - begin, kChunk);
  const int64_t first_word = row * layout.row_words() + begin / kChunk * bits;
  std::array<uint32_t, 8> words;
  std::memcpy(words.data(), layout.weight.data + first_word * 4,
              static_cast<size_t>(RowWords(count, bits)) * 4);
  const auto codes = std::span(*buffer).first(static_cast<size_t>(count));
  UnpackRow(words.data(), bits, codes);
  return codes;
}

// `round` is to the type of the scales: MLX computes in it, one operation at a time.
template <typename Round>
void ReadAffineRow(const Layout& layout, int64_t row, const Round& round, float* out) {
  std::array<uint8_t, kChunk> buffer;
  for (int64_t begin = 0; begin < layout.inputs; begin += kChunk) {
    const int64_t group = row * layout.groups() + begin / layout.format.group_size;
    float scale;
    float bias;
    ReadFloats(layout.scales, group, 1, &scale);
    ReadFloats(layout.biases, group, 1, &bias);
    for (const uint8_t code : ReadCodes(layout, row, begin, &buffer)) {
      *out++ = round(round(static_cast<float>(code) * scale) + bias);
    }
  }
}

// OCP Microscaling Formats v1.0, section 5.3: E2M1 has neither infinities nor NaN.
float E2m1ToFloat(uint8_t code) {
  constexpr float kMagnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  const float magnitude = kMagnitudes[code & 7];
  return (code & 8) != 0 ? -magnitude : magnitude;
}

// E8M0: 2^(code - 127). MLX has no NaN here: 255 overflows to infinity.
float E8m0ToFloat(uint8_t code) { return std::ldexp(1.0f, code - 127); }

template <typename Decode>
std::array<float, 256> Table(const Decode& decode) {
  std::array<float, 256> table;
  for (int code = 0; code < 256; ++code) {
    table[static_cast<size_t>(code)] = decode(static_cast<uint8_t>(code));
  }
  return table;
}

void ReadMicroscaledRow(const Layout& layout, const std::array<float, 256>& elements,
                        const std::array<float, 256>& scales, int64_t row, float* out) {
  std::array<uint8_t, kChunk> buffer;
  const auto group_size = static_cast<size_t>(layout.format.group_size);
  const auto* row_scales =
      reinterpret_cast<const uint8_t*>(layout.scales.data) + row * layout.groups();
  for (int64_t begin = 0; begin < layout.inputs; begin += kChunk) {
    const std::span<const uint8_t> codes = ReadCodes(layout, row, begin, &buffer);
    const uint8_t* chunk_scales = row_scales + begin / layout.format.group_size;
    for (size_t i = 0; i < codes.size(); ++i) {
      const float product = elements[codes[i]] * scales[chunk_scales[i / group_size]];
      *out++ = Bf16ToFloat(FloatToBf16(product));
    }
  }
}

Status CheckPart(const char* part, const TensorView* view, DType dtype,
                 const std::vector<int64_t>& shape) {
  if (view == nullptr) return {ErrorCode::kCorrupt, std::string(part) + " missing"};
  if (view->dtype != dtype || view->shape != shape) {
    return {ErrorCode::kCorrupt, std::string(part) + " is " + std::string(DTypeName(view->dtype)) +
                                     " " + ShapeString(view->shape) + "; the quantization needs " +
                                     std::string(DTypeName(dtype)) + " " + ShapeString(shape)};
  }
  return {};
}

Status CheckParts(const MlxTensors& tensors, const MlxFormat& format, int64_t outputs,
                  int64_t inputs) {
  if (inputs % format.group_size != 0) {
    return {ErrorCode::kCorrupt, "weight has " + std::to_string(inputs) +
                                     " inputs, which are no multiple of " +
                                     std::to_string(format.group_size)};
  }
  KVASIR_TRY_OK(
      CheckPart("weight", tensors.weight, DType::kU32, {outputs, RowWords(inputs, format.bits)}));
  const std::vector<int64_t> groups = {outputs, inputs / format.group_size};
  if (format.mode != MlxMode::kAffine) {
    return CheckPart("scales", tensors.scales, DType::kU8, groups);
  }
  const bool is_float = tensors.scales != nullptr && IsFloatType(tensors.scales->dtype);
  const DType dtype = is_float ? tensors.scales->dtype : DType::kF32;
  KVASIR_TRY_OK(CheckPart("scales", tensors.scales, dtype, groups));
  return CheckPart("biases", tensors.biases, dtype, groups);
}

void ReadRowCodes(const Layout& layout, int64_t row, CodedRow* out) {
  out->codes.resize(static_cast<size_t>(layout.inputs));
  std::array<uint8_t, kChunk> buffer;
  for (int64_t begin = 0; begin < layout.inputs; begin += kChunk) {
    const std::span<const uint8_t> codes = ReadCodes(layout, row, begin, &buffer);
    std::copy(codes.begin(), codes.end(), out->codes.begin() + begin);
  }
}

// What keeps codes and scales of a microscaled format, or bf16, which holds every value, if a scale
// or nvfp4's number of inputs does not allow it.
WeightFormat MicroscaledFormat(const Layout& layout) {
  const MlxMode mode = layout.format.mode;
  const WeightFormat format = mode == MlxMode::kNvfp4   ? WeightFormat::kNvfp4
                              : mode == MlxMode::kMxfp4 ? WeightFormat::kMxfp4
                                                        : WeightFormat::kMxfp8;
  const auto* scales = reinterpret_cast<const uint8_t*>(layout.scales.data);
  const bool is_kept = layout.inputs % InputUnit(format, {}) == 0 &&
                       std::all_of(scales, scales + layout.scales.elements(),
                                   [&](uint8_t scale) { return IsKeptMicroscale(scale, format); });
  return is_kept ? format : WeightFormat::kBf16;
}

void ReadMicroscaledCodes(const Layout& layout, int64_t row, CodedRow* out) {
  ReadRowCodes(layout, row, out);
  const auto groups = static_cast<size_t>(layout.groups());
  out->sub_scales.resize(groups);
  std::memcpy(out->sub_scales.data(), layout.scales.data + static_cast<size_t>(row) * groups,
              groups);
}

// The codes and scales of a row of an affine format.
void ReadAffineCodes(const Layout& layout, int64_t row, CodedRow* out) {
  ReadRowCodes(layout, row, out);
  const auto groups = static_cast<size_t>(layout.groups());
  out->scales.resize(groups);
  out->biases.resize(groups);
  const size_t at = static_cast<size_t>(row) * groups * 2;
  std::memcpy(out->scales.data(), layout.scales.data + at, groups * 2);
  std::memcpy(out->biases.data(), layout.biases.data + at, groups * 2);
}

WeightTensor Affine(const Layout& layout, std::vector<int64_t> shape) {
  WeightTensor tensor;
  tensor.shape = std::move(shape);
  const DType dtype = layout.scales.dtype;
  if (dtype == DType::kF32) {
    tensor.read_row = [layout](int64_t row, float* out) {
      ReadAffineRow(
          layout, row, [](float value) { return value; }, out);
    };
    return tensor;
  }
  tensor.stored_format = AffineFormat(layout.format.bits);
  tensor.affine = {layout.format.group_size, dtype, true};
  tensor.read_codes = [layout](int64_t row, CodedRow* out) { ReadAffineCodes(layout, row, out); };
  if (dtype == DType::kF16) {
    tensor.read_row = [layout](int64_t row, float* out) {
      const auto round = [](float value) { return F16ToFloat(FloatToF16(value)); };
      ReadAffineRow(layout, row, round, out);
    };
  } else {
    tensor.read_row = [layout](int64_t row, float* out) {
      const auto round = [](float value) { return Bf16ToFloat(FloatToBf16(value)); };
      ReadAffineRow(layout, row, round, out);
    };
  }
  return tensor;
}

}  // namespace

Result<WeightTensor> MlxWeights(const MlxTensors& tensors, const MlxFormat& format, int64_t outputs,
                                int64_t inputs) {
  KVASIR_TRY_OK(CheckParts(tensors, format, outputs, inputs));
  Layout layout = {format, *tensors.weight, *tensors.scales, {}, inputs};
  std::vector<int64_t> shape = {outputs, inputs};
  WeightTensor tensor;
  if (format.mode == MlxMode::kAffine) {
    layout.biases = *tensors.biases;
    tensor = Affine(layout, std::move(shape));
  } else {
    const auto elements = format.mode == MlxMode::kMxfp8 ? Table(E4m3Value) : Table(E2m1ToFloat);
    const auto scales = format.mode == MlxMode::kNvfp4 ? Table(E4m3Value) : Table(E8m0ToFloat);
    tensor.shape = std::move(shape);
    tensor.stored_format = MicroscaledFormat(layout);
    if (IsQuantized(tensor.stored_format)) {
      tensor.read_codes = [layout](int64_t row, CodedRow* out) {
        ReadMicroscaledCodes(layout, row, out);
      };
    }
    tensor.read_row = [layout, elements, scales](int64_t row, float* out) {
      ReadMicroscaledRow(layout, elements, scales, row, out);
    };
  }
  const auto bytes = [](const TensorView& view) {
    return std::span(view.data, static_cast<size_t>(view.elements()) * DTypeBytes(view.dtype));
  };
  tensor.source = {bytes(layout.weight), bytes(layout.scales)};
  if (format.mode == MlxMode::kAffine) tensor.source.push_back(bytes(layout.biases));
  return tensor;
}

}  // namespace kvasir
