#include "kvasir/convert/convert_model.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>
#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/base/file_writer.h"
#include "kvasir/base/system_error.h"
#include "kvasir/base/system_info.h"
#include "kvasir/convert/folder_builder.h"
#include "kvasir/convert/shard_writer.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

constexpr const char* kIndexName = "model.safetensors.index.json";
// Of the rules by which tensors are encoded: shards that a stopped run wrote by others are not
// kept.
constexpr const char* kEncodingVersion = "2";
constexpr size_t kCopyBytes = size_t{16} << 20;

Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return SystemStatus(path, error);
}

// Makes `folder` the place of this conversion: of what is there, only `files` that a stopped run of
// the same one completed remain, and `kept_folder`.
Status Resume(const std::string& folder, const std::string& fingerprint,
              const std::set<std::string>& files, const std::string& kept_folder) {
  const std::string state = folder + "/" + std::string(kConversionStateName);
  const auto found = Json::ParseFile(state, kMostTextBytes);
  const Json* const made_of = found.ok() ? found->Find("made_of") : nullptr;
  const bool is_same = made_of != nullptr && *made_of == Json(fingerprint);
  std::error_code error;
  std::vector<fs::path> others;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == kConversionStateName || (!kept_folder.empty() && name == kept_folder)) continue;
    if (!is_same || !files.contains(name)) others.push_back(at->path());
  }
  KVASIR_TRY_OK(SystemStatus(folder, error));
  for (const fs::path& path : others) {
    fs::remove_all(path, error);
    KVASIR_TRY_OK(SystemStatus(path.string(), error));
  }
  if (is_same) return {};
  return WriteFileAtomic(state, Json(Json::Object{{"made_of", fingerprint}}).Dump());
}

// What a stopped run wrote, whole: who cut it short meanwhile has it written again.
bool IsWritten(const std::string& shard) {
  return FileExists(shard) && SafetensorsFile::Open(shard).ok();
}

Status WriteIndex(const FolderPlan& plan, const std::string& folder) {
  if (plan.shards.size() == 1) return {};
  Json map = Json::Object();
  for (size_t i = 0; i < plan.shards.size(); ++i) {
    for (const PlannedTensor& tensor : plan.shards[i]) {
      for (const TensorDeclaration& part : tensor.Declarations()) {
        map.Set(part.name, plan.ShardName(i));
      }
    }
  }
  const Json index = Json::Object{{"metadata", Json::Object{{"total_size", plan.total_bytes}}},
                                  {"weight_map", std::move(map)}};
  return WriteFileAtomic(folder + "/" + kIndexName, index.DumpPretty());
}

// What Granite's layers are, in the words of published files: mlx-lm knows no others, and
// transformers, which writes its own, reads both.
void NameLayersAsPublished(Json* config) {
  const Json* const type = config->Find("model_type");
  Json* const layers = config->Find("layer_types");
  if (type == nullptr || *type != Json("granitemoehybrid") || layers == nullptr ||
      !layers->is_array()) {
    return;
  }
  for (Json& layer : layers->as_array()) {
    if (layer == Json("linear_attention")) layer = Json("mamba");
    if (layer == Json("full_attention")) layer = Json("attention");
  }
}

Status WriteConfig(const ModelSource& source, const FolderPlan& plan, const PlanOptions& options,
                   const std::string& folder) {
  Json config = source.config();
  // A copy of a quantized model stays what it was.
  const Json& quantization = plan.quantization;
  if (!quantization.is_null()) {
    config.Set("quantization", quantization);
    config.Set("quantization_config", quantization);
    NameLayersAsPublished(&config);
  }
  if (options.dtype) {
    const std::string_view name = *options.dtype == DType::kF32   ? "float32"
                                  : *options.dtype == DType::kF16 ? "float16"
                                                                  : "bfloat16";
    // Readers look for either field, and within text_config first.
    Json* const text = config.Find("text_config");
    for (Json* const level : {&config, text}) {
      for (const char* field : {"dtype", "torch_dtype"}) {
        if (level != nullptr && level->Find(field) != nullptr) level->Set(field, name);
      }
    }
    if (config.Find("dtype") == nullptr) config.Set("torch_dtype", name);
  }
  return WriteFileAtomic(folder + "/config.json", config.DumpPretty());
}

// What ModelOpt, AutoGPTQ and AutoAWQ write about how tensors are quantized, beside config.json.
bool IsAboutQuantization(std::string_view name) {
  return name == "hf_quant_config.json" || name == "quantize_config.json" ||
         name == "quant_config.json";
}

std::string FileName(const SafetensorsFile& file) {
  return fs::path(file.path()).filename().string();
}

Status CopyFile(const std::string& from, const std::string& to,
                const std::function<void(uint64_t)>& progress) {
  KVASIR_TRY(const MappedFile source, MappedFile::Open(from));
  KVASIR_TRY(FileWriter writer, FileWriter::Create(to));
  const std::span<const std::byte> all = source.bytes();
  for (size_t begin = 0; begin < all.size(); begin += kCopyBytes) {
    const auto piece = all.subspan(begin, std::min(kCopyBytes, all.size() - begin));
    KVASIR_TRY_OK(writer.Append(piece));
    ReleasePages(piece);
    progress(piece.size());
  }
  return writer.Commit();
}

// Every tensor as it is stored: quantized modules keep their parts.
Status CopyQuantized(const ModelSource& source, const std::string& folder,
                     const std::function<void(uint64_t)>& progress) {
  for (const SafetensorsFile& file : source.checkpoint()->files()) {
    const std::string to = folder + "/" + FileName(file);
    if (IsWritten(to)) {
      progress(file.data_bytes());
      continue;
    }
    KVASIR_TRY_OK(CopyFile(file.path(), to, progress));
  }
  const std::string index = source.path() + "/" + kIndexName;
  if (FileExists(index)) {
    KVASIR_TRY(const std::string contents, ReadFile(index));
    KVASIR_TRY_OK(WriteFileAtomic(folder + "/" + kIndexName, contents));
  }
  return WriteFileAtomic(folder + "/config.json", source.stored_config().DumpPretty());
}

Status WriteShards(const ModelSource& source, const FolderPlan& plan, const std::string& folder,
                   const WriteOptions& options, const std::function<void(uint64_t)>& progress) {
  ThreadPool pool(options.threads == 0 ? AvailableCores() : options.threads);
  ShardWriter writer(&pool, &progress);
  for (size_t i = 0; i < plan.shards.size(); ++i) {
    const std::string path = folder + "/" + plan.ShardName(i);
    if (IsWritten(path)) {
      for (const PlannedTensor& tensor : plan.shards[i]) progress(tensor.bytes());
      continue;
    }
    KVASIR_TRY_OK(writer.Write(path, plan.shards[i], plan.quantization.is_null() ? "pt" : "mlx"));
  }
  KVASIR_TRY_OK(WriteIndex(plan, folder));
  return WriteConfig(source, plan, options.plan, folder);
}

}  // namespace

Result<PlanOptions> PlanFor(const ModelSource& source, const std::string& type, int group_size) {
  PlanOptions options;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    if (DTypeName(dtype) == type) options.dtype = dtype;
  }
  const bool is_stored = type == "stored";
  if ((is_stored || options.dtype) && group_size != 0) {
    return {ErrorCode::kInvalidArgument,
            "a group size is for int2 to int8; " + type + " has no groups to choose"};
  }
  if (is_stored) return options;
  KVASIR_TRY_OK(CheckCanBeDecoded(source));
  if (options.dtype) return options;
  auto format = MlxFormatFromName(type, group_size);
  if (!format.ok()) {
    const bool is_known = MlxFormatFromName(type).ok();
    const char* const others = is_known ? ""
                                        : "; without quantization f32, f16, bf16 or stored; "
                                          "types of GGUF are for files named .gguf";
    return {ErrorCode::kInvalidArgument, format.error().message + others};
  }
  KVASIR_TRY_OK(source.CheckCanBeQuantized());
  options.quantize = QuantizePolicy{.base = *format, .layers = source.layers(), .is_draft = false};
  return options;
}

Status WriteModelFolder(const ModelSource& source, const std::string& folder,
                        const WriteOptions& options) {
  const bool stays_quantized =
      source.is_quantized() && !options.plan.dtype && !options.plan.quantize;
  KVASIR_TRY(const FolderPlan plan, PlanFolder(source, options.plan));
  std::set<std::string> files;
  uint64_t total = plan.total_bytes;
  if (stays_quantized) {
    for (const SafetensorsFile& file : source.checkpoint()->files()) files.insert(FileName(file));
    total = source.checkpoint()->total_bytes();
  } else {
    for (size_t i = 0; i < plan.shards.size(); ++i) files.insert(plan.ShardName(i));
  }
  // Parts as stored and the same tensors decoded are no one conversion.
  const std::string kind =
      stays_quantized ? "as stored\n" : std::string("encoded ") + kEncodingVersion + "\n";
  KVASIR_TRY_OK(
      Resume(folder, source.fingerprint() + kind + plan.Fingerprint(), files, options.kept_folder));
  uint64_t done = 0;
  const std::function<void(uint64_t)> progress = [&](uint64_t bytes) {
    done = std::min(done + bytes, total);
    if (options.progress) options.progress(done, total);
  };
  KVASIR_TRY_OK(stays_quantized ? CopyQuantized(source, folder, progress)
                                : WriteShards(source, plan, folder, options, progress));
  for (const SourceFile& file : source.files()) {
    if (source.is_quantized() && !stays_quantized && IsAboutQuantization(file.name)) continue;
    const std::string path = folder + "/" + file.name;
    KVASIR_TRY_OK(MakeFolder(fs::path(path).parent_path().string()));
    KVASIR_TRY_OK(WriteFileAtomic(path, file.contents));
  }
  FlushFolder(folder);
  return {};
}

}  // namespace kvasir
