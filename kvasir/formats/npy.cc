#include "kvasir/formats/npy.h"

#include <charconv>
#include <cstring>
#include <string_view>
#include <system_error>

#include "kvasir/base/file.h"

namespace kvasir {
namespace {

// Magic (6), version (2), header length (2), header: a multiple of 64 as the format wants. 128
// leaves room for any row count, so the header can be patched when the count is known.
constexpr size_t kHeaderBytes = 128;
constexpr std::string_view kVersion("\x01\x00", 2);

std::string HeaderFor(int64_t rows, int64_t cols) {
  std::string dict = "{'descr': '<f4', 'fortran_order': False, 'shape': (" + std::to_string(rows) +
                     ", " + std::to_string(cols) + "), }";
  dict.resize(kHeaderBytes - kNpyMagic.size() - kVersion.size() - 2 - 1, ' ');
  dict += '\n';
  const auto length = static_cast<uint16_t>(dict.size());
  std::string header(kNpyMagic);
  header += kVersion;
  header += static_cast<char>(length & 0xFF);
  header += static_cast<char>(length >> 8);
  return header + dict;
}

Error Corrupt(std::string message) { return {ErrorCode::kCorrupt, std::move(message)}; }

// The text after "'key':" up to the ',' or ')' that ends the value. Empty when there is none.
std::string_view DictValue(std::string_view dict, std::string_view key) {
  const size_t at = dict.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view rest = dict.substr(at + key.size());
  const size_t begin = rest.find_first_not_of(": ");
  if (begin == std::string_view::npos) return {};
  rest = rest.substr(begin);
  return rest.substr(0, rest.find(rest.front() == '(' ? ')' : ','));
}

// "(rows, cols" as DictValue leaves it.
Result<std::pair<int64_t, int64_t>> ParseShape(std::string_view text) {
  int64_t extents[2] = {0, 0};
  const char* at = text.data();
  const char* const end = at + text.size();
  for (int i = 0; i < 2; ++i) {
    while (at < end && (*at == '(' || *at == ' ' || *at == ',')) ++at;
    const auto [next, error] = std::from_chars(at, end, extents[i]);
    if (error != std::errc() || extents[i] < 0)
      return Corrupt("header: shape must be (rows, cols)");
    at = next;
  }
  while (at < end && (*at == ' ' || *at == ',')) ++at;
  if (at != end) {
    return {ErrorCode::kUnsupported,
            "only matrices are supported, not shape " + std::string(text.substr(0, 80)) + ")"};
  }
  return std::pair(extents[0], extents[1]);
}

}  // namespace

Result<NpyWriter> NpyWriter::Create(const std::string& path, int64_t cols) {
  if (cols < 0) return {ErrorCode::kInvalidArgument, path + ": cols must not be negative"};
  KVASIR_TRY(FileWriter file, FileWriter::Create(path));
  const std::string header = HeaderFor(0, cols);
  KVASIR_TRY_OK(file.Append(std::as_bytes(std::span(header))));
  return NpyWriter(std::move(file), cols);
}

Status NpyWriter::AppendRow(std::span<const float> row) {
  if (static_cast<int64_t>(row.size()) != cols_) {
    return {ErrorCode::kInvalidArgument, file_.path() + ": row " + std::to_string(rows_) + " has " +
                                             std::to_string(row.size()) + " values, not " +
                                             std::to_string(cols_)};
  }
  KVASIR_TRY_OK(file_.Append(std::as_bytes(row)));
  ++rows_;
  return {};
}

Status NpyWriter::Finish() {
  const std::string header = HeaderFor(rows_, cols_);
  KVASIR_TRY_OK(file_.Patch(0, std::as_bytes(std::span(header))));
  return file_.Commit();
}

Result<NpyMatrix> ParseNpy(std::span<const std::byte> file) {
  const std::string_view text(reinterpret_cast<const char*>(file.data()), file.size());
  if (text.size() < 10 || !text.starts_with(kNpyMagic)) {
    return Corrupt("is not a .npy file");
  }
  if (text.substr(kNpyMagic.size(), 2) != kVersion) {
    return {ErrorCode::kUnsupported, "only version 1.0 of the format is supported"};
  }
  uint16_t length;
  std::memcpy(&length, file.data() + 8, 2);
  if (length > text.size() - 10) return Corrupt("header is truncated");
  const std::string_view dict = text.substr(10, length);
  if (DictValue(dict, "'descr'") != "'<f4'" || DictValue(dict, "'fortran_order'") != "False") {
    return {ErrorCode::kUnsupported, "only row-major little-endian float32 is supported"};
  }
  KVASIR_TRY(const auto shape, ParseShape(DictValue(dict, "'shape'")));
  const std::span<const std::byte> data = file.subspan(size_t{10} + length);
  const uint64_t values = data.size() / sizeof(float);
  const auto [rows, cols] = shape;
  // By division: the product of two extents from a file may not fit 64 bits.
  const bool fits = cols == 0
                        ? values == 0
                        : values % static_cast<uint64_t>(cols) == 0 &&
                              values / static_cast<uint64_t>(cols) == static_cast<uint64_t>(rows);
  if (data.size() % sizeof(float) != 0 || !fits) {
    return Corrupt("shape (" + std::to_string(rows) + ", " + std::to_string(cols) +
                   ") does not match " + std::to_string(data.size()) + " bytes of data");
  }
  NpyMatrix matrix{rows, cols, std::vector<float>(values)};
  if (values > 0) std::memcpy(matrix.values.data(), data.data(), data.size());
  return matrix;
}

Result<NpyMatrix> ReadNpy(const std::string& path) {
  KVASIR_TRY(const MappedFile file, MappedFile::Open(path));
  auto matrix = ParseNpy(file.bytes());
  if (!matrix.ok()) return WithContext(matrix.error(), path);
  return matrix;
}

}  // namespace kvasir
