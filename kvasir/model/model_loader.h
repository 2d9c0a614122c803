// From a folder (or only its config.json) or a GGUF file to a running model.
// Deliberately not a download manager: the folder is there or it is not.
#ifndef KVASIR_MODEL_MODEL_LOADER_H_
#define KVASIR_MODEL_MODEL_LOADER_H_

#include <memory>
#include <optional>
#include <string>

#include "kvasir/backend/backend.h"
#include "kvasir/base/log.h"
#include "kvasir/formats/model_config.h"
#include "kvasir/model/assistant_model.h"
#include "kvasir/model/model.h"
#include "kvasir/model/mtp_head.h"

namespace kvasir {

struct LoadOptions {
  // Unset: every matrix keeps the type it is stored in.
  std::optional<WeightFormat> weight_format;
  // A folder where packed weights are kept in files, for the next load to map instead of packing
  // (PackedWeightsCache); created if need be. Empty: they are not kept.
  std::string packed_weights;
  LogSink log;  // a warning that names tensors nobody knows, and what became of packed_weights
};

struct LoadedModel {
  ModelConfig config;
  std::unique_ptr<const Model> model;
};

// What a folder's config.json or a GGUF file says about its model. ERRORS: as LoadModel.
Result<ModelConfig> LoadModelConfig(const std::string& path);

// `folder` holds config.json and model.safetensors or its shards, or is the path of a .gguf file
// (docs/formats/gguf.md). `backend` must outlive the model.
// ERRORS: kNotFound, kIo, kCorrupt, kUnsupported, naming file, field or tensor.
Result<LoadedModel> LoadModel(const std::string& folder, Backend& backend,
                              const LoadOptions& options = {});

// The shapes of `folder`/config.json with made-up weights. ERRORS: as LoadModel, and
// kResourceExhausted when they would not fit the available memory.
Result<LoadedModel> MakeRandomModel(const std::string& folder, Backend& backend,
                                    WeightFormat format);

// MtpHead::Check of a model's files; reads none of its weights. ERRORS: as LoadModel and that, with
// the path.
Status CheckMtpHead(const std::string& path);

// The layer that drafts which a model's files bring along, for `target`, loaded from them with this
// config; both `target` and `backend` must outlive it. Its weights are packed anew each time.
// ERRORS: as LoadModel and MtpHead::Load.
Result<std::unique_ptr<const MtpHead>> LoadMtpHead(const std::string& path,
                                                   const ModelConfig& config, const Model& target,
                                                   Backend& backend,
                                                   const LoadOptions& options = {});

// Its shapes with made-up weights. ERRORS: as MtpHead::Load and MakeRandomModel.
Result<std::unique_ptr<const MtpHead>> MakeRandomMtpHead(const ModelConfig& config,
                                                         const Model& target, Backend& backend,
                                                         WeightFormat format);

struct LoadedAssistant {
  AssistantConfig config;
  std::unique_ptr<const AssistantModel> model;
};

// A folder whose config.json is an assistant's (AssistantConfig::IsIn), for a model of this config.
// `backend` must outlive the assistant. ERRORS: as LoadModel and AssistantModel::CheckTarget.
Result<LoadedAssistant> LoadAssistant(const std::string& folder, const ModelConfig& target,
                                      Backend& backend, const LoadOptions& options = {});

// Its shapes with made-up weights. ERRORS: as MakeRandomModel and AssistantModel::CheckTarget.
Result<LoadedAssistant> MakeRandomAssistant(const std::string& folder, const ModelConfig& target,
                                            Backend& backend, WeightFormat format);

}  // namespace kvasir

#endif  // KVASIR_MODEL_MODEL_LOADER_H_
