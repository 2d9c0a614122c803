#include "kvasir/formats/checkpoint_quantization.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace kvasir {
namespace {

constexpr int64_t kMostBlock = 1 << 20;

Error Unknown(std::string_view field, const std::string& value, const std::string& known) {
  return {ErrorCode::kUnsupported, "field '" + std::string(field) + "' is '" + value.substr(0, 40) +
                                       "', which is not read; supported: " + known};
}

bool IsEmpty(const Json* value) {
  return value == nullptr || value->is_null() || (value->is_object() && value->as_object().empty());
}

// Weights that want their inputs transformed, of whatever method.
Status RefuseTransforms(const Json& object) {
  for (const char* field :
       {"transform_config", "rotation", "rotation_config", "spinquant_config"}) {
    if (IsEmpty(object.Find(field))) continue;
    return {ErrorCode::kUnsupported, "field '" + std::string(field) +
                                         "' is set: weights that want their inputs transformed "
                                         "are not read"};
  }
  return {};
}

Result<HfQuantization> ParseAwq(const Json& object, HfQuantization quantization) {
  quantization.kind = HfQuantization::Kind::kAwq;
  KVASIR_TRY(std::string version, object.GetStringOr("version", "gemm"));
  std::transform(version.begin(), version.end(), version.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  });
  if (version != "gemm") return Unknown("version", version, "gemm");
  KVASIR_TRY(const int64_t bits, object.GetIntOr("bits", 4));
  if (bits != 4) return Unknown("bits", std::to_string(bits), "4");
  return quantization;
}

// What GPTQ's files have, whoever wrote them.
Result<HfQuantization> ParseGptqSizes(const Json& object, HfQuantization quantization) {
  quantization.kind = HfQuantization::Kind::kGptq;
  KVASIR_TRY(const int64_t bits, object.GetIntOr("bits", 4));
  if (bits != 2 && bits != 3 && bits != 4 && bits != 8) {
    return Unknown("bits", std::to_string(bits), "2, 3, 4, 8");
  }
  quantization.bits = static_cast<int>(bits);
  KVASIR_TRY(const int64_t group, object.GetIntOr("group_size", 0));
  // -1: one for all inputs.
  if (group > 0 && group <= kMostBlock) quantization.group_size = group;
  return quantization;
}

Result<HfQuantization> ParseGptq(const Json& object, HfQuantization quantization) {
  KVASIR_TRY(std::string format, object.GetStringOr("format", "gptq"));
  KVASIR_TRY(format, object.GetStringOr("checkpoint_format", format));
  if (format != "gptq" && format != "gptq_v2") {
    return Unknown("checkpoint_format", format, "gptq, gptq_v2");
  }
  quantization.zero_offset = format == "gptq" ? 1 : 0;
  return ParseGptqSizes(object, std::move(quantization));
}

// AutoRound writes the layouts of others, and of GPTQ the first version wherever it says so: its
// own is the second. Before 0.5 the field was called "backend", and named a kernel as well
// ("auto_round:exllamav2").
Result<HfQuantization> ParseAutoRound(const Json& object, HfQuantization quantization) {
  const char* const field =
      IsEmpty(object.Find("packing_format")) && !IsEmpty(object.Find("backend")) ? "backend"
                                                                                 : "packing_format";
  KVASIR_TRY(std::string format, object.GetStringOr(field, "auto_round:auto_gptq"));
  const auto names = [&](std::string_view part) { return format.find(part) != format.npos; };
  KVASIR_TRY(const std::string type, object.GetStringOr("data_type", "int"));
  if (format == "auto_round:llm_compressor") {
    // What the tensors say, which of another type of scales would not be true.
    for (const char* known : {"int", "fp", "mx_fp", "nv_fp"}) {
      if (type == known || type == known + std::string("_sym")) return quantization;
    }
    return Unknown("data_type", type, "int, fp, mx_fp, nv_fp");
  }
  const bool has_own = format == "auto_round" || names("gptqmodel");
  const bool has_kernel = names("exllamav2") || names("triton");
  if (!has_own && !has_kernel && !names("gptq") && !names("awq")) {
    return Unknown(field, format,
                   "auto_round, auto_round:auto_gptq, auto_round:gptqmodel, auto_round:auto_awq, "
                   "auto_round:llm_compressor");
  }
  if (type != "int" && type != "int_sym") return Unknown("data_type", type, "int");
  if (names("awq")) return ParseAwq(object, std::move(quantization));
  quantization.zero_offset = names("gptq") && !has_own ? 1 : 0;
  return ParseGptqSizes(object, std::move(quantization));
}

// How many bits the codes of whole numbers have, in any of the groups of modules.
Result<std::vector<int>> BitsOfGroups(const Json& object) {
  std::vector<int> all;
  const Json* const groups = object.Find("config_groups");
  if (IsEmpty(groups) || !groups->is_object()) return all;
  for (const auto& [name, group] : groups->as_object()) {
    const Json* const weights = group.is_object() ? group.Find("weights") : nullptr;
    if (weights == nullptr || !weights->is_object()) continue;
    KVASIR_TRY(const std::string type, weights->GetStringOr("type", "int"));
    KVASIR_TRY(const int64_t bits, weights->GetIntOr("num_bits", 8));
    if (type == "int" && bits >= 1 && bits <= 8) all.push_back(static_cast<int>(bits));
  }
  return all;
}

Result<HfQuantization> ParseCompressedTensors(const Json& object, HfQuantization quantization) {
  constexpr std::string_view kFormats[] = {
      "pack-quantized",  "int-quantized",        "float-quantized",
      "naive-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized",
      "mxfp8-quantized", "mixed-precision",      "dense"};
  KVASIR_TRY(const std::string format, object.GetStringOr("format", "dense"));
  if (std::find(std::begin(kFormats), std::end(kFormats), format) == std::end(kFormats)) {
    std::string known(kFormats[0]);
    for (size_t i = 1; i < std::size(kFormats); ++i) known.append(", ").append(kFormats[i]);
    return Unknown("format", format, known);
  }
  const Json* const sparsity = object.Find("sparsity_config");
  if (!IsEmpty(sparsity)) {
    KVASIR_TRY(const std::string sparse, sparsity->GetStringOr("format", "dense"));
    if (sparse != "dense") return Unknown("sparsity_config.format", sparse, "dense");
  }
  KVASIR_TRY(quantization.packed_bits, BitsOfGroups(object));
  return quantization;
}

Result<HfQuantization> ParseFp8(const Json& object, HfQuantization quantization) {
  KVASIR_TRY(const std::string format, object.GetStringOr("fmt", "e4m3"));
  if (format != "e4m3") return Unknown("fmt", format, "e4m3");
  KVASIR_TRY(const std::string type, object.GetStringOr("format", "float8_e4m3fn"));
  if (type != "float8_e4m3fn") return Unknown("format", type, "float8_e4m3fn");
  if (const Json* const meaning = object.Find("weight_scale_semantics"); !IsEmpty(meaning)) {
    return {ErrorCode::kUnsupported,
            "field 'weight_scale_semantics' is set: scales that weights are divided by are not "
            "read"};
  }
  const Json* const block = object.Find("weight_block_size");
  if (block == nullptr || block->is_null()) return quantization;
  const bool is_pair = block->is_array() && block->as_array().size() == 2;
  for (size_t i = 0; is_pair && i < 2; ++i) {
    const Json& size = block->as_array()[i];
    if (!size.is_int() || size.as_int() < 1 || size.as_int() > kMostBlock) break;
    (i == 0 ? quantization.block_outputs : quantization.block_inputs) = size.as_int();
    if (i == 1) return quantization;
  }
  return {ErrorCode::kCorrupt, "field 'weight_block_size' must be two numbers of at least 1"};
}

}  // namespace

Result<HfQuantization> HfQuantization::Parse(const Json& object) {
  KVASIR_TRY(std::string method, object.GetString("quant_method"));
  HfQuantization quantization;
  quantization.method = method;
  KVASIR_TRY_OK(RefuseTransforms(object));
  if (method == "awq") return ParseAwq(object, std::move(quantization));
  if (method == "gptq") return ParseGptq(object, std::move(quantization));
  if (method == "compressed-tensors") {
    return ParseCompressedTensors(object, std::move(quantization));
  }
  if (method == "auto-round" || method == "intel/auto-round") {
    return ParseAutoRound(object, std::move(quantization));
  }
  if (method == "fp8") return ParseFp8(object, std::move(quantization));
  if (method == "fbgemm_fp8" || method == "modelopt" || method == "mxfp4") return quantization;
  return {ErrorCode::kUnsupported,
          "is of the method '" + method.substr(0, 40) +
              "', which is not read (awq, gptq, auto-round, compressed-tensors, fp8, "
              "fbgemm_fp8, modelopt and mxfp4 are); take the original checkpoint, or one in MLX or "
              "GGUF form"};
}

Result<CheckpointQuantization> CheckpointQuantization::Parse(const Json* quantization,
                                                             const Json* quantization_config) {
  const bool has_own = quantization != nullptr && !quantization->is_null();
  const Json* const object = has_own ? quantization : quantization_config;
  CheckpointQuantization parsed;
  if (object == nullptr || object->is_null()) return parsed;
  const std::string_view where = has_own ? "field 'quantization'" : "field 'quantization_config'";
  if (object->is_object() && object->Find("quant_method") != nullptr) {
    auto hf = HfQuantization::Parse(*object);
    if (!hf.ok()) return WithContext(hf.error(), where);
    parsed.hf = *std::move(hf);
  } else {
    auto mlx = MlxQuantization::Parse(*object);
    if (!mlx.ok()) return WithContext(mlx.error(), where);
    parsed.mlx = *std::move(mlx);
  }
  return parsed;
}

Result<CheckpointQuantization> CheckpointQuantization::OfConfig(const Json& config) {
  const Json* const text = config.Find("text_config");
  const auto find = [&](std::string_view field) {
    const Json* const inner = text != nullptr && text->is_object() ? text->Find(field) : nullptr;
    return inner != nullptr && !inner->is_null() ? inner : config.Find(field);
  };
  return Parse(find("quantization"), find("quantization_config"));
}

}  // namespace kvasir
