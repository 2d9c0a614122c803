#include "kvasir/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <utility>

#include "kvasir/base/file_writer.h"
#include "kvasir/base/system_error.h"

namespace kvasir {
namespace {

// Without waiting for whoever would write into a FIFO: that is no regular file, which is found out
// next.
int OpenToRead(const std::string& path) {
  return open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
}

// Closes on every exit.
class Descriptor {
 public:
  explicit Descriptor(int fd) : fd_(fd) {}
  ~Descriptor() {
    if (fd_ >= 0) close(fd_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return fd_; }

 private:
  int fd_;
};

Result<struct stat> RegularFileInfo(const std::string& path, int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return SystemError(path, "stat");
  if (!S_ISREG(info.st_mode)) return {ErrorCode::kIo, path + ": is not a regular file"};
  return info;
}

std::string StampOf(const struct stat& info) {
  std::string stamp = std::to_string(info.st_size);
  for (const timespec& time : {info.st_mtim, info.st_ctim}) {
    for (const auto part : {time.tv_sec, time.tv_nsec}) {
      stamp.append(1, ' ').append(std::to_string(part));
    }
  }
  return stamp;
}

}  // namespace

Result<std::string> ReadFile(const std::string& path, size_t most_bytes) {
  KVASIR_TRY(const FileReader file, FileReader::Open(path));
  if (file.size_bytes() > most_bytes) {
    return {ErrorCode::kResourceExhausted, path + ": has " + std::to_string(file.size_bytes()) +
                                               " bytes; at most " + std::to_string(most_bytes) +
                                               " are read of such a file"};
  }
  std::string contents(file.size_bytes(), '\0');
  KVASIR_TRY_OK(file.Read(0, std::as_writable_bytes(std::span(contents))));
  return contents;
}

Status WriteFileAtomic(const std::string& path, std::string_view contents) {
  KVASIR_TRY(FileWriter writer, FileWriter::Create(path));
  KVASIR_TRY_OK(writer.Append(std::as_bytes(std::span(contents))));
  return writer.Commit();
}

Result<FileVersion> FileVersion::Of(const std::string& path) {
  struct stat info = {};
  if (stat(path.c_str(), &info) != 0) return SystemError(path, "stat");
  return FileVersion{path, StampOf(info)};
}

bool FileExists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool DirectoryExists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

Status CheckWritableFolder(const std::string& path) {
  if (!DirectoryExists(path)) return {ErrorCode::kNotFound, "there is no folder " + path};
  if (::access(path.c_str(), W_OK | X_OK) == 0) return {};
  return SystemError(path, "make files there");
}

void ReleasePages(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  if (!bytes.empty()) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<FileReader> FileReader::Open(const std::string& path) {
  FileReader file(path, OpenToRead(path));
  if (file.fd_ < 0) return SystemError(path, "open");
  KVASIR_TRY(const struct stat info, RegularFileInfo(path, file.fd_));
  file.size_bytes_ = static_cast<size_t>(info.st_size);
  return file;
}

FileReader::FileReader(FileReader&& other) noexcept
    : path_(std::move(other.path_)),
      fd_(std::exchange(other.fd_, -1)),
      size_bytes_(other.size_bytes_) {}

FileReader& FileReader::operator=(FileReader&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(fd_, other.fd_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

FileReader::~FileReader() {
  if (fd_ >= 0) close(fd_);
}

Status FileReader::Read(size_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count = pread(fd_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path_, "read");
    if (count == 0) return {ErrorCode::kIo, path_ + ": was cut short while it was read"};
    bytes = bytes.subspan(static_cast<size_t>(count));
    offset += static_cast<size_t>(count);
  }
  return {};
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const Descriptor fd(OpenToRead(path));
  if (fd.get() < 0) return SystemError(path, "open");
  KVASIR_TRY(const struct stat info, RegularFileInfo(path, fd.get()));
  MappedFile file({path, StampOf(info)});
  const auto size = static_cast<size_t>(info.st_size);
  if (size == 0) return file;
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return SystemError(path, "map");
  file.data_ = static_cast<const std::byte*>(data);
  file.size_bytes_ = size;
  return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : version_(std::move(other.version_)),
      data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(version_, other.version_);
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_bytes_);
}

}  // namespace kvasir
