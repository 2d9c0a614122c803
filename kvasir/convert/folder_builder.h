// FolderBuilder: a folder that appears under its name when it is complete.
// Deliberately knows nothing of what is in it, but for the file by which a stopped run is known.
#ifndef KVASIR_CONVERT_FOLDER_BUILDER_H_
#define KVASIR_CONVERT_FOLDER_BUILDER_H_

#include <string>
#include <string_view>
#include <utility>

#include "kvasir/base/result.h"

namespace kvasir {

// What a folder under construction is made of; a folder without it is nobody's to go on with.
inline constexpr std::string_view kConversionStateName = "conversion.json";

// The folder under construction is `path` + ".partial": a run that is stopped leaves it, and the
// next one goes on with it. Locked while the builder lives, where the file system has locks.
// Movable.
class FolderBuilder {
 public:
  // ERRORS: kFailedPrecondition when `path` exists already, when the folder under construction is
  // somebody else's or another run is at it; kInvalidArgument for names of no new
  // folder and those that end in ".gguf"; kIo.
  static Result<FolderBuilder> Create(const std::string& path);
  // Whether nothing that is read to make the folder lies in what is under construction, of which
  // all that is not part of it is removed. ERRORS: kInvalidArgument.
  Status CheckIsOutside(const std::string& source) const;

  FolderBuilder(FolderBuilder&& other) noexcept;
  FolderBuilder& operator=(FolderBuilder&& other) noexcept;
  ~FolderBuilder();

  const std::string& partial() const { return partial_; }
  // Renames it and takes the files named kConversionStateName out. ERRORS: kIo.
  Status Commit();
  // Ends a run that was `written`: with Commit, or if it failed with its error. Then the folder
  // stays only where another run could go on with it: after kIo and kResourceExhausted, not where
  // the source is at fault.
  Status Finish(Status written);

 private:
  FolderBuilder(std::string path, std::string partial)
      : path_(std::move(path)), partial_(std::move(partial)) {}
  Status Lock();

  std::string path_;
  std::string partial_;
  int fd_ = -1;  // of the folder; holds the lock
};

// Renames of and in a folder survive a crash once it is flushed. Only a hint.
void FlushFolder(const std::string& path);

}  // namespace kvasir

#endif  // KVASIR_CONVERT_FOLDER_BUILDER_H_
