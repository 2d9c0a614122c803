#include "kvasir/formats/packed_weights_file.h"

#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <utility>

#include "kvasir/base/bytes.h"
#include "kvasir/base/checksum.h"

namespace kvasir {
namespace {

constexpr std::string_view kMagic = "KVPANELS";
// As the writer's machine has it: read on one of the other order, its bytes are reversed.
constexpr uint32_t kByteOrder = 0x01020304;
constexpr size_t kHeaderBytes = 64;
constexpr size_t kHeaderSumOffset = 56;

struct Header {
  uint64_t file_bytes = 0;
  uint64_t index_offset = 0;
  uint64_t index_bytes = 0;
  uint64_t index_checksum = 0;
};

std::string HeaderBytes(const Header& header) {
  BytesWriter out;
  out.WriteText(kMagic);
  out.Write(kPanelLayoutVersion);
  out.Write(kByteOrder);
  out.Write(header.file_bytes);
  out.Write(header.index_offset);
  out.Write(header.index_bytes);
  out.Write(header.index_checksum);
  out.Write(uint64_t{0});
  out.Write(Checksum64(std::as_bytes(std::span(out.str()))));
  return out.Take();
}

Result<Header> ReadHeader(std::span<const std::byte> file) {
  BytesReader reader(file.first(std::min(file.size(), kHeaderBytes)));
  KVASIR_TRY(const auto magic, reader.ReadSpan(kMagic.size(), "header"));
  if (std::string_view(reinterpret_cast<const char*>(magic.data()), magic.size()) != kMagic) {
    return {ErrorCode::kCorrupt, "is no file of packed weights"};
  }
  KVASIR_TRY(const auto version, reader.Read<uint32_t>("version"));
  KVASIR_TRY(const auto order, reader.Read<uint32_t>("order of bytes"));
  if (order != kByteOrder) return {ErrorCode::kUnsupported, "has another order of bytes"};
  if (version != kPanelLayoutVersion) {
    return {ErrorCode::kUnsupported, "has panels of version " + std::to_string(version) +
                                         ", this build's are of version " +
                                         std::to_string(kPanelLayoutVersion)};
  }
  Header header;
  KVASIR_TRY(header.file_bytes, reader.Read<uint64_t>("size"));
  KVASIR_TRY(header.index_offset, reader.Read<uint64_t>("index"));
  KVASIR_TRY(header.index_bytes, reader.Read<uint64_t>("index"));
  KVASIR_TRY(header.index_checksum, reader.Read<uint64_t>("index"));
  KVASIR_TRY(const auto reserved, reader.Read<uint64_t>("header"));
  KVASIR_TRY(const auto checksum, reader.Read<uint64_t>("header"));
  if (checksum != Checksum64(file.first(kHeaderSumOffset)) || reserved != 0) {
    return {ErrorCode::kCorrupt, "its header is damaged"};
  }
  if (header.file_bytes != file.size()) {
    return {ErrorCode::kCorrupt, "has " + std::to_string(file.size()) + " bytes instead of " +
                                     std::to_string(header.file_bytes)};
  }
  if (header.index_offset < kHeaderBytes || header.index_offset > file.size() ||
      header.index_bytes != file.size() - header.index_offset) {
    return {ErrorCode::kCorrupt, "its index does not end the file"};
  }
  return header;
}

Result<std::string> ReadText(BytesReader& reader, std::string_view what) {
  KVASIR_TRY(const auto size, reader.Read<uint32_t>(what));
  KVASIR_TRY(const auto text, reader.ReadSpan(size, what));
  return std::string(reinterpret_cast<const char*>(text.data()), text.size());
}

void WriteText(BytesWriter& out, std::string_view text) {
  out.Write(static_cast<uint32_t>(text.size()));
  out.WriteText(text);
}

// `panels` is the part of the file that may hold them, from byte kHeaderBytes on.
Result<PackedWeightsEntry> ReadEntry(BytesReader& reader, std::span<const std::byte> panels) {
  PackedWeightsEntry entry;
  KVASIR_TRY(entry.outputs, reader.Read<int64_t>("matrix"));
  KVASIR_TRY(entry.inputs, reader.Read<int64_t>("matrix"));
  KVASIR_TRY(entry.format, ReadText(reader, "format"));
  KVASIR_TRY(entry.affine.group_inputs, reader.Read<int32_t>("matrix"));
  KVASIR_TRY(const auto is_bf16, reader.Read<uint8_t>("matrix"));
  KVASIR_TRY(const auto rounds, reader.Read<uint8_t>("matrix"));
  KVASIR_TRY(const auto has_zeros, reader.Read<uint8_t>("matrix"));
  entry.affine.dtype = is_bf16 != 0 ? DType::kBf16 : DType::kF16;
  entry.affine.rounds_values = rounds != 0;
  entry.affine.has_zeros = has_zeros != 0;
  KVASIR_TRY(const auto offset, reader.Read<uint64_t>("matrix"));
  KVASIR_TRY(const auto size, reader.Read<uint64_t>("matrix"));
  if (offset < kHeaderBytes || offset % kPanelAlignment != 0 ||
      offset - kHeaderBytes > panels.size() ||
      size > panels.size() - static_cast<size_t>(offset - kHeaderBytes)) {
    return {ErrorCode::kCorrupt, "has panels outside the file"};
  }
  entry.panels =
      panels.subspan(static_cast<size_t>(offset - kHeaderBytes), static_cast<size_t>(size));
  return entry;
}

// All of the file is read soon, and again with every token: pages of 2 MiB where the file system
// has them, and reading ahead of the first use (docs/benchmarks.md, Loading). Only hints.
void WantSoon(std::span<const std::byte> mapped) {
  if (mapped.empty()) return;
  void* const begin = const_cast<std::byte*>(mapped.data());
  madvise(begin, mapped.size(), MADV_HUGEPAGE);
  madvise(begin, mapped.size(), MADV_WILLNEED);
}

}  // namespace

Result<PackedWeightsIndex> ParsePackedWeights(std::span<const std::byte> file,
                                              std::string_view fingerprint) {
  KVASIR_TRY(const Header header, ReadHeader(file));
  const auto index_offset = static_cast<size_t>(header.index_offset);
  const std::span<const std::byte> index_bytes = file.subspan(index_offset);
  if (Checksum64(index_bytes) != header.index_checksum) {
    return {ErrorCode::kCorrupt, "its index is damaged"};
  }
  BytesReader reader(index_bytes);
  KVASIR_TRY(const std::string made_of, ReadText(reader, "fingerprint"));
  if (made_of != fingerprint) {
    return {ErrorCode::kInvalidArgument, "was made of other files or for another format"};
  }
  const auto panels = file.subspan(kHeaderBytes, index_offset - kHeaderBytes);
  KVASIR_TRY(const auto count, reader.Read<uint32_t>("number of matrices"));
  PackedWeightsIndex index;
  for (uint32_t i = 0; i < count; ++i) {
    KVASIR_TRY(std::string key, ReadText(reader, "key"));
    KVASIR_TRY(PackedWeightsEntry entry, ReadEntry(reader, panels));
    const auto [at, is_new] = index.emplace(std::move(key), std::move(entry));
    if (!is_new) return {ErrorCode::kCorrupt, "matrix '" + at->first + "' is there twice"};
  }
  if (reader.remaining() != 0) return {ErrorCode::kCorrupt, "has bytes after its index"};
  return index;
}

Result<PackedWeightsFile> PackedWeightsFile::Open(const std::string& path,
                                                  std::string_view fingerprint) {
  KVASIR_TRY(MappedFile mapped, MappedFile::Open(path));
  auto file = std::make_shared<const MappedFile>(std::move(mapped));
  auto index = ParsePackedWeights(file->bytes(), fingerprint);
  if (!index.ok()) return WithContext(index.error(), path);
  WantSoon(file->bytes());
  return PackedWeightsFile(std::move(file), *std::move(index));
}

Result<PackedMatrix> PackedWeightsFile::Find(std::string_view key, const PackedShape& shape) const {
  const std::string what = std::string("matrix '").append(key).append("'");
  const auto found = index_.find(key);
  if (found == index_.end()) return {ErrorCode::kNotFound, what + " is missing"};
  const PackedWeightsEntry& entry = found->second;
  if (entry.outputs != shape.outputs || entry.inputs != shape.inputs ||
      entry.format != WeightFormatName(shape.format) || entry.affine != shape.affine) {
    return {ErrorCode::kCorrupt, what + " has another shape or format"};
  }
  auto matrix = PackedMatrix::Over(shape, entry.panels, file_);
  if (!matrix.ok()) return WithContext(matrix.error(), what);
  return matrix;
}

Result<PackedWeightsWriter> PackedWeightsWriter::Create(const std::string& path,
                                                        std::string fingerprint) {
  KVASIR_TRY(FileWriter file, FileWriter::Create(path));
  const std::array<std::byte, kHeaderBytes> no_header = {};  // known at the end
  KVASIR_TRY_OK(file.Append(no_header));
  return PackedWeightsWriter(std::move(file), std::move(fingerprint));
}

Status PackedWeightsWriter::AlignEnd() {
  const std::array<std::byte, kPanelAlignment> zeros = {};
  const size_t past = static_cast<size_t>(file_.size_bytes() % kPanelAlignment);
  return past == 0 ? Status() : file_.Append(std::span(zeros).first(kPanelAlignment - past));
}

Status PackedWeightsWriter::Append(const std::string& key, const PackedMatrix& matrix) {
  if (entries_.contains(key)) return {};
  KVASIR_TRY_OK(AlignEnd());
  entries_[key] = {matrix.shape(), file_.size_bytes(), matrix.bytes()};
  return file_.Append({matrix.panel(0), matrix.bytes()});
}

std::string PackedWeightsWriter::IndexBytes() const {
  BytesWriter out;
  WriteText(out, fingerprint_);
  out.Write(static_cast<uint32_t>(entries_.size()));
  for (const auto& [key, entry] : entries_) {
    const PackedShape& shape = entry.shape;
    WriteText(out, key);
    out.Write(shape.outputs);
    out.Write(shape.inputs);
    WriteText(out, WeightFormatName(shape.format));
    out.Write(static_cast<int32_t>(shape.affine.group_inputs));
    out.Write(static_cast<uint8_t>(shape.affine.dtype == DType::kBf16));
    out.Write(static_cast<uint8_t>(shape.affine.rounds_values));
    out.Write(static_cast<uint8_t>(shape.affine.has_zeros));
    out.Write(entry.offset);
    out.Write(entry.size_bytes);
  }
  return out.Take();
}

Status PackedWeightsWriter::Commit() {
  KVASIR_TRY_OK(AlignEnd());
  const std::string index = IndexBytes();
  const auto bytes = std::as_bytes(std::span(index));
  const Header header = {.file_bytes = file_.size_bytes() + index.size(),
                         .index_offset = file_.size_bytes(),
                         .index_bytes = index.size(),
                         .index_checksum = Checksum64(bytes)};
  KVASIR_TRY_OK(file_.Append(bytes));
  const std::string start = HeaderBytes(header);
  KVASIR_TRY_OK(file_.Patch(0, std::as_bytes(std::span(start))));
  return file_.Commit();
}

}  // namespace kvasir
