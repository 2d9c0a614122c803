#include "kvasir/model/model_loader.h"

#include <algorithm>
#include <utility>

#include "kvasir/formats/checkpoint.h"
#include "kvasir/model/decoder_model.h"
#include "kvasir/model/families.h"
#include "kvasir/model/weight_source.h"

namespace kvasir {
namespace {

constexpr size_t kNamedInWarning = 5;

void WarnOfUnknown(const DecoderSpec& spec, const WeightSource& source, const LogSink& log) {
  std::vector<std::string> unknown = source.Unused();
  std::erase_if(unknown, [&](const std::string& name) { return IsKnownUnused(spec, name); });
  if (unknown.empty()) return;
  std::string line = "tensors that no decoder reads:";
  for (size_t i = 0; i < std::min(unknown.size(), kNamedInWarning); ++i) line += " " + unknown[i];
  if (unknown.size() > kNamedInWarning) {
    line += " and " + std::to_string(unknown.size() - kNamedInWarning) + " more";
  }
  Log(log, LogLevel::kWarning, line);
}

}  // namespace

Result<LoadedModel> LoadModel(const std::string& folder, Backend& backend,
                              const LoadOptions& options) {
  KVASIR_TRY(ModelConfig config, ModelConfig::Load(folder));
  KVASIR_TRY(const Checkpoint checkpoint, Checkpoint::Open(folder));
  const DecoderSpec spec = MakeDecoderSpec(config);
  const auto source = MakeCheckpointWeights(checkpoint, backend, options.weight_format);
  auto model = DecoderModel::Load(spec, *source, backend);
  if (!model.ok()) return WithContext(model.error(), folder);
  WarnOfUnknown(spec, *source, options.log);
  return LoadedModel{std::move(config), *std::move(model)};
}

Result<LoadedModel> MakeRandomModel(const std::string& folder, Backend& backend,
                                    WeightFormat format) {
  KVASIR_TRY(ModelConfig config, ModelConfig::Load(folder));
  const auto source = MakeRandomWeights(backend, format);
  KVASIR_TRY(auto model, DecoderModel::Load(MakeDecoderSpec(config), *source, backend));
  return LoadedModel{std::move(config), std::move(model)};
}

}  // namespace kvasir
