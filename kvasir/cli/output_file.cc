#include "kvasir/cli/output_file.h"

#include <cstddef>
#include <functional>
#include <span>

#include "kvasir/base/file.h"
#include "kvasir/base/file_writer.h"
#include "kvasir/kv/snapshot_file_index.h"

namespace kvasir {
namespace {

Status CheckMayWriteOver(const std::string& path, std::string_view kind,
                         const std::function<bool(std::span<const std::byte>)>& is_of_kind) {
  KVASIR_TRY_OK(FileWriter::Create(path).status());
  const auto there = MappedFile::Open(path);
  if (!there.ok()) {
    return there.error().code == ErrorCode::kNotFound ? Status() : there.status();
  }
  if (there->bytes().empty() || is_of_kind(there->bytes())) return {};
  return {ErrorCode::kFailedPrecondition,
          path + " exists and is no " + std::string(kind) + "; choose another name"};
}

}  // namespace

Status CheckMayWrite(const std::string& path, std::string_view magic, std::string_view kind) {
  return CheckMayWriteOver(path, kind, [magic](std::span<const std::byte> bytes) {
    return std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size())
        .starts_with(magic);
  });
}

Status CheckMayWriteSnapshot(const std::string& path) {
  return CheckMayWriteOver(path, "saved cache", KvSnapshotIndex::Recognises);
}

}  // namespace kvasir
