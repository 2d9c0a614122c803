// ModelSource: a model to be converted: its tensors under checkpoint names, its config, and the
// files that belong to it.
// Deliberately keeps everything it cannot interpret as it is: an unknown architecture in a folder
// can be copied and quantized too.
#ifndef KVASIR_CONVERT_MODEL_SOURCE_H_
#define KVASIR_CONVERT_MODEL_SOURCE_H_

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/json.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/checkpoint.h"
#include "kvasir/formats/checkpoint_quantization.h"
#include "kvasir/formats/gguf.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

struct SourceTensor {
  std::string name;
  std::vector<int64_t> shape;
  DType dtype = DType::kBf16;  // of `raw`; of decoded rows what they are written as
  // The tensor as it is stored dense; null for one that is decoded.
  const std::byte* raw = nullptr;
  // Rows as floats; empty for tensors of integers.
  WeightTensor rows;
  float offset = 0;  // added to every number
};

// A file of the model that is no tensor: carried over as it is.
struct SourceFile {
  std::string name;  // relative to the folder
  std::string contents;
};

class ModelSource;

// Whether the model could be loaded: of a known family with all its tensors.
// ERRORS: kUnsupported, kNotFound, kCorrupt, naming field or tensor.
Status CheckRuns(const ModelSource& source);

// Tensors that the model's decoder never asks for, by the names of their files. ERRORS: as
// CheckRuns.
Result<std::vector<std::string>> UnreadTensorsOf(const ModelSource& source);

// ERRORS: where quantized tensors cannot be decoded, what undecodable() says.
Status CheckCanBeDecoded(const ModelSource& source);

// Movable; owns the maps that its tensors borrow.
class ModelSource {
 public:
  // A folder with config.json and safetensors, or a .gguf file.
  // ERRORS: kNotFound, kIo, kCorrupt, kUnsupported, naming file and tensor.
  static Result<ModelSource> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // In byte order of the names. Quantized modules of a folder are one tensor each, decoded.
  const std::vector<SourceTensor>& tensors() const { return tensors_; }
  // config.json, without what it says of quantized modules.
  const Json& config() const { return config_; }
  // Whether any of tensors() is a quantized module of a folder.
  bool is_quantized() const { return is_quantized_; }
  // config.json as it is, which describes the checkpoint as it is stored.
  const Json& stored_config() const { return stored_config_; }
  // Why quantized modules cannot be decoded; tensors() are then their parts, and config() says all.
  // Nothing where they can.
  const std::optional<Error>& undecodable() const { return undecodable_; }
  // ERRORS: kInvalidArgument for what is quantized already, which would lose twice.
  Status CheckCanBeQuantized() const;
  // Tokenizer, chat template, generation_config.json and so on.
  const std::vector<SourceFile>& files() const { return files_; }
  const SourceFile* FindFile(std::string_view name) const;  // null when there is none
  // Every tensor of a folder as stored, quantized modules in their parts.
  const Checkpoint* checkpoint() const { return checkpoint_ ? &*checkpoint_ : nullptr; }
  // Tensors of a GGUF file that no decoder reads, and that are not among tensors(); of a folder all
  // are. See UnreadTensorsOf.
  const std::vector<std::string>& left_out() const { return left_out_; }
  // Changes whenever a file of the model may have.
  const std::string& fingerprint() const { return fingerprint_; }
  // Members of text_config win, as everywhere.
  int64_t layers() const { return ConfigInt("num_hidden_layers"); }
  int64_t vocab_size() const { return ConfigInt("vocab_size"); }

 private:
  ModelSource() = default;
  Status OpenFolder();
  Status OpenGguf();
  Status ReadQuantization();
  Status AddTensor(const std::string& name);
  Status AddTensors();
  Status AddFiles();
  Status AddPackageFile();
  void AddFingerprint(const FileVersion& file);
  int64_t ConfigInt(std::string_view field) const;  // 0 when absent

  std::string path_;
  std::optional<Checkpoint> checkpoint_;
  std::optional<GgufFile> gguf_;
  std::vector<SourceTensor> tensors_;
  Json config_;
  Json stored_config_;
  CheckpointQuantization quantization_;
  bool is_quantized_ = false;
  std::optional<Error> undecodable_;
  std::vector<SourceFile> files_;
  std::vector<std::string> left_out_;
  std::string fingerprint_;
};

}  // namespace kvasir

#endif  // KVASIR_CONVERT_MODEL_SOURCE_H_
