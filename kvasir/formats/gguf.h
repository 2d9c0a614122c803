// GgufFile: a mapped GGUF model, whether it is one file or split into parts.
// Deliberately knows no model: names and shapes are asked for, never guessed, but for projections
// that are three tensors in one (gguf_fused.cc).
#ifndef KVASIR_FORMATS_GGUF_H_
#define KVASIR_FORMATS_GGUF_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/gguf_header.h"
#include "kvasir/tensor/weight_tensor.h"

namespace kvasir {

// True for the path of a GGUF file, by its name alone: for files that are yet to be written.
bool IsGgufPath(std::string_view path);
// True for a model that is a GGUF file: by its name, or a file that begins as one whatever it is
// called (Ollama's blobs).
bool IsGguf(const std::string& path);

// Owns its maps. Movable; what it gave out stays valid when it moves and ends with it. The files
// must not be shortened while they are open: the kernel would end the process (SIGBUS).
class GgufFile {
 public:
  // `path` is a .gguf file; of a split model its first part ("...-00001-of-00003.gguf"), the others
  // are found beside it. ERRORS: kNotFound, kIo, kCorrupt, kUnsupported, naming file and tensor.
  static Result<GgufFile> Open(const std::string& path);

  // Of the first part, which has that of the model.
  const GgufMetadata& metadata() const { return headers_.front().metadata; }
  const std::string& path() const { return path_; }
  // Null when there is no such tensor.
  const GgufEntry* Find(std::string_view name) const;
  // A tensor of exactly this shape. ERRORS: kNotFound; kCorrupt for another shape, naming both;
  // kUnsupported for an element type this build does not decode.
  Result<WeightTensor> Get(std::string_view name, const std::vector<int64_t>& shape) const;

  std::vector<std::string> names() const;  // in byte order
  size_t part_count() const { return files_.size(); }
  std::vector<FileVersion> part_versions() const;
  uint64_t total_bytes() const { return total_bytes_; }  // of tensor data

 private:
  GgufFile() = default;
  Status AddPart(const std::string& path);
  Status AddOtherParts();
  Status SplitFusedProjections();

  std::string path_;
  std::vector<MappedFile> files_;
  std::vector<GgufHeader> headers_;
  // Part and entry.
  std::map<std::string, std::pair<size_t, size_t>, std::less<>> tensors_;
  uint64_t total_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_H_
