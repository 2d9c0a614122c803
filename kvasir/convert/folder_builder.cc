#include "kvasir/convert/folder_builder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <vector>

#include "kvasir/base/system_error.h"
#include "kvasir/formats/gguf.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// Whether something bears the name, be it a link that leads nowhere.
Result<bool> IsTaken(const fs::path& path) {
  std::error_code error;
  const fs::file_type type = fs::symlink_status(path, error).type();
  if (type == fs::file_type::not_found) return false;
  KVASIR_TRY_OK(SystemStatus(path, error));
  return true;
}

// A stopped run leaves its state before anything else; until then nothing, or that file's
// temporary one.
Status CheckIsOurs(const fs::path& partial) {
  const Error not_ours = {
      ErrorCode::kFailedPrecondition,
      partial.string() + " exists and no stopped run left it; remove it or choose another name"};
  std::error_code error;
  if (!fs::is_directory(fs::symlink_status(partial, error))) return not_ours;
  bool has_others = false;
  for (fs::directory_iterator at(partial, error), end; !error && at != end; at.increment(error)) {
    const std::string name = at->path().filename().string();
    if (name == kConversionStateName) return {};
    has_others = has_others || !name.starts_with(kConversionStateName);
  }
  KVASIR_TRY_OK(SystemStatus(partial, error));
  return has_others ? Status(not_ours) : Status();
}

}  // namespace

void FlushFolder(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  fsync(fd);
  close(fd);
}

Result<FolderBuilder> FolderBuilder::Create(const std::string& path) {
  fs::path clean = fs::path(path).lexically_normal();
  if (!clean.has_filename()) clean = clean.parent_path();  // a trailing slash
  if (clean.empty() || clean == "." || clean.filename() == "..") {
    return {ErrorCode::kInvalidArgument, "'" + path + "' names no new folder"};
  }
  if (IsGgufPath(clean.string())) {
    return {ErrorCode::kInvalidArgument,
            path +
                " would be taken for a GGUF file, and is to be a folder; choose a name without "
                ".gguf, or without a slash behind it"};
  }
  KVASIR_TRY(const bool is_taken, IsTaken(clean));
  if (is_taken) {
    return {ErrorCode::kFailedPrecondition,
            clean.string() + " exists; remove it or choose another name"};
  }
  FolderBuilder builder(clean.string(), clean.string() + ".partial");
  KVASIR_TRY(const bool is_begun, IsTaken(builder.partial_));
  if (is_begun) KVASIR_TRY_OK(CheckIsOurs(builder.partial_));
  std::error_code error;
  fs::create_directories(builder.partial_, error);
  KVASIR_TRY_OK(SystemStatus(builder.partial_, error));
  KVASIR_TRY_OK(builder.Lock());
  return builder;
}

FolderBuilder::FolderBuilder(FolderBuilder&& other) noexcept
    : path_(std::move(other.path_)),
      partial_(std::move(other.partial_)),
      fd_(std::exchange(other.fd_, -1)) {}

FolderBuilder& FolderBuilder::operator=(FolderBuilder&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(partial_, other.partial_);
  std::swap(fd_, other.fd_);
  return *this;
}

FolderBuilder::~FolderBuilder() {
  if (fd_ >= 0) close(fd_);
}

Status FolderBuilder::Lock() {
  fd_ = open(partial_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd_ < 0) {
    return SystemError(partial_, "open");
  }
  // Network file systems may know no locks; two runs at a time are then the user's care.
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return {};
  return {ErrorCode::kFailedPrecondition,
          "another run is writing " + partial_ + "; wait for it or choose another name"};
}

Status FolderBuilder::CheckIsOutside(const std::string& source) const {
  std::error_code error;
  const fs::path inner = fs::canonical(source, error);
  KVASIR_TRY_OK(SystemStatus(source, error));
  const fs::path outer = fs::canonical(partial_, error);
  KVASIR_TRY_OK(SystemStatus(partial_, error));
  const auto [end, at] = std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end());
  if (end != outer.end()) return {};
  return {ErrorCode::kInvalidArgument,
          source + " lies in " + partial_ + ", which is made anew; choose another name"};
}

Status FolderBuilder::Finish(Status written) {
  if (written.ok()) return Commit();
  const ErrorCode code = written.error().code;
  if (code != ErrorCode::kIo && code != ErrorCode::kResourceExhausted) {
    std::error_code ignored;
    fs::remove_all(partial_, ignored);
  }
  return written;
}

Status FolderBuilder::Commit() {
  std::error_code error;
  std::vector<fs::path> states;
  for (fs::recursive_directory_iterator at(partial_, error), end; !error && at != end;
       at.increment(error)) {
    if (at->path().filename() == kConversionStateName) {
      states.push_back(at->path().lexically_relative(partial_));
    }
  }
  KVASIR_TRY_OK(SystemStatus(partial_, error));
  FlushFolder(partial_);
  // States go last: without its own a folder under construction could not be gone on with.
  fs::rename(partial_, path_, error);
  KVASIR_TRY_OK(SystemStatus(path_, error));
  for (const fs::path& state : states) {
    fs::remove(path_ / state, error);
    KVASIR_TRY_OK(SystemStatus(path_, error));
  }
  FlushFolder(path_);
  const std::string parent = fs::path(path_).parent_path().string();
  FlushFolder(parent.empty() ? "." : parent);
  return {};
}

}  // namespace kvasir
