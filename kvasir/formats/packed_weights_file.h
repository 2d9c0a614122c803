// PackedWeightsFile: the packed matrices of a model in a file, ready to be multiplied with where
// they are mapped (docs/formats/packed-weights.md). Deliberately no exchange format: it belongs to
// one build's panel layout and one model's files, and whatever does not fit is refused, to be
// packed anew.
#ifndef KVASIR_FORMATS_PACKED_WEIGHTS_FILE_H_
#define KVASIR_FORMATS_PACKED_WEIGHTS_FILE_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "kvasir/base/file.h"
#include "kvasir/base/file_writer.h"
#include "kvasir/base/result.h"
#include "kvasir/tensor/packed_matrix.h"

namespace kvasir {

struct PackedWeightsEntry {
  int64_t outputs = 0;
  int64_t inputs = 0;
  std::string format;  // WeightFormatName
  AffineScales affine;
  std::span<const std::byte> panels;  // in the file
};

using PackedWeightsIndex = std::map<std::string, PackedWeightsEntry, std::less<>>;

// What such a file holds, by key. All panels lie within `file` and begin at multiples of 64 bytes
// from its start; nothing else about them has been looked at.
// ERRORS: kUnsupported (another version, another order of bytes), kInvalidArgument (made of
// something else than `fingerprint` says), kCorrupt.
Result<PackedWeightsIndex> ParsePackedWeights(std::span<const std::byte> file,
                                              std::string_view fingerprint);

class PackedWeightsFile {
 public:
  // Maps the file. It must not be shortened while a matrix of it lives: the kernel would end the
  // process (SIGBUS). ERRORS: kNotFound, kIo, those of ParsePackedWeights; the message names the
  // path.
  static Result<PackedWeightsFile> Open(const std::string& path, std::string_view fingerprint);

  // The matrix of that key, over the mapped file, which it keeps alive.
  // ERRORS: kNotFound; kCorrupt if it has another shape or another size.
  Result<PackedMatrix> Find(std::string_view key, const PackedShape& shape) const;

 private:
  PackedWeightsFile(std::shared_ptr<const MappedFile> file, PackedWeightsIndex index)
      : file_(std::move(file)), index_(std::move(index)) {}

  std::shared_ptr<const MappedFile> file_;
  PackedWeightsIndex index_;
};

// Writes such a file, a matrix at a time. Movable; destroyed without Commit, it leaves nothing.
class PackedWeightsWriter {
 public:
  // ERRORS: as FileWriter::Create.
  static Result<PackedWeightsWriter> Create(const std::string& path, std::string fingerprint);

  // A key that was there before is passed over. ERRORS: kIo.
  Status Append(const std::string& key, const PackedMatrix& matrix);
  // The file appears under its name, in place of an older one. ERRORS: kIo.
  Status Commit();

  size_t matrices() const { return entries_.size(); }
  uint64_t size_bytes() const { return file_.size_bytes(); }

 private:
  struct Entry {
    PackedShape shape;
    uint64_t offset = 0;
    uint64_t size_bytes = 0;
  };

  PackedWeightsWriter(FileWriter file, std::string fingerprint)
      : file_(std::move(file)), fingerprint_(std::move(fingerprint)) {}
  Status AlignEnd();
  std::string IndexBytes() const;

  FileWriter file_;
  std::string fingerprint_;
  std::map<std::string, Entry> entries_;
};

}  // namespace kvasir

#endif  // KVASIR_FORMATS_PACKED_WEIGHTS_FILE_H_
