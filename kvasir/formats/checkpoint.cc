#include "kvasir/formats/checkpoint.h"

#include <set>

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

// Tensor to shard. ERRORS: kIo, kNotFound, kCorrupt.
Result<std::map<std::string, std::string, std::less<>>> ReadIndex(const std::string& path) {
  KVASIR_TRY(const Json json, Json::ParseFile(path));
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

}  // namespace

Result<Checkpoint> Checkpoint::Open(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.path_ = path;
  if (!DirectoryExists(path)) {
    KVASIR_TRY_OK(checkpoint.AddFile(path));
    return checkpoint;
  }
  const std::string index_path = path + "/model.safetensors.index.json";
  const std::string single_path = path + "/model.safetensors";
  if (FileExists(index_path)) {
    KVASIR_TRY_OK(checkpoint.AddShards(path, index_path));
  } else if (FileExists(single_path)) {
    KVASIR_TRY_OK(checkpoint.AddFile(single_path));
  } else {
    return {ErrorCode::kNotFound,
            path + ": holds neither model.safetensors nor model.safetensors.index.json"};
  }
  return checkpoint;
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
