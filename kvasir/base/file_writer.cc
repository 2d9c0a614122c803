#include "kvasir/base/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/base/system_error.h"

namespace kvasir {
namespace {

// Large enough that a row of logits costs no system call of its own. Bytes are written up to
// multiples of it: Linux then keeps them in huge pages, and a program that maps the file gets
// those.
constexpr size_t kPieceBytes = size_t{2} << 20;

std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

// What names a file that is open, for the time that it has no name of its own.
std::string NameOfOpen(int fd) { return std::string("/proc/self/fd/").append(std::to_string(fd)); }

// A file without a name in the folder of `path`, which is gone when the process is, however it
// ends; -1 where the file system has none, or nothing to name it by later.
int OpenUnnamed(const std::string& path, mode_t mode) {
#ifdef O_TMPFILE
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  const int fd =
      open(folder.empty() ? "." : folder.c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, mode);
  if (fd < 0) return -1;
  if (access(NameOfOpen(fd).c_str(), F_OK) == 0) return fd;
  close(fd);
#endif
  return -1;
}

std::string TemporaryName(const std::string& path, int number) {
  return path + ".tmp." + std::to_string(getpid()) + "." + std::to_string(number);
}

// Calls make(name) with names beside `path` until one is free; what make returned, and that name.
// REQUIRES: make returns a negative number and sets errno where it fails.
template <class Make>
int WithFreeName(const std::string& path, std::string* name, const Make& make) {
  for (int number = 0;; ++number) {
    *name = TemporaryName(path, number);
    const int made = make(name->c_str());
    if (made >= 0 || errno != EEXIST) return made;
  }
}

// The end of a chain of links, so that they stay links.
std::string WhereLinksLead(const std::string& path) {
  constexpr int kMostLinks = 40;  // as the kernel follows
  std::filesystem::path target = path;
  std::error_code error;
  for (int i = 0; i < kMostLinks && std::filesystem::is_symlink(target, error); ++i) {
    target = target.parent_path() / std::filesystem::read_symlink(target, error);
  }
  return target.string();
}

Error ExistsError(const std::string& path) {
  return {ErrorCode::kFailedPrecondition, path + " exists; remove it or choose another name"};
}

}  // namespace

Result<FileWriter> FileWriter::Create(const std::string& path, Existing existing) {
  FileWriter writer(path, existing == Existing::kReplace ? WhereLinksLead(path) : path, existing);
  KVASIR_TRY_OK(writer.Open());
  return writer;
}

// What would fail at the end fails here, before anything is written.
Status FileWriter::Open() {
  struct stat replaced = {};
  if (stat(TemporaryName(target_, 0).c_str(), &replaced) != 0 && errno == ENAMETOOLONG) {
    return SystemError(path_, "create");
  }
  const bool exists = lstat(target_.c_str(), &replaced) == 0;
  if (exists && existing_ == Existing::kRefuse) return ExistsError(path_);
  if (target_.empty() || (exists && S_ISDIR(replaced.st_mode))) {
    errno = exists ? EISDIR : ENOENT;
    return SystemError(path_, "create");
  }
  if (exists && !S_ISREG(replaced.st_mode)) {
    return {ErrorCode::kIo, path_ + ": is not a regular file; it would be replaced by one"};
  }
  // A file that is replaced keeps its permissions, and is never more open on the way.
  const mode_t mode = exists ? 0600 : 0666;
  fd_ = OpenUnnamed(target_, mode);
  if (fd_ < 0) {
    std::string name;
    fd_ = WithFreeName(target_, &name, [&](const char* free) {
      return open(free, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    });
    if (fd_ < 0) return SystemError(path_, "create");
    temporary_ = std::move(name);
  }
  if (exists && fchmod(fd_, replaced.st_mode & 0777) != 0) {
    return SystemError(path_, "set the mode of");
  }
  return {};
}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      target_(std::move(other.target_)),
      existing_(other.existing_),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::exchange(other.buffer_, {})),
      written_bytes_(std::exchange(other.written_bytes_, 0)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(target_, other.target_);
  std::swap(existing_, other.existing_);
  std::swap(temporary_, other.temporary_);
  std::swap(fd_, other.fd_);
  std::swap(buffer_, other.buffer_);
  std::swap(written_bytes_, other.written_bytes_);
  return *this;
}

FileWriter::~FileWriter() { Abandon(); }

void FileWriter::Abandon() {
  if (fd_ >= 0) close(fd_);
  fd_ = -1;
  if (!temporary_.empty()) unlink(temporary_.c_str());
  temporary_.clear();
}

Status FileWriter::WriteAt(uint64_t offset, std::span<const std::byte> bytes) {
  if (fd_ < 0) return {ErrorCode::kFailedPrecondition, path_ + ": is already complete"};
  while (!bytes.empty()) {
    const ssize_t written = pwrite(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(path_, "write");
    }
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += static_cast<uint64_t>(written);
  }
  return {};
}

Status FileWriter::Flush() {
  KVASIR_TRY_OK(WriteAt(written_bytes_, AsBytes(buffer_)));
  written_bytes_ += buffer_.size();
  buffer_.clear();
  return {};
}

Status FileWriter::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const size_t room = kPieceBytes - static_cast<size_t>(size_bytes() % kPieceBytes);
    if (buffer_.empty() && room == kPieceBytes && bytes.size() >= kPieceBytes) {
      const auto pieces = bytes.first(bytes.size() / kPieceBytes * kPieceBytes);
      KVASIR_TRY_OK(WriteAt(written_bytes_, pieces));
      written_bytes_ += pieces.size();
      bytes = bytes.subspan(pieces.size());
      continue;
    }
    const auto part = bytes.first(std::min(bytes.size(), room));
    buffer_.append(reinterpret_cast<const char*>(part.data()), part.size());
    bytes = bytes.subspan(part.size());
    if (part.size() == room) KVASIR_TRY_OK(Flush());
  }
  return {};
}

Status FileWriter::Patch(uint64_t offset, std::span<const std::byte> bytes) {
  KVASIR_CHECK(offset <= size_bytes() && bytes.size() <= size_bytes() - offset);
  KVASIR_TRY_OK(Flush());
  return WriteAt(offset, bytes);
}

Status FileWriter::Commit() {
  KVASIR_TRY_OK(Flush());
  if (fd_ < 0) return {ErrorCode::kFailedPrecondition, path_ + ": is already complete"};
  if (fsync(fd_) != 0) return SystemError(path_, "flush");
  if (temporary_.empty()) {
    std::string name;
    const int linked = WithFreeName(target_, &name, [&](const char* free) {
      return linkat(AT_FDCWD, NameOfOpen(fd_).c_str(), AT_FDCWD, free, AT_SYMLINK_FOLLOW);
    });
    if (linked != 0) return SystemError(path_, "name");
    temporary_ = std::move(name);
  }
  if (close(std::exchange(fd_, -1)) != 0) return SystemError(path_, "close");
  KVASIR_TRY_OK(Rename());
  temporary_.clear();
  return {};
}

Status FileWriter::Rename() {
  const char* const from = temporary_.c_str();
  const char* const to = target_.c_str();
  if (existing_ == Existing::kRefuse) {
    if (renameat2(AT_FDCWD, from, AT_FDCWD, to, RENAME_NOREPLACE) == 0) return {};
    struct stat taken = {};
    if (errno == EEXIST || lstat(to, &taken) == 0) return ExistsError(path_);
    // Not every file system can look and rename at once.
  }
  return rename(from, to) == 0 ? Status() : SystemError(path_, "rename");
}

}  // namespace kvasir
