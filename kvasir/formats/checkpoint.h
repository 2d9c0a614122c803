// Checkpoint: every tensor of a model folder, whether it is one file or many.
// Deliberately knows no model: names and shapes are asked for, never guessed.
#ifndef KVASIR_FORMATS_CHECKPOINT_H_
#define KVASIR_FORMATS_CHECKPOINT_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/safetensors.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {

// Owns the maps of its files. Movable; views stay valid when it moves and end with it.
class Checkpoint {
 public:
  // `path` is a .safetensors file, or a folder with model.safetensors.index.json (which wins),
  // model.safetensors or all of model-00001-of-N.safetensors. Every shard is opened, and index and
  // shards must agree: each tensor in exactly the shard the index names, none in two, none
  // unlisted. ERRORS: kNotFound, kIo, kCorrupt, kUnsupported; the message names the file and the
  // tensor.
  static Result<Checkpoint> Open(const std::string& path);

  // Names of the files in a folder that are named like weights of any kind, be they links that lead
  // nowhere; sorted.
  static std::vector<std::string> WeightFiles(const std::string& folder);

  // Null when there is no such tensor.
  const TensorView* Find(std::string_view name) const;
  // The file that holds it. REQUIRES: Find(name) is not null.
  const std::string& FileOf(std::string_view name) const;
  // A float tensor of exactly this shape. ERRORS: kNotFound; kCorrupt for another shape, naming
  // both; kUnsupported for a type that is not f32, f16 or bf16.
  Result<TensorView> Get(std::string_view name, const std::vector<int64_t>& shape) const;

  // All names, in byte order.
  std::vector<std::string> names() const;
  // Of tensor data, without headers.
  uint64_t total_bytes() const { return total_bytes_; }
  const std::vector<SafetensorsFile>& files() const { return files_; }
  const std::string& path() const { return path_; }

 private:
  Checkpoint() = default;
  Status AddFile(const std::string& path);
  Status AddShards(const std::string& folder, const std::string& index_path);
  Status AddShardsWithoutIndex(const std::string& folder);

  std::string path_;
  std::vector<SafetensorsFile> files_;
  // Views into files_; each name with the index of its file.
  std::map<std::string, std::pair<size_t, const TensorView*>, std::less<>> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_CHECKPOINT_H_
