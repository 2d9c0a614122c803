// GgufWriter: writes a GGUF v3 file: metadata, then tensors one after the other.
// Deliberately needs all names and shapes first, and knows no model: docs/formats/gguf.md.
#ifndef KVASIR_FORMATS_GGUF_WRITER_H_
#define KVASIR_FORMATS_GGUF_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/file_writer.h"
#include "kvasir/base/result.h"
#include "kvasir/formats/gguf_types.h"

namespace kvasir {

// The pairs of a file, in the order in which they are added.
class GgufPairs {
 public:
  void Add(std::string_view key, std::string_view text);
  void AddU32(std::string_view key, uint32_t value);
  void AddI32(std::string_view key, int32_t value);
  void AddF32(std::string_view key, float value);
  void AddBool(std::string_view key, bool value);
  void AddTexts(std::string_view key, const std::vector<std::string>& texts);
  void AddU32s(std::string_view key, const std::vector<uint32_t>& values);
  void AddI32s(std::string_view key, const std::vector<int32_t>& values);
  void AddF32s(std::string_view key, const std::vector<float>& values);
  void AddBools(std::string_view key, const std::vector<bool>& values);

  // All of `pairs`, after these.
  void Append(const GgufPairs& pairs);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void Begin(std::string_view key, uint32_t type);
  void BeginArray(std::string_view key, uint32_t type, uint64_t count);
  void PutText(std::string_view text);

  std::string bytes_;
  uint64_t count_ = 0;
};

struct GgufDeclaration {
  std::string name;
  const GgufType* type = nullptr;
  std::vector<int64_t> shape;  // outermost first; rows of whole blocks

  uint64_t bytes() const;
};

// The file appears under its name when Finish succeeds, and not before. Movable.
class GgufWriter {
 public:
  // ERRORS: kInvalidArgument for repeated or long names and bad shapes; kFailedPrecondition when
  // the file exists; kIo.
  static Result<GgufWriter> Create(const std::string& path, const GgufPairs& pairs,
                                   std::vector<GgufDeclaration> tensors);

  // The next bytes of tensor `index`. Tensors come in the declared order. ERRORS: kIo,
  // kInvalidArgument.
  Status Append(size_t index, std::span<const std::byte> bytes);
  // ERRORS: kInvalidArgument when a tensor is incomplete, kIo.
  Status Finish();

 private:
  GgufWriter(FileWriter file, std::vector<GgufDeclaration> tensors)
      : file_(std::move(file)), tensors_(std::move(tensors)) {}
  Status Pad();

  FileWriter file_;
  std::vector<GgufDeclaration> tensors_;
  size_t current_ = 0;
  uint64_t written_bytes_ = 0;  // of the current tensor
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_WRITER_H_
