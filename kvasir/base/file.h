// Files: whole-file reads, atomic writes and read-only memory maps.
// Deliberately not a file-system abstraction: no directory walking, no async.
#ifndef KVASIR_BASE_FILE_H_
#define KVASIR_BASE_FILE_H_

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/result.h"

namespace kvasir {

// What files may have that are read whole: tokenizers and indices of weights are the largest.
inline constexpr size_t kMostFileBytes = size_t{1} << 30;
// Configurations, templates, prompts.
inline constexpr size_t kMostTextBytes = size_t{16} << 20;

// ERRORS: kNotFound, kIo, kResourceExhausted beyond `most_bytes`; the message names the path.
Result<std::string> ReadFile(const std::string& path, size_t most_bytes = kMostFileBytes);

// A FileWriter with one piece: readers see all of it or nothing.
// ERRORS: kIo, kNotFound; the message names the path.
Status WriteFileAtomic(const std::string& path, std::string_view contents);

// A file as it was when somebody looked.
struct FileVersion {
  std::string path;
  // Changes whenever the file may have, and where only its permissions or its name have: "SIZE
  // MODIFIED CHANGED", times in seconds and nanoseconds. Copies and archives set the first time as
  // they like, the second is the kernel's own.
  std::string stamp;

  // Of what is there now. ERRORS: kIo, kNotFound; the message names the path.
  static Result<FileVersion> Of(const std::string& path);

  bool operator==(const FileVersion&) const = default;
};

bool FileExists(const std::string& path);
bool DirectoryExists(const std::string& path);
// Whether files can be made in what shall hold them. ERRORS: kNotFound if it is no folder, kIo.
Status CheckWritableFolder(const std::string& path);

// Takes the pages of a mapped file that lie wholly or partly in `bytes` out of this process's
// memory; they come back from the file when they are read again. Only a hint.
// REQUIRES: bytes lie in a MappedFile.
void ReleasePages(std::span<const std::byte> bytes);

// A file that is read piece by piece. What is cut short meanwhile, or cannot be read, is an error,
// where it would end a program that maps the file. Movable. THREADS: any number.
class FileReader {
 public:
  // ERRORS: kNotFound, kIo; the message names the path.
  static Result<FileReader> Open(const std::string& path);

  FileReader(FileReader&& other) noexcept;
  FileReader& operator=(FileReader&& other) noexcept;
  ~FileReader();

  const std::string& path() const { return path_; }
  // When it was opened.
  size_t size_bytes() const { return size_bytes_; }
  // All of `bytes`, from `offset` on. ERRORS: kIo; the message names the path.
  Status Read(size_t offset, std::span<std::byte> bytes) const;

 private:
  FileReader(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}

  std::string path_;
  int fd_;  // -1: moved from
  size_t size_bytes_ = 0;
};

// A read-only private map of a whole file. Movable; unmaps on destruction.
class MappedFile {
 public:
  // ERRORS: kNotFound, kIo; the message names the path. An empty file maps to an empty span.
  static Result<MappedFile> Open(const std::string& path);

  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  ~MappedFile();

  std::span<const std::byte> bytes() const { return {data_, size_bytes_}; }
  // Of the file that was opened, whatever bears its name now.
  const FileVersion& version() const { return version_; }

 private:
  explicit MappedFile(FileVersion version) : version_(std::move(version)) {}

  FileVersion version_;
  const std::byte* data_ = nullptr;
  size_t size_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_FILE_H_
