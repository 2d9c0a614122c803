// The front of a GGUF file: its metadata, and where its tensors lie.
// Deliberately knows no files: it parses bytes, so that hostile input can be tried without a disk.
// Byte-exact rules: docs/formats/gguf.md.
#ifndef KVASIR_FORMATS_GGUF_HEADER_H_
#define KVASIR_FORMATS_GGUF_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "kvasir/base/result.h"
#include "kvasir/formats/gguf_metadata.h"
#include "kvasir/formats/gguf_types.h"

namespace kvasir {

struct GgufEntry {
  std::string name;
  const GgufType* type = nullptr;  // never null; its decoder may be
  std::vector<int64_t> shape;      // outermost first, all positive; the file has it reversed
  uint64_t begin = 0;              // bytes from the start of the file
  uint64_t size_bytes = 0;
};

// Whether a file is one by its first bytes.
bool BeginsAsGguf(std::span<const std::byte> file);

struct GgufHeader {
  GgufMetadata metadata;  // borrows the file's bytes
  std::vector<GgufEntry> entries;

  // `file` is the whole file; only its front is read. Every entry lies inside it, and none
  // overlaps another. ERRORS: kCorrupt; kUnsupported for versions other than 2 and 3 and big-endian
  // files. The message names the key or tensor, not the file.
  static Result<GgufHeader> Parse(std::span<const std::byte> file);
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_GGUF_HEADER_H_
