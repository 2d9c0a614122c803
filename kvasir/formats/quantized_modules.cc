#include "kvasir/formats/quantized_modules.h"

#include <optional>
#include <string_view>
#include <utility>

#include "kvasir/formats/hf_weights.h"
#include "kvasir/formats/mlx_weights.h"

namespace kvasir {
namespace {

constexpr const char* kBlocks = "_blocks";
constexpr const char* kScales = "_scales";
constexpr const char* kMlxParts[] = {".weight", ".scales", ".biases"};

FindPart PartsIn(const Checkpoint& checkpoint, const std::string& module) {
  return [&checkpoint, module](std::string_view part) {
    std::string name = module;
    name.append(".").append(part);
    return checkpoint.Find(name);
  };
}

}  // namespace

bool QuantizedModules::IsMlx(const std::string& module) const {
  return checkpoint_.Find(module + ".scales") != nullptr &&
         checkpoint_.Find(module + ".weight") != nullptr;
}

bool QuantizedModules::IsBlocks(const std::string& module) const {
  return checkpoint_.Find(module + kBlocks) != nullptr &&
         checkpoint_.Find(module + kScales) != nullptr;
}

bool QuantizedModules::IsHf(const std::string& module) const {
  return IsHfQuantized(PartsIn(checkpoint_, module));
}

std::vector<std::string> QuantizedModules::PartsOf(const std::string& module) const {
  std::vector<std::string> parts;
  const auto add = [&](std::string name) {
    if (checkpoint_.Find(name) != nullptr) parts.push_back(std::move(name));
  };
  if (IsMlx(module)) {
    for (const char* part : kMlxParts) add(module + part);
  } else if (IsBlocks(module)) {
    for (const char* part : {kBlocks, kScales}) add(module + part);
  } else {
    for (const std::string_view part : kHfParts) add((module + ".").append(part));
  }
  return parts;
}

Result<WeightTensor> QuantizedModules::Read(const std::string& module) const {
  const HfQuantization* const hf = quantization_.hf ? &*quantization_.hf : nullptr;
  auto read = IsMlx(module)      ? ReadMlx(module)
              : IsBlocks(module) ? ReadBlocks(module)
                                 : HfWeights(PartsIn(checkpoint_, module), hf);
  if (!read.ok()) {
    const std::string& file = checkpoint_.FileOf(PartsOf(module).front());
    return WithContext(read.error(), file + ": module '" + module + "'");
  }
  read->is_mapped = true;
  return read;
}

Result<WeightTensor> QuantizedModules::ReadMlx(const std::string& module) const {
  if (!quantization_.mlx) {
    return {ErrorCode::kCorrupt, "has scales, but config.json does not say how it is quantized"};
  }
  const std::optional<MlxFormat> format = quantization_.mlx->For(module);
  const TensorView& weight = *checkpoint_.Find(module + ".weight");
  if (!format || weight.shape.size() < 2 || weight.elements() == 0) {
    return {ErrorCode::kCorrupt, "does not have the shape of a quantized matrix"};
  }
  // Stacked matrices are quantized row by row like one high matrix.
  std::vector<TensorView> flat;
  for (const char* part : kMlxParts) {
    const TensorView* const stored = checkpoint_.Find(module + part);
    flat.push_back(stored == nullptr ? TensorView() : AsMatrix(*stored));
  }
  const auto given = [&](size_t part) {
    return flat[part].data == nullptr ? nullptr : &flat[part];
  };
  const int64_t inputs = weight.shape.back() * 32 / format->bits;
  KVASIR_TRY(WeightTensor rows,
             MlxWeights({given(0), given(1), given(2)}, *format, flat[0].shape[0], inputs));
  rows.shape = weight.shape;
  rows.shape.back() = inputs;
  return rows;
}

// MXFP4 as MLX stores it, but for the extents: [..., outputs, groups, 16] bytes of two codes, the
// first the low one, and [..., outputs, groups] scales.
Result<WeightTensor> QuantizedModules::ReadBlocks(const std::string& module) const {
  constexpr MlxFormat kFormat = {MlxMode::kMxfp4, 4, 32};
  constexpr int64_t kBytes = 16;  // of a group
  const TensorView& blocks = *checkpoint_.Find(module + kBlocks);
  const TensorView& scales = *checkpoint_.Find(module + kScales);
  std::vector<int64_t> shape = blocks.shape;
  const bool has_groups = blocks.dtype == DType::kU8 && shape.size() >= 3 &&
                          shape.back() == kBytes && blocks.elements() > 0;
  if (has_groups) shape.pop_back();
  if (!has_groups || scales.dtype != DType::kU8 || scales.shape != shape) {
    return {ErrorCode::kCorrupt, "blocks are " + std::string(DTypeName(blocks.dtype)) + " " +
                                     ShapeString(blocks.shape) + " and scales " +
                                     std::string(DTypeName(scales.dtype)) + " " +
                                     ShapeString(scales.shape) +
                                     "; needed are u8 [..., groups, 16] and u8 [..., groups]"};
  }
  const int64_t groups = shape.back();
  const int64_t outputs = RowCount(shape);
  const TensorView words = {DType::kU32, {outputs, groups * kBytes / 4}, blocks.data};
  const TensorView bytes = {DType::kU8, {outputs, groups}, scales.data};
  KVASIR_TRY(WeightTensor rows,
             MlxWeights({&words, &bytes, nullptr}, kFormat, outputs, groups * kFormat.group_size));
  rows.shape = shape;
  rows.shape.back() = groups * kFormat.group_size;
  return rows;
}

}  // namespace kvasir
