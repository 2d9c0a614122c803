// SafetensorsFile: one mapped .safetensors file and views of its tensors.
// Deliberately reads nothing but the header: weights are paged in when somebody touches them.
#ifndef KVASIR_FORMATS_SAFETENSORS_H_
#define KVASIR_FORMATS_SAFETENSORS_H_

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/file.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/safetensors_header.h"
#include "kvasir/tensor/tensor_view.h"

namespace kvasir {

// Movable; views stay valid when it moves and end with it. Data may be unaligned.
// The file must not be shortened while it is open: the kernel would end the process (SIGBUS).
class SafetensorsFile {
 public:
  // ERRORS: kNotFound, kIo, kCorrupt, kUnsupported; the message begins with the path and names the
  // tensor.
  static Result<SafetensorsFile> Open(const std::string& path);

  const std::string& path() const { return path_; }
  const FileVersion& version() const { return file_.version(); }
  // Null when there is no such tensor.
  const TensorView* Find(std::string_view name) const;
  // By name, in byte order of the names.
  const std::map<std::string, TensorView, std::less<>>& tensors() const { return tensors_; }
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  uint64_t data_bytes() const { return data_bytes_; }

 private:
  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}

  std::string path_;
  MappedFile file_;
  std::map<std::string, TensorView, std::less<>> tensors_;
  std::map<std::string, std::string, std::less<>> metadata_;
  uint64_t data_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_SAFETENSORS_H_
