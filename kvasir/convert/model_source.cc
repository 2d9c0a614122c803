#include "kvasir/convert/model_source.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <system_error>
#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/convert/folder_builder.h"
#include "kvasir/convert/latent_stacks.h"
#include "kvasir/formats/assistant_config.h"
#include "kvasir/formats/gguf_config.h"
#include "kvasir/formats/gguf_special_tokens.h"
#include "kvasir/formats/gguf_tokenizer.h"
#include "kvasir/formats/package_file.h"
#include "kvasir/formats/quantized_modules.h"
#include "kvasir/model/tensor_list.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

constexpr std::array<std::string_view, 4> kSuffixes = {".json", ".jinja", ".txt", ".model"};
// Written anew.
constexpr std::array<std::string_view, 3> kOwn = {"config.json", "model.safetensors.index.json",
                                                  kConversionStateName};
// Larger ones are no tokenizer.
constexpr uintmax_t kMostCarriedBytes = uintmax_t{256} << 20;

bool IsCarried(const fs::path& path) {
  const std::string name = path.filename().string();
  if (std::find(kOwn.begin(), kOwn.end(), name) != kOwn.end()) return false;
  const std::string suffix = path.extension().string();
  return std::find(kSuffixes.begin(), kSuffixes.end(), suffix) != kSuffixes.end();
}

// The float type that decoded weights are written as: the smallest that holds them, or that comes
// close: f16 for GGUF's types, the type of the scales for whole numbers, bf16 for fp8, whose
// rounding is far below that of their codes.
DType DecodedType(const WeightTensor& rows) {
  switch (rows.stored_format) {
    case WeightFormat::kF32:
      return DType::kF32;
    case WeightFormat::kBf16:
    case WeightFormat::kFp8:
    case WeightFormat::kMxfp4:
    case WeightFormat::kNvfp4:
    case WeightFormat::kMxfp8:
      return rows.code_scales.empty() ? DType::kBf16 : DType::kF16;
    default:
      return IsAffine(rows.stored_format) ? rows.affine.dtype : DType::kF16;
  }
}

// With the class that takes tokenizer.json as it is; others add what they find missing.
Json TokenizerConfig(const GgufMetadata& metadata, const GgufSpecialTokens& special) {
  Json config = Json::Object();
  const auto tokens = metadata.Strings("tokenizer.ggml.tokens");
  if (tokens.ok()) config = special.Texts(*tokens);
  config.Set("tokenizer_class", "PreTrainedTokenizerFast");
  const auto chat = metadata.Text("tokenizer.chat_template");
  if (!chat.ok()) return config;
  config.Set("chat_template", *chat);
  const auto tool_use = metadata.Text(kGgufToolTemplate);
  if (!tool_use.ok()) return config;
  const auto named = [](const char* name, const std::string& source) {
    return Json(Json::Object{{"name", name}, {"template", source}});
  };
  config.Set("chat_template", Json::Array{named("default", *chat), named("tool_use", *tool_use)});
  return config;
}

}  // namespace

Status CheckRuns(const ModelSource& source) { return UnreadTensorsOf(source).status(); }

// Of GGUF files ModelSource has found out already.
Result<std::vector<std::string>> UnreadTensorsOf(const ModelSource& source) {
  if (source.checkpoint() == nullptr) return source.left_out();
  if (AssistantConfig::Describes(source.config())) return std::vector<std::string>();
  KVASIR_TRY(const ModelConfig config, ModelConfig::Load(source.path()));
  KVASIR_TRY(TensorList listed, ListTensors(*source.checkpoint(), config));
  return std::move(listed.unread);
}

Status CheckCanBeDecoded(const ModelSource& source) {
  if (!source.undecodable()) return {};
  return {source.undecodable()->code, source.undecodable()->message +
                                          "; it cannot be decoded here, --type stored copies it as "
                                          "it is"};
}

Result<ModelSource> ModelSource::Open(const std::string& path) {
  ModelSource source;
  source.path_ = path;
  if (IsGguf(path)) {
    KVASIR_TRY_OK(source.OpenGguf());
  } else {
    KVASIR_TRY_OK(source.OpenFolder());
  }
  std::sort(source.tensors_.begin(), source.tensors_.end(),
            [](const SourceTensor& a, const SourceTensor& b) { return a.name < b.name; });
  return source;
}

Status ModelSource::OpenFolder() {
  if (!DirectoryExists(path_)) {
    return {ErrorCode::kNotFound, path_ + " is no folder and no .gguf file"};
  }
  KVASIR_TRY(config_, Json::ParseFile(path_ + "/config.json", kMostTextBytes));
  if (!config_.is_object()) {
    return {ErrorCode::kCorrupt, path_ + "/config.json: must be an object"};
  }
  stored_config_ = config_;
  KVASIR_TRY_OK(ReadQuantization());
  KVASIR_TRY(checkpoint_, Checkpoint::Open(path_));
  KVASIR_TRY_OK(AddTensors());
  for (const SafetensorsFile& file : checkpoint_->files()) AddFingerprint(file.version());
  KVASIR_TRY(const FileVersion config, FileVersion::Of(path_ + "/config.json"));
  AddFingerprint(config);
  return AddFiles();
}

// What is not known can still be copied.
Status ModelSource::ReadQuantization() {
  auto parsed = CheckpointQuantization::OfConfig(config_);
  if (!parsed.ok()) {
    const Error error = WithContext(parsed.error(), path_ + "/config.json");
    if (error.code != ErrorCode::kUnsupported) return error;
    undecodable_ = error;
    return {};
  }
  quantization_ = *std::move(parsed);
  return {};
}

// Where one module cannot be decoded, all stay in their parts.
Status ModelSource::AddTensors() {
  if (!undecodable_) {
    const Status added = [&]() -> Status {
      for (const std::string& name : checkpoint_->names()) KVASIR_TRY_OK(AddTensor(name));
      return {};
    }();
    if (added.ok()) {
      if (!is_quantized_) return {};
      for (Json* const level : {&config_, config_.Find("text_config")}) {
        if (level == nullptr || !level->is_object()) continue;
        std::erase_if(level->as_object(), [](const Json::Member& member) {
          return member.first == "quantization" || member.first == "quantization_config";
        });
      }
      return {};
    }
    undecodable_ = added.error();
    tensors_.clear();
    is_quantized_ = false;
  }
  for (const std::string& name : checkpoint_->names()) KVASIR_TRY_OK(AddTensor(name));
  return {};
}

Status ModelSource::AddTensor(const std::string& name) {
  const std::string module = name.substr(0, name.rfind('.'));
  const QuantizedModules modules(*checkpoint_, quantization_);
  SourceTensor tensor;
  tensor.name = name;
  if (!undecodable_ && modules.Has(module)) {
    const std::vector<std::string> parts = modules.PartsOf(module);
    if (name == parts.front()) {
      KVASIR_TRY(tensor.rows, modules.Read(module));
      tensor.name = module + ".weight";
      tensor.shape = tensor.rows.shape;
      tensor.dtype = DecodedType(tensor.rows);
      tensors_.push_back(std::move(tensor));
      is_quantized_ = true;
      return {};
    }
    // They belong to the first.
    if (std::find(parts.begin(), parts.end(), name) != parts.end()) return {};
  }
  const TensorView& view = *checkpoint_->Find(name);
  tensor.shape = view.shape;
  tensor.dtype = view.dtype;
  tensor.raw = view.data;
  if (IsFloatType(view.dtype) && !view.shape.empty()) tensor.rows = DenseWeights(view);
  tensor.rows.is_mapped = true;
  tensors_.push_back(std::move(tensor));
  return {};
}

Status ModelSource::AddFiles() {
  std::error_code error;
  std::vector<fs::path> paths;
  for (const fs::path& folder : {fs::path(path_), fs::path(path_) / "additional_chat_templates"}) {
    for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
      if (!IsCarried(at->path()) || at->is_directory(error)) continue;
      if (!at->is_regular_file(error)) {
        return {ErrorCode::kNotFound, at->path().string() +
                                          " is a link that leads nowhere, or no file; a download "
                                          "may not have ended"};
      }
      paths.push_back(at->path());
    }
    error.clear();
  }
  std::sort(paths.begin(), paths.end());
  for (const fs::path& path : paths) {
    if (fs::file_size(path, error) > kMostCarriedBytes || error) continue;
    if (path.filename() == kPackageFileName) {
      KVASIR_TRY_OK(AddPackageFile());
      continue;
    }
    KVASIR_TRY(std::string contents, ReadFile(path.string()));
    files_.push_back({path.lexically_relative(path_).string(), std::move(contents)});
  }
  return {};
}

// A package's draft stays behind, and so does what its weights were made into.
Status ModelSource::AddPackageFile() {
  KVASIR_TRY(PackageFile package, PackageFile::Load(path_));
  if (package.system.empty()) return {};
  package = {.system = std::move(package.system), .draft = {}, .weights = {}, .draft_weights = {}};
  files_.push_back({std::string(kPackageFileName), package.ToJson().DumpPretty()});
  return {};
}

Status ModelSource::OpenGguf() {
  KVASIR_TRY(gguf_, GgufFile::Open(path_));
  KVASIR_TRY(config_, GgufConfigJson(*gguf_));
  KVASIR_TRY(const ModelConfig config, GgufModelConfig(*gguf_));
  if (config.delta_net.value_heads > 0 || (config.has_shared_mlp && config.experts.count > 0)) {
    return {ErrorCode::kUnsupported,
            path_ +
                ": GGUF files of models with delta nets (Qwen3.5, Qwen3-Next) or Mamba-2 (Granite "
                "4's hybrids), and of Granite with experts, are run as they are, but not made into "
                "others; convert the checkpoint"};
  }
  KVASIR_TRY(TensorList listed, ListTensors(*gguf_, config));
  left_out_ = std::move(listed.unread);
  for (ListedTensor& tensor : listed.tensors) {
    SourceTensor added;
    added.name = std::move(tensor.name);
    added.shape = tensor.rows.shape;
    added.dtype = DecodedType(tensor.rows);
    if (tensor.rows.is_raw && tensor.offset == 0) added.raw = tensor.rows.source[0].data();
    added.rows = std::move(tensor.rows);
    added.offset = tensor.offset;
    tensors_.push_back(std::move(added));
  }
  if (config.latent.kv_rank > 0) tensors_ = JoinLatents(std::move(tensors_), config);
  for (const FileVersion& part : gguf_->part_versions()) AddFingerprint(part);
  KVASIR_TRY(const Json generation, GgufGenerationJson(*gguf_));
  if (!generation.as_object().empty()) {
    files_.push_back({"generation_config.json", generation.DumpPretty()});
  }
  auto tokenizer = GgufTokenizerJson(gguf_->metadata());
  if (!tokenizer.ok()) {
    return tokenizer.error().code == ErrorCode::kNotFound ? Status()
                                                          : WithContext(tokenizer.error(), path_);
  }
  const auto special = GgufSpecialTokens::Read(gguf_->metadata());
  if (!special.ok()) return WithContext(special.error(), path_);
  MakeMergesAlike(&*tokenizer);
  files_.push_back({"tokenizer.json", tokenizer->Dump()});
  files_.push_back(
      {"tokenizer_config.json", TokenizerConfig(gguf_->metadata(), *special).DumpPretty()});
  return {};
}

const SourceFile* ModelSource::FindFile(std::string_view name) const {
  const auto found = std::find_if(files_.begin(), files_.end(),
                                  [&](const SourceFile& file) { return file.name == name; });
  return found == files_.end() ? nullptr : &*found;
}

Status ModelSource::CheckCanBeQuantized() const {
  const bool has_codes =
      std::any_of(tensors_.begin(), tensors_.end(), [](const SourceTensor& tensor) {
        return tensor.rows.read_row && IsQuantized(tensor.rows.stored_format);
      });
  if (!is_quantized_ && !has_codes) return {};
  return {ErrorCode::kInvalidArgument,
          path_ +
              " is quantized already; quantize the model it was made of, or convert it to bf16 "
              "first and accept that it loses twice"};
}

void ModelSource::AddFingerprint(const FileVersion& file) {
  fingerprint_ += file.path + " " + file.stamp + "\n";
}

int64_t ModelSource::ConfigInt(std::string_view field) const {
  const Json* const text = config_.Find("text_config");
  for (const Json* const config : {text, &config_}) {
    const Json* const value = config == nullptr ? nullptr : config->Find(field);
    if (value != nullptr && value->is_int()) return value->as_int();
  }
  return 0;
}

}  // namespace kvasir
