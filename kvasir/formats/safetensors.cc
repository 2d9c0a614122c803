#include "kvasir/formats/safetensors.h"

namespace kvasir {

Result<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  KVASIR_TRY(MappedFile mapped, MappedFile::Open(path));
  const std::span<const std::byte> bytes = mapped.bytes();
  auto header = SafetensorsHeader::Parse(bytes);
  if (!header.ok()) return WithContext(header.error(), path);

  SafetensorsFile file(std::move(mapped));
  file.path_ = path;
  file.data_bytes_ = bytes.size() - header->data_offset;
  file.metadata_ = std::move(header->metadata);
  for (SafetensorsEntry& entry : header->entries) {
    const std::byte* data = bytes.data() + header->data_offset + entry.begin;
    file.tensors_.emplace(std::move(entry.name),
                          TensorView{entry.dtype, std::move(entry.shape), data});
  }
  return file;
}

const TensorView* SafetensorsFile::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace kvasir
