#include "kvasir/formats/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <set>
#include <system_error>

#include "kvasir/base/file.h"
#include "kvasir/base/json.h"

namespace kvasir {
namespace {

Error Corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

// A plain name in the same folder: an index must not reach anywhere else.
bool IsShardName(std::string_view name) {
  return name.ends_with(".safetensors") && name.find_first_of("/\\") == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

// 100 bytes a tensor: of half a million.
constexpr size_t kMostIndexBytes = size_t{64} << 20;

// Tensor to shard. ERRORS: kIo, kNotFound, kCorrupt.
Result<std::map<std::string, std::string, std::less<>>> ReadIndex(const std::string& path) {
  KVASIR_TRY(const Json json, Json::ParseFile(path, kMostIndexBytes));
  const Json* weights = json.Find("weight_map");
  if (weights == nullptr || !weights->is_object()) {
    return Corrupt(path + ": field 'weight_map' must be an object");
  }
  std::map<std::string, std::string, std::less<>> index;
  for (const auto& [tensor, shard] : weights->as_object()) {
    if (!shard.is_string() || !IsShardName(shard.as_string())) {
      return Corrupt(path + ": tensor '" + tensor +
                     "' must map to the name of a .safetensors file in the same folder");
    }
    index.emplace(tensor, shard.as_string());
  }
  return index;
}

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";

// "model-00002-of-00007.safetensors" is the second of seven.
std::string ShardName(int number, int count) {
  char name[48];
  std::snprintf(name, sizeof(name), "model-%05d-of-%05d.safetensors", number, count);
  return name;
}

// How many there are by such a name; 0 for another name.
int ShardCount(const std::string& name) {
  int number = 0;
  int count = 0;
  const bool is_read = std::sscanf(name.c_str(), "model-%5d-of-%5d", &number, &count) == 2;
  return is_read && number > 0 && name == ShardName(number, count) ? count : 0;
}

bool IsNamedLikeWeights(std::string_view name) {
  if (name == kIndexName || name.ends_with(".safetensors") || name.ends_with(".gguf")) return true;
  return (name.starts_with("pytorch_model") && name.ends_with(".bin")) ||
         (name.starts_with("consolidated") && name.ends_with(".pth")) ||
         (name.starts_with("weights") && name.ends_with(".npz"));
}

bool HasNoShard(const std::string& folder, const std::string& index_path) {
  const auto index = ReadIndex(index_path);
  return index.ok() && std::none_of(index->begin(), index->end(), [&](const auto& entry) {
           return FileExists(folder + "/" + entry.second);
         });
}

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  if (!DirectoryExists(path)) {
    KVASIR_TRY_OK(checkpoint.AddFile(path));
    return checkpoint;
  }
  const std::string index_path = path + "/" + std::string(kIndexName);
  const std::string single_path = path + "/" + std::string(kSingleName);
  // An index whose shards went is left over from what the single file was made of.
  if (FileExists(index_path) && !(FileExists(single_path) && HasNoShard(path, index_path))) {
    KVASIR_TRY_OK(checkpoint.AddShards(path, index_path));
  } else if (FileExists(single_path)) {
    KVASIR_TRY_OK(checkpoint.AddFile(single_path));
  } else {
    KVASIR_TRY_OK(checkpoint.AddShardsWithoutIndex(path));
  }
  return checkpoint;
}

std::vector<std::string> Checkpoint::WeightFiles(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    std::string name = entry->path().filename().string();
    if (IsNamedLikeWeights(name)) names.push_back(std::move(name));
  }
  std::sort(names.begin(), names.end());
  return names;
}

Status Checkpoint::AddFile(const std::string& path) {
  KVASIR_TRY(SafetensorsFile opened, SafetensorsFile::Open(path));
  const size_t index = files_.size();
  files_.push_back(std::move(opened));
  // Moving a SafetensorsFile moves its map's nodes, so the views stay where they are.
  for (const auto& [name, view] : files_.back().tensors()) {
    const auto [position, is_new] = tensors_.emplace(name, std::pair(index, &view));
    if (!is_new) {
      return Corrupt("tensor '" + name + "' is in two shards: " +
                     files_[position->second.first].path() + " and " + path);
    }
  }
  total_bytes_ += files_.back().data_bytes();
  return {};
}

Status Checkpoint::AddShards(const std::string& folder, const std::string& index_path) {
  KVASIR_TRY(const auto index, ReadIndex(index_path));
  std::set<std::string> shards;
  for (const auto& [tensor, shard] : index) shards.insert(shard);
  for (const std::string& shard : shards) {
    const Status added = AddFile(folder + "/" + shard);
    if (!added.ok()) return WithContext(added.error(), index_path + " names a shard");
  }
  for (const auto& [tensor, shard] : index) {
    const auto found = tensors_.find(tensor);
    const std::string expected = folder + "/" + shard;
    if (found == tensors_.end() || files_[found->second.first].path() != expected) {
      return Corrupt(expected + ": has no tensor '" + tensor + "', but " + index_path +
                     " says so: the download is incomplete or mixed");
    }
  }
  for (const auto& [tensor, location] : tensors_) {
    if (!index.contains(tensor)) {
      return Corrupt(files_[location.first].path() + ": tensor '" + tensor + "' is not listed in " +
                     index_path + ": index and shards are of different versions");
    }
  }
  return {};
}

Status Checkpoint::AddShardsWithoutIndex(const std::string& folder) {
  const std::vector<std::string> names = WeightFiles(folder);
  int count = 0;
  for (const std::string& name : names) {
    // A link that leads nowhere, as FileExists says.
    if (name == kIndexName || name == kSingleName) return AddFile(folder + "/" + name);
    count = std::max(count, ShardCount(name));
  }
  for (int i = 1; i <= count; ++i) {
    const std::string name = ShardName(i, count);
    if (!std::binary_search(names.begin(), names.end(), name)) {
      return Corrupt(folder + "/" + name + ": is missing: the download is incomplete");
    }
    KVASIR_TRY_OK(AddFile(folder + "/" + name));
  }
  if (count > 0) return {};
  std::string message = folder + ": holds neither " + std::string(kSingleName) + " nor " +
                        std::string(kIndexName) + " nor " + ShardName(1, 1);
  if (!names.empty()) message.append(", but ").append(names[0]);
  return {ErrorCode::kNotFound, std::move(message)};
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : found->second.second;
}

const std::string& Checkpoint::FileOf(std::string_view name) const {
  return files_[tensors_.find(name)->second.first].path();
}

Result<TensorView> Checkpoint::Get(std::string_view name, const std::vector<int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    return {ErrorCode::kNotFound, path_ + ": tensor '" + std::string(name) + "' is missing"};
  }
  const auto& [file, view] = found->second;
  const std::string where = files_[file].path() + ": tensor '" + std::string(name) + "'";
  if (view->shape != shape) {
    return Corrupt(where + " has shape " + ShapeString(view->shape) + ", the model needs " +
                   ShapeString(shape));
  }
  if (!IsFloatType(view->dtype)) {
    return {ErrorCode::kUnsupported, where + " is " + std::string(DTypeName(view->dtype)) +
                                         "; weights must be f32, f16 or bf16"};
  }
  return *view;
}

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) names.push_back(name);
  return names;
}

}  // namespace kvasir
