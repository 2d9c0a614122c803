// NumPy's .npy files, as far as logits and activations need them: float32 matrices.
// Deliberately no other types, ranks, orders or versions; others' files are refused by name.
#ifndef KVASIR_FORMATS_NPY_H_
#define KVASIR_FORMATS_NPY_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/base/file_writer.h"
#include "kvasir/base/result.h"

namespace kvasir {

// How such a file begins.
inline constexpr std::string_view kNpyMagic("\x93NUMPY");

// Writes a [rows, cols] float32 .npy (format version 1.0), row by row; the number of rows need not
// be known before. The file appears under its name when Finish succeeds. Movable.
class NpyWriter {
 public:
  // ERRORS: kInvalidArgument for negative cols; kIo.
  static Result<NpyWriter> Create(const std::string& path, int64_t cols);

  // `row` holds cols floats. ERRORS: kInvalidArgument, kIo.
  Status AppendRow(std::span<const float> row);
  // ERRORS: kIo.
  Status Finish();

  int64_t rows() const { return rows_; }

 private:
  NpyWriter(FileWriter file, int64_t cols) : file_(std::move(file)), cols_(cols) {}

  FileWriter file_;
  int64_t cols_ = 0;
  int64_t rows_ = 0;
};

struct NpyMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;  // row-major
};

// Reads what NpyWriter writes and NumPy saves for a C-ordered float32 matrix.
// ERRORS: kCorrupt, kUnsupported.
Result<NpyMatrix> ParseNpy(std::span<const std::byte> file);
// ERRORS: as ParseNpy, and kNotFound, kIo; the message begins with the path.
Result<NpyMatrix> ReadNpy(const std::string& path);

}  // namespace kvasir

#endif  // KVASIR_FORMATS_NPY_H_
