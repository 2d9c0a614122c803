#include "kvasir/convert/folder_plan.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "kvasir/convert/expert_stacks.h"
#include "kvasir/convert/latent_stacks.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/formats/safetensors_header.h"

namespace kvasir {
namespace {

Json FormatJson(const MlxFormat& format) {
  return Json::Object{
      {"group_size", format.group_size}, {"bits", format.bits}, {"mode", MlxModeName(format.mode)}};
}

// f32 has no 16-bit scales; f16 holds them more finely than bf16.
DType ScaleType(DType stored) { return stored == DType::kBf16 ? DType::kBf16 : DType::kF16; }

std::string Module(const std::string& name) {
  constexpr std::string_view kWeight = ".weight";
  return name.ends_with(kWeight) ? name.substr(0, name.size() - kWeight.size()) : name;
}

// Few numbers that a whole state hangs on, as how fast it fades: published checkpoints have them in
// float32 among weights of 16 bits, and mlx-lm keeps them so.
bool StaysF32(const SourceTensor& tensor) {
  return tensor.dtype == DType::kF32 && tensor.shape.size() == 1 &&
         (tensor.name.find(".linear_attn.") != std::string::npos ||
          tensor.name.find(".mamba.") != std::string::npos ||
          tensor.name.ends_with(".expert_bias") ||
          tensor.name.ends_with(".e_score_correction_bias"));
}

PlannedTensor Planned(const SourceTensor& tensor, const PlanOptions& options) {
  PlannedTensor planned;
  planned.source = &tensor;
  const bool is_float = static_cast<bool>(tensor.rows.read_row);
  const bool is_converted = is_float && !StaysF32(tensor);
  const DType dtype = is_converted ? options.dtype.value_or(tensor.dtype) : tensor.dtype;
  planned.encoding.dtype = dtype;
  const auto format = is_float && options.quantize
                          ? options.quantize->For(tensor.name, tensor.shape)
                          : std::nullopt;
  if (format) {
    planned.encoding = {ScaleType(dtype), true, *format};
  } else {
    planned.is_copied = tensor.raw != nullptr && dtype == tensor.dtype;
  }
  return planned;
}

// gpt-oss's dense experts lie with their inputs before their outputs: groups of inputs would be
// groups of outputs, and left as they are most of the model would be.
Status CheckExpertsCanBeQuantized(const ModelSource& source) {
  for (const SourceTensor& tensor : source.tensors()) {
    if (!tensor.name.ends_with(".experts.gate_up_proj_bias")) continue;
    const std::string experts = tensor.name.substr(0, tensor.name.rfind("_bias"));
    const auto is_dense = [&](const SourceTensor& other) { return other.name == experts; };
    if (std::none_of(source.tensors().begin(), source.tensors().end(), is_dense)) continue;
    return {ErrorCode::kUnsupported,
            source.path() + ": tensor '" + experts +
                "': experts of gpt-oss in this form are not quantized; take the published "
                "checkpoint, whose experts are MXFP4, or serve it with --weights q4 or q8"};
  }
  return {};
}

bool IsDeepSeekV2(const ModelConfig& config) {
  return config.architecture.starts_with("DeepseekV2");
}

}  // namespace

std::vector<TensorDeclaration> PlannedTensor::Declarations() const {
  const std::string& name = source->name;
  if (!encoding.is_quantized) return {{name, encoding.dtype, source->shape}};
  const MlxFormat& format = encoding.format;
  std::vector<int64_t> words = source->shape;
  words.back() = words.back() / 32 * format.bits;
  std::vector<int64_t> groups = source->shape;
  groups.back() /= format.group_size;
  const bool is_affine = format.mode == MlxMode::kAffine;
  std::vector<TensorDeclaration> parts = {
      {Module(name) + ".weight", DType::kU32, std::move(words)},
      {Module(name) + ".scales", is_affine ? encoding.dtype : DType::kU8, groups}};
  if (is_affine) parts.push_back({Module(name) + ".biases", encoding.dtype, std::move(groups)});
  return parts;
}

uint64_t PlannedTensor::bytes() const {
  uint64_t total = 0;
  for (const TensorDeclaration& part : Declarations()) {
    const auto size = DenseTensorBytes(part.dtype, part.shape);
    total += size.ok() ? *size : 0;
  }
  return total;
}

std::string FolderPlan::ShardName(size_t shard) const {
  if (shards.size() == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", shard + 1, shards.size());
  return name;
}

std::string FolderPlan::Fingerprint() const {
  std::string text;
  for (size_t i = 0; i < shards.size(); ++i) {
    text += ShardName(i) + "\n";
    for (const PlannedTensor& tensor : shards[i]) {
      for (const TensorDeclaration& part : tensor.Declarations()) {
        text += part.name + " " + std::string(DTypeName(part.dtype)) + " " +
                ShapeString(part.shape) + "\n";
      }
    }
  }
  return text + quantization.Dump();
}

Result<FolderPlan> PlanFolder(const ModelSource& source, const PlanOptions& options) {
  FolderPlan plan;
  plan.tensors = source.tensors();
  if (options.quantize) {
    KVASIR_TRY_OK(CheckExpertsCanBeQuantized(source));
    auto stacked = StackExperts(source.tensors());
    if (!stacked.ok()) return WithContext(stacked.error(), source.path());
    // As mlx-lm has them, which knows other names of dense tensors only.
    std::vector<SourceTensor> tensors = NameLfm2Mlps(SplitGatesAndUps(*std::move(stacked)));
    plan.tensors = SplitGraniteExperts(SplitSharedMlp(std::move(tensors)));
    const auto config = ModelConfig::Parse(source.config());
    // Of DeepSeek-V2 mlx-lm knows the one matrix. Configs that are not read are copied as they are.
    if (config.ok() && config->latent.kv_rank > 0 && !IsDeepSeekV2(*config)) {
      auto latents = StackLatents(std::move(plan.tensors), *config);
      if (!latents.ok()) return WithContext(latents.error(), source.path());
      plan.tensors = *std::move(latents);
    }
  }
  plan.shards.emplace_back();
  uint64_t shard_bytes = 0;
  for (const SourceTensor& tensor : plan.tensors) {
    const PlannedTensor planned = Planned(tensor, options);
    const uint64_t bytes = planned.bytes();
    if (!plan.shards.back().empty() && shard_bytes + bytes > options.shard_bytes) {
      plan.shards.emplace_back();
      shard_bytes = 0;
    }
    if (planned.encoding.is_quantized) {
      if (plan.quantization.is_null()) plan.quantization = FormatJson(options.quantize->base);
      if (planned.encoding.format != options.quantize->base) {
        plan.quantization.Set(Module(tensor.name), FormatJson(planned.encoding.format));
      }
    }
    shard_bytes += bytes;
    plan.total_bytes += bytes;
    plan.shards.back().push_back(planned);
  }
  if (options.quantize && plan.quantization.is_null()) {
    return {ErrorCode::kInvalidArgument,
            source.path() + ": no tensor can be quantized as " +
                MlxFormatLabel(options.quantize->base) +
                ": matrices need at least 1024 numbers and rows of whole groups of " +
                std::to_string(options.quantize->base.group_size)};
  }
  return plan;
}

}  // namespace kvasir
