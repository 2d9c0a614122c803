#include "kvasir/formats/gguf.h"

#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

namespace kvasir {
namespace {

constexpr std::string_view kSuffix = ".gguf";
constexpr int64_t kMaxParts = 99999;  // what five digits can say

// "-00002-of-00003.gguf"
std::string PartSuffix(int64_t part, int64_t count) {
  char text[64];
  std::snprintf(text, sizeof(text), "-%05lld-of-%05lld.gguf", static_cast<long long>(part),
                static_cast<long long>(count));
  return text;
}

void ReadCodes(const std::byte* blocks, int64_t count, const GgufType& type, CodedRow* out) {
  const size_t elements = static_cast<size_t>(type.block_elements);
  const size_t total = static_cast<size_t>(count) * elements;
  out->codes.resize(total);
  const size_t groups =
      IsAffine(type.stored_format) ? elements / static_cast<size_t>(type.affine.group_inputs) : 1;
  out->scales.resize(static_cast<size_t>(count) * groups);
  out->biases.resize(static_cast<size_t>(count) * groups);
  out->sub_scales.resize(total / 16);
  out->sub_mins.resize(total / 16);
  const size_t subs = elements / static_cast<size_t>(SubScaleInputs(type.stored_format));
  for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
    type.codes(blocks + i * static_cast<size_t>(type.block_bytes),
               {out->codes.data() + i * elements, out->scales.data() + i * groups,
                out->biases.data() + i * groups, out->sub_scales.data() + i * subs,
                out->sub_mins.data() + i * subs});
  }
}

// `data` is the first byte of a tensor of a type with a decoder.
bool IsKept(const GgufEntry& entry, const std::byte* data) {
  const GgufType& type = *entry.type;
  if (type.is_kept == nullptr) return true;
  const auto block_bytes = static_cast<size_t>(type.block_bytes);
  for (size_t at = 0; at < entry.size_bytes; at += block_bytes) {
    if (!type.is_kept(data + at)) return false;
  }
  return true;
}

WeightTensor Decoded(const GgufEntry& entry, const std::byte* data) {
  const GgufType& type = *entry.type;
  if (type.block_elements == 1) {
    const DType dtype = type.stored_format == WeightFormat::kF32   ? DType::kF32
                        : type.stored_format == WeightFormat::kF16 ? DType::kF16
                                                                   : DType::kBf16;
    return DenseWeights({dtype, entry.shape, data});
  }
  WeightTensor tensor;
  tensor.shape = entry.shape;
  tensor.stored_format = type.stored_format;
  const int64_t blocks = entry.shape.back() / type.block_elements;
  tensor.read_row = [data, blocks, &type](int64_t row, float* out) {
    const std::byte* block = data + row * blocks * type.block_bytes;
    for (int64_t i = 0; i < blocks; ++i) {
      type.decode(block + i * type.block_bytes, out + i * type.block_elements);
    }
  };
  if (type.codes != nullptr && !IsKept(entry, data)) {
    tensor.stored_format = WeightFormat::kF16;
  } else if (type.codes != nullptr) {
    tensor.affine = type.affine;
    tensor.read_codes = [data, blocks, &type](int64_t row, CodedRow* out) {
      ReadCodes(data + row * blocks * type.block_bytes, blocks, type, out);
    };
  }
  tensor.source = {{data, entry.size_bytes}};
  return tensor;
}

}  // namespace

bool IsGgufPath(std::string_view path) { return path.ends_with(kSuffix); }

bool IsGguf(const std::string& path) {
  if (IsGgufPath(path)) return true;
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  const auto file = MappedFile::Open(path);
  return file.ok() && BeginsAsGguf(file->bytes());
}

Result<GgufFile> GgufFile::Open(const std::string& path) {
  GgufFile file;
  file.path_ = path;
  KVASIR_TRY_OK(file.AddPart(path));
  KVASIR_TRY_OK(file.AddOtherParts());
  const Status split = file.SplitFusedProjections();
  if (!split.ok()) return WithContext(split.error(), path);
  return file;
}

std::vector<FileVersion> GgufFile::part_versions() const {
  std::vector<FileVersion> versions;
  for (const MappedFile& file : files_) versions.push_back(file.version());
  return versions;
}

Status GgufFile::AddPart(const std::string& path) {
  KVASIR_TRY(MappedFile mapped, MappedFile::Open(path));
  auto header = GgufHeader::Parse(mapped.bytes());
  if (!header.ok()) return WithContext(header.error(), path);
  for (size_t i = 0; i < header->entries.size(); ++i) {
    const GgufEntry& entry = header->entries[i];
    if (!tensors_.emplace(entry.name, std::pair(files_.size(), i)).second) {
      return {ErrorCode::kCorrupt,
              path + ": tensor '" + entry.name + "' is in an earlier part too"};
    }
    total_bytes_ += entry.size_bytes;
  }
  files_.push_back(std::move(mapped));
  headers_.push_back(*std::move(header));
  return {};
}

Status GgufFile::AddOtherParts() {
  const auto count = metadata().IntOr("split.count", 1);
  if (!count.ok()) return WithContext(count.error(), path_);
  if (*count == 1 || *count == 0) return {};
  const auto number = metadata().IntOr("split.no", 0);
  if (!number.ok()) return WithContext(number.error(), path_);
  const std::string first = PartSuffix(1, *count);
  if (*count < 0 || *count > kMaxParts || *number != 0 || !path_.ends_with(first)) {
    return {ErrorCode::kInvalidArgument,
            path_ + ": metadata 'split.no' is " + std::to_string(*number) + " of " +
                std::to_string(*count) + " parts; name the first part, '..." + first +
                "', whose number is 0"};
  }
  const std::string base = path_.substr(0, path_.size() - first.size());
  for (int64_t part = 1; part < *count; ++part) {
    const std::string path = base + PartSuffix(part + 1, *count);
    KVASIR_TRY_OK(AddPart(path));
    const auto own = headers_.back().metadata.Int("split.no");
    if (!own.ok() || *own != part) {
      return {ErrorCode::kCorrupt, path + ": metadata 'split.no' must be " + std::to_string(part)};
    }
    const auto all = headers_.back().metadata.Int("split.count");
    if (!all.ok() || *all != *count) {
      return {ErrorCode::kCorrupt, path + ": metadata 'split.count' must be " +
                                       std::to_string(*count) + ", as in the first part"};
    }
  }
  const auto total = metadata().IntOr("split.tensors.count", static_cast<int64_t>(tensors_.size()));
  if (!total.ok()) return WithContext(total.error(), path_);
  if (*total != static_cast<int64_t>(tensors_.size())) {
    return {ErrorCode::kCorrupt, path_ + ": the parts have " + std::to_string(tensors_.size()) +
                                     " tensors, and 'split.tensors.count' says " +
                                     std::to_string(*total)};
  }
  return {};
}

const GgufEntry* GgufFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return nullptr;
  return &headers_[found->second.first].entries[found->second.second];
}

Result<WeightTensor> GgufFile::Get(std::string_view name, const std::vector<int64_t>& shape) const {
  const std::string where = path_ + ": tensor '" + std::string(name) + "'";
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return {ErrorCode::kNotFound, where + " is missing"};
  const auto [part, index] = found->second;
  const GgufEntry& entry = headers_[part].entries[index];
  if (entry.shape != shape) {
    return {ErrorCode::kCorrupt, where + " has shape " + ShapeString(entry.shape) +
                                     ", the model needs " + ShapeString(shape)};
  }
  if (entry.type->decode == nullptr) {
    return {ErrorCode::kUnsupported,
            where + " is " + std::string(entry.type->name) + ", which is not read"};
  }
  WeightTensor tensor = Decoded(entry, files_[part].bytes().data() + entry.begin);
  tensor.is_mapped = true;
  return tensor;
}

std::vector<std::string> GgufFile::names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, place] : tensors_) names.push_back(name);
  return names;
}

}  // namespace kvasir
