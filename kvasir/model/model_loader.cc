#include "kvasir/model/model_loader.h"

#include <algorithm>
#include <filesystem>
#include <utility>

#include "kvasir/backend/cpu_backend.h"
#include "kvasir/base/system_info.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/formats/gguf_config.h"
#include "kvasir/model/decoder_model.h"
#include "kvasir/model/families.h"
#include "kvasir/model/tensor_list.h"
#include "kvasir/model/weight_source.h"

namespace kvasir {
namespace {

void WarnOfUnread(const DecoderSpec& spec, const WeightSource& source, const LogSink& log) {
  const std::vector<std::string> unread = UnreadTensors(spec, source);
  if (!unread.empty()) Log(log, LogLevel::kWarning, UnreadLine(unread));
}

// Weights of a checkpoint are bounded by its files; made-up ones only by what the config says.
Status CheckMemoryForWeights(int64_t parameter_count, WeightFormat format) {
  const size_t available = AvailableMemoryBytes();
  const auto parameters = static_cast<uint64_t>(parameter_count);
  // At least: scales and padding come on top.
  const uint64_t needed = format == WeightFormat::kF32  ? parameters * 4
                          : format == WeightFormat::kQ8 ? parameters
                          : format == WeightFormat::kQ4 ? parameters / 2
                                                        : parameters * 2;
  if (available == 0 || needed <= available) return {};
  return {ErrorCode::kResourceExhausted,
          "the configuration's weights take " + std::to_string(needed >> 20) +
              " MiB of memory as " + std::string(WeightFormatName(format)) + " and " +
              std::to_string(available >> 20) + " MiB are available"};
}

// Runs load(cache) until its matrices come from one place: a file of packed weights that fits, or
// the model's own files.
template <typename Load>
auto LoadPacked(const LoadOptions& options, PackedWeightsSource source, const Load& load)
    -> decltype(load(nullptr)) {
  if (options.packed_weights.empty()) return load(nullptr);
  source.format = options.weight_format;
  PackedWeightsCache cache(options.packed_weights, source, options.log);
  auto loaded = load(&cache);
  if (cache.is_unfit()) {
    cache.Repack();
    loaded = load(&cache);
  }
  if (loaded.ok()) cache.Finish();
  return loaded;
}

// config.json says how matrices are quantized; `config` is what it was before it was read.
PackedWeightsSource PackedSourceOf(const std::string& folder, const Result<FileVersion>& config,
                                   const Checkpoint& checkpoint) {
  PackedWeightsSource source = {.model = folder, .files = {}, .format = {}};
  if (config.ok()) source.files.push_back(*config);
  for (const SafetensorsFile& file : checkpoint.files()) source.files.push_back(file.version());
  return source;
}

Result<FileVersion> ConfigVersion(const std::string& folder) {
  return FileVersion::Of(folder + "/config.json");
}

// Calls use(source) with a model's weights as they lie in its files, if MtpHead can read them.
template <typename Use>
Status WithMtpHead(const std::string& path, Backend& backend, std::optional<WeightFormat> format,
                   const Use& use) {
  const auto checked = [&](const ModelConfig& config, WeightSource& source) -> Status {
    const Status fits = MtpHead::Check(config, source);
    if (!fits.ok()) return WithContext(fits.error(), path);
    return use(source);
  };
  if (IsGguf(path)) {
    KVASIR_TRY(const GgufFile file, GgufFile::Open(path));
    KVASIR_TRY(const ModelConfig config, GgufModelConfig(file));
    return checked(config, *MakeGgufWeights(file, config, backend, {format, nullptr}));
  }
  KVASIR_TRY(const ModelConfig config, ModelConfig::Load(path));
  KVASIR_TRY(const Checkpoint checkpoint, Checkpoint::Open(path));
  return checked(config, *MakeCheckpointWeights(checkpoint, config, backend, {format, nullptr}));
}

Result<LoadedModel> LoadGguf(const std::string& path, Backend& backend,
                             const LoadOptions& options) {
  KVASIR_TRY(const GgufFile file, GgufFile::Open(path));
  KVASIR_TRY(ModelConfig config, GgufModelConfig(file));
  const DecoderSpec spec = MakeDecoderSpec(config);
  const PackedWeightsSource packed = {.model = path, .files = file.part_versions(), .format = {}};
  const auto load = [&](PackedWeightsCache* cache) -> Result<LoadedModel> {
    const auto source = MakeGgufWeights(file, config, backend, {options.weight_format, cache});
    KVASIR_TRY(auto model, DecoderModel::Load(spec, *source, backend));
    WarnOfUnread(spec, *source, options.log);
    return LoadedModel{config, std::move(model)};
  };
  return LoadPacked(options, packed, load);
}

// What people give who mean a model.
Status CheckModelFolder(const std::string& path) {
  if (FileExists(path)) {
    return {ErrorCode::kInvalidArgument,
            path + ": neither a model's folder nor a GGUF file; give the folder it is in"};
  }
  if (!DirectoryExists(path)) {
    return {ErrorCode::kNotFound,
            path + ": there is no such folder or file; models are not downloaded"};
  }
  const std::string config = path + "/config.json";
  if (FileExists(config)) return {};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(path, error)) {
    if (!IsGgufPath(entry.path().string())) continue;
    return {ErrorCode::kNotFound,
            config + ": there is none, but " + entry.path().string() + " is; give that file"};
  }
  return {ErrorCode::kNotFound, config + ": there is none, so this is no model's folder"};
}

}  // namespace

Result<ModelConfig> LoadModelConfig(const std::string& path) {
  if (!IsGguf(path)) {
    KVASIR_TRY_OK(CheckModelFolder(path));
    return ModelConfig::Load(path);
  }
  KVASIR_TRY(const GgufFile file, GgufFile::Open(path));
  return GgufModelConfig(file);
}

Result<LoadedModel> LoadModel(const std::string& folder, Backend& backend,
                              const LoadOptions& options) {
  if (IsGguf(folder)) return LoadGguf(folder, backend, options);
  const auto config_file = ConfigVersion(folder);
  KVASIR_TRY(ModelConfig config, ModelConfig::Load(folder));
  KVASIR_TRY(const Checkpoint checkpoint, Checkpoint::Open(folder));
  config.norms_hold_offset = HoldsNormOffset(config, checkpoint);
  const DecoderSpec spec = MakeDecoderSpec(config);
  const auto load = [&](PackedWeightsCache* cache) -> Result<LoadedModel> {
    const auto source =
        MakeCheckpointWeights(checkpoint, config, backend, {options.weight_format, cache});
    KVASIR_TRY(auto model, DecoderModel::Load(spec, *source, backend));
    WarnOfUnread(spec, *source, options.log);
    return LoadedModel{config, std::move(model)};
  };
  return LoadPacked(options, PackedSourceOf(folder, config_file, checkpoint), load);
}

Result<LoadedModel> MakeRandomModel(const std::string& folder, Backend& backend,
                                    WeightFormat format) {
  KVASIR_TRY(ModelConfig config, LoadModelConfig(folder));
  KVASIR_TRY_OK(CheckMemoryForWeights(config.ParameterCount(), format));
  const auto source = MakeRandomWeights(backend, format);
  KVASIR_TRY(auto model, DecoderModel::Load(MakeDecoderSpec(config), *source, backend));
  return LoadedModel{std::move(config), std::move(model)};
}

Status CheckMtpHead(const std::string& path) {
  KVASIR_TRY(const auto backend, MakeCpuBackend({.threads = 1}));
  return WithMtpHead(path, *backend, {}, [](WeightSource&) { return Status(); });
}

Result<std::unique_ptr<const MtpHead>> LoadMtpHead(const std::string& path,
                                                   const ModelConfig& config, const Model& target,
                                                   Backend& backend, const LoadOptions& options) {
  std::unique_ptr<const MtpHead> head;
  const auto load = [&](WeightSource& source) -> Status {
    KVASIR_TRY(head, MtpHead::Load(config, target, source, backend));
    return {};
  };
  KVASIR_TRY_OK(WithMtpHead(path, backend, options.weight_format, load));
  return head;
}

Result<std::unique_ptr<const MtpHead>> MakeRandomMtpHead(const ModelConfig& config,
                                                         const Model& target, Backend& backend,
                                                         WeightFormat format) {
  // One layer of several, and what joins.
  KVASIR_TRY_OK(CheckMemoryForWeights(config.ParameterCount() / config.num_hidden_layers, format));
  return MtpHead::Load(config, target, *MakeRandomWeights(backend, format), backend);
}

Result<LoadedAssistant> LoadAssistant(const std::string& folder, const ModelConfig& target,
                                      Backend& backend, const LoadOptions& options) {
  const auto config_file = ConfigVersion(folder);
  KVASIR_TRY(AssistantConfig config, AssistantConfig::Load(folder));
  KVASIR_TRY(const Checkpoint checkpoint, Checkpoint::Open(folder));
  const auto load = [&](PackedWeightsCache* cache) -> Result<LoadedAssistant> {
    const auto source =
        MakeCheckpointWeights(checkpoint, config.text, backend, {options.weight_format, cache});
    auto model = AssistantModel::Load(config, target, *source, backend);
    if (!model.ok()) return WithContext(model.error(), folder);
    DecoderSpec spec = MakeDecoderSpec(config.text);
    for (DecoderLayerSpec& layer : spec.layers) layer.shares_kv = 0;  // stored keys are nobody's
    WarnOfUnread(spec, *source, options.log);
    return LoadedAssistant{config, *std::move(model)};
  };
  return LoadPacked(options, PackedSourceOf(folder, config_file, checkpoint), load);
}

Result<LoadedAssistant> MakeRandomAssistant(const std::string& folder, const ModelConfig& target,
                                            Backend& backend, WeightFormat format) {
  KVASIR_TRY(AssistantConfig config, AssistantConfig::Load(folder));
  KVASIR_TRY_OK(CheckMemoryForWeights(config.ParameterCount(), format));
  const auto source = MakeRandomWeights(backend, format);
  auto model = AssistantModel::Load(config, target, *source, backend);
  if (!model.ok()) return WithContext(model.error(), folder);
  return LoadedAssistant{std::move(config), *std::move(model)};
}

}  // namespace kvasir
