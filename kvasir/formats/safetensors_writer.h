// SafetensorsWriter: writes a .safetensors file tensor by tensor, in little memory.
// Deliberately needs all names and shapes first: the header stands before the data.
#ifndef KVASIR_FORMATS_SAFETENSORS_WRITER_H_
#define KVASIR_FORMATS_SAFETENSORS_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/file_writer.h"
#include "kvasir/base/result.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {

struct TensorDeclaration {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// The file appears under its name when Finish succeeds, and not before. Movable.
class SafetensorsWriter {
 public:
  // Tensors are laid out in the declared order; declare wide types first to keep data aligned.
  // ERRORS: kInvalidArgument for names that are empty, reserved or repeated and for bad shapes;
  // kIo.
  static Result<SafetensorsWriter> Create(
      const std::string& path, std::vector<TensorDeclaration> tensors,
      const std::map<std::string, std::string, std::less<>>& metadata = {});

  // The next bytes of tensor `name` (row-major, little-endian). Tensors come in the declared order,
  // each in as many pieces as the caller likes. ERRORS: kInvalidArgument, kIo.
  Status Append(std::string_view name, std::span<const std::byte> bytes);
  // ERRORS: kInvalidArgument when a tensor is incomplete, kIo.
  Status Finish();

 private:
  SafetensorsWriter(FileWriter file, std::vector<TensorDeclaration> tensors);
  // Makes current_ the next tensor that has bytes, from current_ on.
  void EnterTensor();

  FileWriter file_;
  std::vector<TensorDeclaration> tensors_;
  size_t current_ = 0;          // index of the tensor being written
  uint64_t missing_bytes_ = 0;  // of that tensor
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_SAFETENSORS_WRITER_H_
