#include "kvasir/base/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "kvasir/base/check.h"

namespace kvasir {
namespace {

// Large enough that a row of logits costs no system call of its own. Bytes are written up to
// multiples of it: Linux then keeps them in huge pages, and a program that maps the file gets
// those.
constexpr size_t kPieceBytes = size_t{2} << 20;

Error SystemError(const std::string& path, const char* action) {
  const int code = errno;
  return {code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
          path + ": cannot " + action + ": " + std::strerror(code)};
}

std::span<const std::byte> AsBytes(const std::string& text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}

}  // namespace

Result<FileWriter> FileWriter::Create(const std::string& path) {
  std::string temporary = path + ".tmp.XXXXXX";
  const int fd = mkostemp(temporary.data(), O_CLOEXEC);
  if (fd < 0) return SystemError(path, "create");
  FileWriter writer(path, std::move(temporary), fd);
  // mkostemp makes the file private; what it becomes is an ordinary file.
  if (fchmod(fd, 0644) != 0) return SystemError(path, "set the mode of");
  return writer;
}

FileWriter::FileWriter(std::string path, std::string temporary, int fd)
    : path_(std::move(path)), temporary_(std::move(temporary)), fd_(fd) {}

FileWriter::FileWriter(FileWriter&& other) noexcept
    : path_(std::move(other.path_)),
      temporary_(std::exchange(other.temporary_, {})),
      fd_(std::exchange(other.fd_, -1)),
      buffer_(std::exchange(other.buffer_, {})),
      written_bytes_(std::exchange(other.written_bytes_, 0)) {}

FileWriter& FileWriter::operator=(FileWriter&& other) noexcept {
  std::swap(path_, other.path_);
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
  if (close(std::exchange(fd_, -1)) != 0) return SystemError(path_, "close");
  if (rename(temporary_.c_str(), path_.c_str()) != 0) return SystemError(path_, "rename");
  temporary_.clear();
  return {};
}

}  // namespace kvasir
