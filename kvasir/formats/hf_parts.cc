#include "kvasir/formats/hf_parts.h"

#include <bit>
#include <cstring>

#include "kvasir/tensor/packed_codes.h"

namespace kvasir::hf {

Error Misfit(std::string_view part, const TensorView& view, const std::string& wanted) {
  return {ErrorCode::kCorrupt, std::string(part) + " is " + std::string(DTypeName(view.dtype)) +
                                   " " + ShapeString(view.shape) + " where " + wanted +
                                   " is needed"};
}

Status Check(std::string_view part, const TensorView* view, DType dtype,
             const std::vector<int64_t>& shape) {
  if (view == nullptr) return {ErrorCode::kCorrupt, std::string(part) + " is missing"};
  if (view->dtype == dtype && view->shape == shape) return {};
  return Misfit(part, *view, std::string(DTypeName(dtype)) + " " + ShapeString(shape));
}

Status CheckMatrix(std::string_view part, const TensorView* view) {
  if (view == nullptr) return {ErrorCode::kCorrupt, std::string(part) + " is missing"};
  const auto& shape = view->shape;
  if (shape.size() == 2 && shape[0] > 0 && shape[1] > 0 && shape[0] < kMostExtent &&
      shape[1] < kMostExtent) {
    return {};
  }
  return Misfit(part, *view, "a matrix");
}

uint32_t Word(const TensorView& view, int64_t index) {
  uint32_t word;
  std::memcpy(&word, view.data + index * 4, sizeof(word));
  return word;
}

int StreamCode(const TensorView& words, int64_t first, int64_t stride, int bits, int64_t index) {
  const int64_t bit = index * bits;
  const int64_t at = first + bit / 32 * stride;
  const auto shift = static_cast<int>(bit % 32);
  uint64_t both = Word(words, at);
  if (shift + bits > 32) both |= static_cast<uint64_t>(Word(words, at + stride)) << 32;
  return static_cast<int>(both >> shift & ((1u << bits) - 1));
}

void ReadStream(const TensorView& words, int64_t first, int64_t stride, int bits, int64_t count,
                uint8_t* codes) {
  std::vector<uint32_t> row(static_cast<size_t>(RowWords(count, bits)));
  for (size_t i = 0; i < row.size(); ++i) {
    row[i] = Word(words, first + static_cast<int64_t>(i) * stride);
  }
  UnpackRow(row.data(), bits, {codes, static_cast<size_t>(count)});
}

float ReadScale(const TensorView& view, int64_t index) {
  if (view.dtype == DType::kF8E8m0) {
    // 2^(code - 127); the least is no normal number, the most is NaN.
    const auto code = static_cast<uint32_t>(view.data[index]);
    return std::bit_cast<float>(code == 0 ? 0x00400000u : code == 255 ? 0x7FC00000u : code << 23);
  }
  float scale;
  ReadFloats(view, index, 1, &scale);
  return scale;
}

bool IsScaleType(DType dtype) { return IsFloatType(dtype) || dtype == DType::kF8E8m0; }

std::span<const std::byte> Bytes(const TensorView& view) {
  return {view.data, static_cast<size_t>(view.elements()) * DTypeBytes(view.dtype)};
}

Result<std::vector<int32_t>> GroupsOfInputs(std::string_view part, const TensorView* view,
                                            int64_t inputs, int64_t group_inputs, int64_t groups) {
  std::vector<int32_t> of_inputs;
  if (view == nullptr) return of_inputs;
  KVASIR_TRY_OK(Check(part, view, DType::kI32, {inputs}));
  bool is_regular = true;
  of_inputs.resize(static_cast<size_t>(inputs));
  for (int64_t i = 0; i < inputs; ++i) {
    const auto group = static_cast<int32_t>(Word(*view, i));
    if (group < 0 || group >= groups) {
      return {ErrorCode::kCorrupt, std::string(part) + " says group " + std::to_string(group) +
                                       " of input " + std::to_string(i) + ", of " +
                                       std::to_string(groups)};
    }
    of_inputs[static_cast<size_t>(i)] = group;
    is_regular = is_regular && group == i / group_inputs;
  }
  if (is_regular) of_inputs.clear();
  return of_inputs;
}

}  // namespace kvasir::hf
