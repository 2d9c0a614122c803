#include "kvasir/convert/convert_model.h"

#include <fcntl.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>
#include <utility>

#include "kvasir/base/file.h"
#include "kvasir/base/system_info.h"
#include "kvasir/convert/shard_writer.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateName = "conversion.json";

Status SystemStatus(const std::string& path, const std::error_code& error) {
  return error ? Status(ErrorCode::kIo, path + ": " + error.message()) : Status();
}

Status MakeFolder(const std::string& path) {
  std::error_code error;
  fs::create_directories(path, error);
  return SystemStatus(path, error);
}

// Renames of and in a folder survive a crash once it is flushed.
void FlushFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

// Makes `folder` the place of this conversion: what another one left there goes.
Status Resume(const std::string& folder, const std::string& fingerprint) {
  const std::string state = folder + "/" + kStateName;
  const auto found = Json::ParseFile(state);
  if (found.ok()) {
    const Json* const made_of = found->Find("made_of");
    if (made_of != nullptr && *made_of == Json(fingerprint)) return {};
  }
  std::error_code error;
  for (fs::directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".safetensors") fs::remove(at->path(), error);
  }
  KVASIR_TRY_OK(SystemStatus(folder, error));
  return WriteFileAtomic(state, Json(Json::Object{{"made_of", fingerprint}}).Dump());
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
  return WriteFileAtomic(folder + "/model.safetensors.index.json", index.DumpPretty());
}

Status WriteConfig(const ModelSource& source, const FolderPlan& plan, const PlanOptions& options,
                   const std::string& folder) {
  Json config = source.config();
  // A copy of a quantized model stays what it was.
  const Json& quantization = plan.quantization;
  if (!quantization.is_null()) {
    config.Set("quantization", quantization);
    config.Set("quantization_config", quantization);
  }
  if (options.dtype) {
    const std::string_view name = *options.dtype == DType::kF32   ? "float32"
                                  : *options.dtype == DType::kF16 ? "float16"
                                                                  : "bfloat16";
    config.Set(config.Find("dtype") != nullptr ? "dtype" : "torch_dtype", name);
  }
  return WriteFileAtomic(folder + "/config.json", config.DumpPretty());
}

// Every tensor as it is stored: quantized modules keep their parts.
Status CopyQuantized(const ModelSource& source, const std::string& folder) {
  std::error_code error;
  for (const SafetensorsFile& file : source.checkpoint()->files()) {
    const fs::path to = fs::path(folder) / fs::path(file.path()).filename();
    if (fs::exists(to, error)) continue;
    const fs::path temporary = to.string() + ".tmp";
    fs::copy_file(file.path(), temporary, fs::copy_options::overwrite_existing, error);
    if (!error) fs::rename(temporary, to, error);
    KVASIR_TRY_OK(SystemStatus(to.string(), error));
  }
  const fs::path index = fs::path(source.path()) / "model.safetensors.index.json";
  if (fs::exists(index, error)) {
    fs::copy_file(index, fs::path(folder) / index.filename(), fs::copy_options::overwrite_existing,
                  error);
  }
  KVASIR_TRY_OK(SystemStatus(folder, error));
  Json config = source.config();
  config.Set("quantization", source.quantization());
  config.Set("quantization_config", source.quantization());
  return WriteFileAtomic(folder + "/config.json", config.DumpPretty());
}

}  // namespace

Result<PlanOptions> PlanFor(const ModelSource& source, const std::string& type, int group_size) {
  PlanOptions options;
  if (type == "stored") return options;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBf16}) {
    if (DTypeName(dtype) == type) options.dtype = dtype;
  }
  if (options.dtype) return options;
  auto format = MlxFormatFromName(type, group_size);
  if (!format.ok()) {
    return {ErrorCode::kInvalidArgument,
            format.error().message + "; without quantization f32, f16, bf16 or stored"};
  }
  if (!source.quantization().is_null()) {
    return {ErrorCode::kInvalidArgument,
            source.path() +
                " is quantized already; quantize the model it was made of, or convert "
                "it to bf16 first and accept that it loses twice"};
  }
  options.quantize = QuantizePolicy{.base = *format, .layers = source.layers(), .is_draft = false};
  return options;
}

Status WriteModelFolder(const ModelSource& source, const std::string& folder,
                        const WriteOptions& options) {
  const bool stays_quantized =
      !source.quantization().is_null() && !options.plan.dtype && !options.plan.quantize;
  KVASIR_TRY(const FolderPlan plan, PlanFolder(source, options.plan));
  KVASIR_TRY_OK(Resume(folder, source.fingerprint() + plan.Fingerprint()));
  if (stays_quantized) {
    KVASIR_TRY_OK(CopyQuantized(source, folder));
    const uint64_t bytes = source.checkpoint()->total_bytes();
    if (options.progress) options.progress(bytes, bytes);
  } else {
    ThreadPool pool(options.threads == 0 ? AvailableCores() : options.threads);
    uint64_t done = 0;
    const std::function<void(uint64_t)> progress = [&](uint64_t bytes) {
      done += bytes;
      if (options.progress) options.progress(done, plan.total_bytes);
    };
    ShardWriter writer(&pool, &progress);
    for (size_t i = 0; i < plan.shards.size(); ++i) {
      const std::string path = folder + "/" + plan.ShardName(i);
      if (FileExists(path)) {
        for (const PlannedTensor& tensor : plan.shards[i]) progress(tensor.bytes());
        continue;
      }
      KVASIR_TRY_OK(writer.Write(path, plan.shards[i], plan.quantization.is_null() ? "pt" : "mlx"));
    }
    KVASIR_TRY_OK(WriteIndex(plan, folder));
    KVASIR_TRY_OK(WriteConfig(source, plan, options.plan, folder));
  }
  for (const SourceFile& file : source.files()) {
    const std::string path = folder + "/" + file.name;
    KVASIR_TRY_OK(MakeFolder(fs::path(path).parent_path().string()));
    KVASIR_TRY_OK(WriteFileAtomic(path, file.contents));
  }
  FlushFolder(folder);
  return {};
}

Result<FolderBuilder> FolderBuilder::Create(const std::string& path) {
  fs::path clean = fs::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // a trailing slash
  if (clean.empty() || clean == "." || clean == "..") {
    return {ErrorCode::kInvalidArgument, "'" + path + "' names no new folder"};
  }
  std::error_code error;
  if (fs::exists(clean, error)) {
    return {ErrorCode::kFailedPrecondition,
            clean.string() + " exists; remove it or choose another name"};
  }
  FolderBuilder builder(clean.string(), clean.string() + ".partial");
  KVASIR_TRY_OK(MakeFolder(builder.partial_));
  return builder;
}

Status FolderBuilder::Commit() {
  std::error_code error;
  std::vector<fs::path> states;
  for (fs::recursive_directory_iterator at(partial_, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename() == kStateName) states.push_back(at->path());
  }
  for (const fs::path& state : states) fs::remove(state, error);
  if (error) return SystemStatus(partial_, error);
  fs::rename(partial_, path_, error);
  if (error) return SystemStatus(path_, error);
  const std::string parent = fs::path(path_).parent_path().string();
  FlushFolder(parent.empty() ? "." : parent);
  return {};
}

}  // namespace kvasir
