#include "kvasir/formats/safetensors_writer.h"

#include <unordered_set>
#include <utility>

#include "kvasir/base/bytes.h"
#include "kvasir/base/json.h"
#include "kvasir/formats/safetensors_header.h"

namespace kvasir {
namespace {

Error Invalid(const std::string& path, std::string_view tensor, const std::string& reason) {
  return {ErrorCode::kInvalidArgument, path + ": tensor '" + std::string(tensor) + "': " + reason};
}

Json ToJson(const std::vector<int64_t>& values) {
  Json::Array list(values.begin(), values.end());
  return Json(std::move(list));
}

Json MetadataJson(const std::map<std::string, std::string, std::less<>>& metadata) {
  Json::Object object;
  for (const auto& [key, value] : metadata) object.emplace_back(key, Json(value));
  return Json(std::move(object));
}

// Length, JSON and padding: everything before the data.
Result<std::string> HeaderBytes(const std::string& path,
                                const std::vector<TensorDeclaration>& tensors,
                                const std::map<std::string, std::string, std::less<>>& metadata) {
  // Built as a list of members: Json::Set would look for each name among all the others.
  Json::Object header;
  if (!metadata.empty()) header.emplace_back("__metadata__", MetadataJson(metadata));
  std::unordered_set<std::string_view> seen = {"__metadata__", ""};
  uint64_t at_bytes = 0;
  for (const TensorDeclaration& tensor : tensors) {
    if (!seen.insert(tensor.name).second) {
      return Invalid(path, tensor.name, "the name is empty, reserved or used twice");
    }
    const auto bytes = DenseTensorBytes(tensor.dtype, tensor.shape);
    if (!bytes.ok()) return Invalid(path, tensor.name, bytes.error().message);
    const uint64_t end_bytes = at_bytes + *bytes;
    if (end_bytes > INT64_MAX) return Invalid(path, tensor.name, "the file becomes too large");
    Json entry;
    entry.Set("dtype", SafetensorsDTypeName(tensor.dtype));
    entry.Set("shape", ToJson(tensor.shape));
    entry.Set("data_offsets",
              ToJson({static_cast<int64_t>(at_bytes), static_cast<int64_t>(end_bytes)}));
    header.emplace_back(tensor.name, std::move(entry));
    at_bytes = end_bytes;
  }
  std::string json = Json(std::move(header)).Dump();
  json.append((8 - json.size() % 8) % 8, ' ');
  BytesWriter out;
  out.Write(static_cast<uint64_t>(json.size()));
  out.WriteText(json);
  return out.Take();
}

}  // namespace

Result<SafetensorsWriter> SafetensorsWriter::Create(
    const std::string& path, std::vector<TensorDeclaration> tensors,
    const std::map<std::string, std::string, std::less<>>& metadata) {
  KVASIR_TRY(const std::string header, HeaderBytes(path, tensors, metadata));
  KVASIR_TRY(FileWriter file, FileWriter::Create(path));
  KVASIR_TRY_OK(file.Append(std::as_bytes(std::span(header))));
  return SafetensorsWriter(std::move(file), std::move(tensors));
}

SafetensorsWriter::SafetensorsWriter(FileWriter file, std::vector<TensorDeclaration> tensors)
    : file_(std::move(file)), tensors_(std::move(tensors)) {
  EnterTensor();
}

void SafetensorsWriter::EnterTensor() {
  // Empty tensors are complete before anything is written.
  for (missing_bytes_ = 0; current_ < tensors_.size(); ++current_) {
    missing_bytes_ = *DenseTensorBytes(tensors_[current_].dtype, tensors_[current_].shape);
    if (missing_bytes_ > 0) return;
  }
}

Status SafetensorsWriter::Append(std::string_view name, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  if (current_ == tensors_.size()) {
    return Invalid(file_.path(), name, "every declared tensor is already complete");
  }
  if (tensors_[current_].name != name) {
    return Invalid(file_.path(), name,
                   "comes out of order, '" + tensors_[current_].name + "' is not complete");
  }
  if (bytes.size() > missing_bytes_) {
    return Invalid(file_.path(), name,
                   std::to_string(bytes.size() - missing_bytes_) + " bytes too many");
  }
  KVASIR_TRY_OK(file_.Append(bytes));
  missing_bytes_ -= bytes.size();
  if (missing_bytes_ == 0) {
    ++current_;
    EnterTensor();
  }
  return {};
}

Status SafetensorsWriter::Finish() {
  if (current_ != tensors_.size()) {
    return Invalid(file_.path(), tensors_[current_].name,
                   std::to_string(missing_bytes_) + " bytes were never written");
  }
  return file_.Commit();
}

}  // namespace kvasir
