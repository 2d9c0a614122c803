#include "kvasir/base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <system_error>
#include <utility>

namespace kvasir {
namespace {

Error SystemError(const std::string& path, const char* action) {
  const int code = errno;
  return {code == ENOENT ? ErrorCode::kNotFound : ErrorCode::kIo,
          path + ": cannot " + action + ": " + std::strerror(code)};
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

Result<size_t> RegularFileSize(const std::string& path, int fd) {
  struct stat info = {};
  if (fstat(fd, &info) != 0) return SystemError(path, "stat");
  if (!S_ISREG(info.st_mode)) return {ErrorCode::kIo, path + ": is not a regular file"};
  return static_cast<size_t>(info.st_size);
}

Status WriteAll(const std::string& path, int fd, std::string_view contents) {
  while (!contents.empty()) {
    const ssize_t written = write(fd, contents.data(), contents.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return SystemError(path, "write");
    }
    contents.remove_prefix(static_cast<size_t>(written));
  }
  return {};
}

}  // namespace

Result<std::string> ReadFile(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return SystemError(path, "open");
  KVASIR_TRY(const size_t size, RegularFileSize(path, fd.get()));
  std::string contents(size, '\0');
  size_t done = 0;
  while (done < size) {
    const ssize_t count = read(fd.get(), contents.data() + done, size - done);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path, "read");
    if (count == 0) break;  // truncated while we read: return what there was
    done += static_cast<size_t>(count);
  }
  contents.resize(done);
  return contents;
}

Status WriteFileAtomic(const std::string& path, std::string_view contents) {
  const std::string temporary = path + ".tmp." + std::to_string(getpid());
  Status status;
  {
    const Descriptor fd(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    if (fd.get() < 0) return SystemError(path, "create");
    status = WriteAll(path, fd.get(), contents);
    if (status.ok() && fsync(fd.get()) != 0) status = SystemError(path, "flush");
  }
  if (status.ok() && rename(temporary.c_str(), path.c_str()) != 0) {
    status = SystemError(path, "rename");
  }
  if (!status.ok()) unlink(temporary.c_str());
  return status;
}

Result<std::string> FileFingerprint(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code error;
  const auto size = fs::file_size(path, error);
  if (error) return {ErrorCode::kIo, path + ": " + error.message()};
  const auto changed = fs::last_write_time(path, error).time_since_epoch().count();
  if (error) return {ErrorCode::kIo, path + ": " + error.message()};
  return path + " " + std::to_string(size) + " " + std::to_string(changed) + "\n";
}

bool FileExists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISREG(info.st_mode);
}

bool DirectoryExists(const std::string& path) {
  struct stat info = {};
  return stat(path.c_str(), &info) == 0 && S_ISDIR(info.st_mode);
}

void ReleasePages(std::span<const std::byte> bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(bytes.data()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(bytes.data()) + bytes.size();
  if (!bytes.empty()) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

Result<MappedFile> MappedFile::Open(const std::string& path) {
  const Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (fd.get() < 0) return SystemError(path, "open");
  KVASIR_TRY(const size_t size, RegularFileSize(path, fd.get()));
  if (size == 0) return MappedFile(nullptr, 0);
  void* data = mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd.get(), 0);
  if (data == MAP_FAILED) return SystemError(path, "map");
  return MappedFile(static_cast<const std::byte*>(data), size);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_bytes_(std::exchange(other.size_bytes_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_bytes_, other.size_bytes_);
  return *this;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_bytes_);
}

}  // namespace kvasir
