// The header of a safetensors file: which tensors there are, and where their bytes lie.
// Deliberately knows no files: it parses bytes, so that hostile input can be tried without a disk.
// Byte-exact rules: docs/formats/safetensors.md.
#ifndef KVASIR_FORMATS_SAFETENSORS_HEADER_H_
#define KVASIR_FORMATS_SAFETENSORS_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/tensor/dtype.h"

namespace kvasir {

struct SafetensorsEntry {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;  // outermost first; empty for a scalar
  uint64_t begin = 0;          // bytes from the start of the data, [begin, end)
  uint64_t end = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsEntry> entries;  // ascending by begin: gapless, without overlaps
  std::map<std::string, std::string, std::less<>> metadata;  // "__metadata__"
  uint64_t data_offset = 0;  // bytes before the data: 8 plus the header's length

  // Parses and checks the front of a file. `file` is the whole file: its size must be exactly that
  // of header and data. Only the header's bytes are read.
  // ERRORS: kCorrupt; kUnsupported for an element type this build cannot hold. The message names
  // the tensor, not the file.
  static Result<SafetensorsHeader> Parse(std::span<const std::byte> file);
};

// "BF16" and so on. ERRORS: kUnsupported, naming the type.
Result<DType> DTypeFromSafetensors(std::string_view name);
// The inverse, for writers.
std::string_view SafetensorsDTypeName(DType dtype);

// Bytes of a dense tensor. ERRORS: kCorrupt when an extent is negative or the size passes 2^63 - 1.
Result<uint64_t> DenseTensorBytes(DType dtype, const std::vector<int64_t>& shape);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_SAFETENSORS_HEADER_H_
