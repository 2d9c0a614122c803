#include "kvasir/formats/quantized_modules.h"

#include <optional>
#include <string_view>
#include <utility>

#include "kvasir/formats/hf_weights.h"
#include "kvasir/formats/mlx_weights.h"

namespace kvasir {
namespace {

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
  } else {
    for (const std::string_view part : kHfParts) add((module + ".").append(part));
  }
  return parts;
}

Result<WeightTensor> QuantizedModules::Read(const std::string& module) const {
  const HfQuantization* const hf = quantization_.hf ? &*quantization_.hf : nullptr;
  auto read = IsMlx(module) ? ReadMlx(module) : HfWeights(PartsIn(checkpoint_, module), hf);
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

}  // namespace kvasir
