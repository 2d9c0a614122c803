// FileWriter: a file that is written piece by piece and appears under its name only when complete.
// Deliberately append-only, but for patching bytes already written (a count known at the end).
#ifndef KVASIR_BASE_FILE_WRITER_H_
#define KVASIR_BASE_FILE_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "kvasir/base/result.h"

namespace kvasir {

// Movable. Destroyed without Commit, it leaves nothing behind; a process that is killed leaves
// nothing either where the file system has files without names, else "PATH.tmp.PID.NUMBER".
class FileWriter {
 public:
  enum class Existing { kReplace, kRefuse };

  // Opens a temporary file in the folder of `path`; where that is a link, of what it leads to. What
  // it becomes has the permissions of the file that it replaces, else those that the process gives
  // new files (umask). ERRORS: kFailedPrecondition when it must not exist and does; kIo, also for
  // what exists and is no regular file; kNotFound; the message names the path.
  static Result<FileWriter> Create(const std::string& path, Existing existing = Existing::kReplace);

  FileWriter(FileWriter&& other) noexcept;
  FileWriter& operator=(FileWriter&& other) noexcept;
  ~FileWriter();

  // ERRORS: kIo.
  Status Append(std::span<const std::byte> bytes);
  // Replaces bytes written before. REQUIRES: offset + bytes.size() <= size_bytes(). ERRORS: kIo.
  Status Patch(uint64_t offset, std::span<const std::byte> bytes);
  // Flushes to disk and renames; nothing may be written afterwards. ERRORS: kFailedPrecondition
  // when the file must not exist and does by now; kIo.
  Status Commit();

  const std::string& path() const { return path_; }
  uint64_t size_bytes() const { return written_bytes_ + buffer_.size(); }

 private:
  FileWriter(std::string path, std::string target, Existing existing)
      : path_(std::move(path)), target_(std::move(target)), existing_(existing) {}
  Status Open();
  Status Rename();
  Status Flush();
  Status WriteAt(uint64_t offset, std::span<const std::byte> bytes);
  void Abandon();

  std::string path_;    // as the caller names it
  std::string target_;  // where it leads
  Existing existing_ = Existing::kReplace;
  std::string temporary_;  // empty while it has no name, and once committed
  int fd_ = -1;
  std::string buffer_;  // gathers small pieces
  uint64_t written_bytes_ = 0;
};

}  // namespace kvasir

#endif  // KVASIR_BASE_FILE_WRITER_H_
