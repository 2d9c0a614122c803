#include "kvasir/base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <csignal>
#include <filesystem>
#include <iterator>
#include <span>
#include <string>

#include "kvasir/base/file_writer.h"

namespace kvasir {
namespace {

TEST(FileTest, WriteReadMap) {
  const std::string path = testing::TempDir() + "/kvasir_file_test";
  ASSERT_TRUE(WriteFileAtomic(path, "hello").ok());
  EXPECT_EQ(*ReadFile(path), "hello");
  auto mapped = MappedFile::Open(path);
  ASSERT_TRUE(mapped.ok());
  const MappedFile moved = std::move(*mapped);
  EXPECT_EQ(moved.bytes().size(), 5u);
  EXPECT_EQ(moved.bytes()[1], std::byte{'e'});
  ASSERT_TRUE(WriteFileAtomic(path, "").ok());
  EXPECT_TRUE(MappedFile::Open(path)->bytes().empty());
}

TEST(FileTest, PiecesAreReadAndTheirLossIsAnError) {
  const std::string path = testing::TempDir() + "/kvasir_file_reader_test";
  ASSERT_TRUE(WriteFileAtomic(path, "hello").ok());
  auto opened = FileReader::Open(path);
  ASSERT_TRUE(opened.ok());
  const FileReader file = *std::move(opened);
  EXPECT_EQ(file.size_bytes(), 5u);
  std::array<std::byte, 3> piece;
  ASSERT_TRUE(file.Read(2, piece).ok());
  EXPECT_EQ(piece, (std::array{std::byte{'l'}, std::byte{'l'}, std::byte{'o'}}));
  EXPECT_TRUE(file.Read(5, {}).ok());
  ASSERT_EQ(truncate(path.c_str(), 4), 0);
  const Status cut = file.Read(2, piece);
  ASSERT_FALSE(cut.ok());
  EXPECT_EQ(cut.error().code, ErrorCode::kIo);
  EXPECT_EQ(cut.error().message, path + ": was cut short while it was read");
  EXPECT_EQ(FileReader::Open("/nonexistent/file").error().code, ErrorCode::kNotFound);
  EXPECT_FALSE(FileReader::Open("/").ok());
}

TEST(FileTest, ErrorsNameThePath) {
  const auto missing = ReadFile("/nonexistent/file");
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("/nonexistent/file"), std::string::npos);
  EXPECT_FALSE(MappedFile::Open("/").ok());
  EXPECT_FALSE(WriteFileAtomic("/nonexistent/file", "x").ok());
}

// Pieces of all sizes, around those in which they are written.
TEST(FileWriterTest, TheFileIsWhatWasAppendedAndPatched) {
  const std::string path = testing::TempDir() + "/kvasir_file_writer_test";
  constexpr size_t kPiece = size_t{2} << 20;
  auto writer = FileWriter::Create(path);
  ASSERT_TRUE(writer.ok());
  std::string wanted;
  const size_t sizes[] = {64,         kPiece - 65, 1, 1,          kPiece,     kPiece - 2, 0, 1,
                          2 * kPiece, 3,           5, 3 * kPiece, kPiece - 8, kPiece + 7, 9};
  for (const size_t size : sizes) {
    std::string part(size, '\0');
    for (size_t i = 0; i < size; ++i) part[i] = static_cast<char>((wanted.size() + i) * 7 / 251);
    ASSERT_TRUE(writer->Append(std::as_bytes(std::span(part))).ok());
    wanted += part;
    ASSERT_EQ(writer->size_bytes(), wanted.size());
    const std::string patch = "patch of " + std::to_string(size);
    if (size % 2 == 0 || wanted.size() < 100) continue;
    wanted.replace(wanted.size() - 50, patch.size(), patch);
    ASSERT_TRUE(writer->Patch(wanted.size() - 50, std::as_bytes(std::span(patch))).ok());
  }
  EXPECT_FALSE(FileExists(path));
  ASSERT_TRUE(writer->Commit().ok());
  EXPECT_TRUE(*ReadFile(path) == wanted);
  EXPECT_FALSE(writer->Commit().ok());
  std::filesystem::remove(path);
}

mode_t ModeOf(const std::string& path) {
  struct stat info = {};
  EXPECT_EQ(stat(path.c_str(), &info), 0) << path;
  return info.st_mode & 0777;
}

// New files are as open as the process wants its files, and one that somebody closed stays so.
TEST(FileWriterTest, PermissionsAreThoseOfTheProcessOrOfWhatIsReplaced) {
  const std::string path = testing::TempDir() + "/kvasir_file_mode_test";
  std::filesystem::remove(path);
  const mode_t usual = umask(027);
  EXPECT_TRUE(WriteFileAtomic(path, "first").ok());
  umask(usual);
  EXPECT_EQ(ModeOf(path), 0640u);
  for (const mode_t mode : {mode_t{0600}, mode_t{0664}}) {
    ASSERT_EQ(chmod(path.c_str(), mode), 0);
    ASSERT_TRUE(WriteFileAtomic(path, "second").ok());
    EXPECT_EQ(ModeOf(path), mode);
  }
  std::filesystem::remove(path);
}

// Neither given up nor killed, and none of two at once is in the other's way.
TEST(FileWriterTest, NothingButCompleteFilesRemains) {
  const std::string folder =
      testing::TempDir() + "/kvasir_file_writer_folder_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/file";
  const auto bytes = std::as_bytes(std::span("some"));
  {
    auto given_up = FileWriter::Create(path);
    ASSERT_TRUE(given_up.ok() && given_up->Append(bytes).ok());
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder));
  auto first = FileWriter::Create(path);
  auto second = FileWriter::Create(path);
  ASSERT_TRUE(first.ok() && second.ok());
  ASSERT_TRUE(first->Append(bytes).ok() && first->Commit().ok());
  ASSERT_TRUE(second->Commit().ok());
  EXPECT_EQ(*ReadFile(path), "");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
#ifdef O_TMPFILE
  const int probe = open(folder.c_str(), O_TMPFILE | O_WRONLY, 0600);
  if (probe >= 0) {
    close(probe);
    const pid_t child = fork();
    if (child == 0) {
      auto killed = FileWriter::Create(path);
      if (killed.ok() && killed->Append(bytes).ok()) kill(getpid(), SIGKILL);
      _exit(1);
    }
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  }
#endif
  std::filesystem::remove_all(folder);
}

TEST(FileWriterTest, NamesThatCannotBeAreRefusedBeforeAnythingIsWritten) {
  for (const std::string& path :
       {testing::TempDir(), testing::TempDir() + "/" + std::string(250, 'x'),
        std::string("/nonexistent/file"), std::string()}) {
    const auto writer = FileWriter::Create(path);
    ASSERT_FALSE(writer.ok()) << path;
    EXPECT_NE(writer.error().message.find(path + ": cannot create: "), std::string::npos)
        << writer.error().message;
  }
}

// A link stays one, and what it leads to is replaced; what is neither stays as well.
TEST(FileWriterTest, LinksAreFollowedAndDevicesAreLeftAlone) {
  namespace fs = std::filesystem;
  const std::string folder =
      testing::TempDir() + "/kvasir_file_writer_links_" + std::to_string(getpid());
  fs::create_directory(folder);
  ASSERT_TRUE(WriteFileAtomic(folder + "/file", "old").ok());
  fs::create_symlink("file", folder + "/link");
  fs::create_symlink(folder + "/link", folder + "/far");
  fs::create_symlink("new", folder + "/dangling");
  ASSERT_TRUE(WriteFileAtomic(folder + "/far", "new").ok());
  ASSERT_TRUE(WriteFileAtomic(folder + "/dangling", "more").ok());
  for (const char* link : {"/link", "/far", "/dangling"}) {
    EXPECT_TRUE(fs::is_symlink(folder + link)) << link;
  }
  EXPECT_EQ(*ReadFile(folder + "/file"), "new");
  EXPECT_EQ(*ReadFile(folder + "/new"), "more");
  ASSERT_EQ(mkfifo((folder + "/fifo").c_str(), 0600), 0);
  EXPECT_FALSE(WriteFileAtomic(folder + "/fifo", "x").ok());
  EXPECT_TRUE(fs::is_fifo(folder + "/fifo"));
  // Nor does anybody wait for who writes into it.
  EXPECT_FALSE(ReadFile(folder + "/fifo").ok());
  EXPECT_FALSE(MappedFile::Open(folder + "/fifo").ok());
  fs::remove_all(folder);
}

TEST(FileWriterTest, WhatMustNotExistIsNeverReplaced) {
  const std::string folder =
      testing::TempDir() + "/kvasir_file_writer_refuse_" + std::to_string(getpid());
  std::filesystem::create_directory(folder);
  const std::string path = folder + "/file";
  const auto create = [&] { return FileWriter::Create(path, FileWriter::Existing::kRefuse); };
  auto first = create();
  auto second = create();
  ASSERT_TRUE(first.ok() && second.ok());
  EXPECT_TRUE(first->Append(std::as_bytes(std::span("1", 1))).ok());
  EXPECT_TRUE(first->Commit().ok());
  const Status late = second->Commit();
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kFailedPrecondition);
  EXPECT_EQ(*ReadFile(path), "1");
  EXPECT_EQ(create().error().code, ErrorCode::kFailedPrecondition);
  { const FileWriter gone = *std::move(second); }
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  std::filesystem::remove_all(folder);
}

TEST(FileTest, WhatIsReadWholeHasALimit) {
  const std::string path = testing::TempDir() + "/kvasir_sparse_test";
  ASSERT_TRUE(WriteFileAtomic(path, "{}").ok());
  ASSERT_EQ(truncate(path.c_str(), off_t{1} << 42), 0);
  const auto read = ReadFile(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(read.error().message.find(path), std::string::npos);
  ASSERT_TRUE(WriteFileAtomic(path, "12345").ok());
  EXPECT_TRUE(ReadFile(path, 5).ok());
  EXPECT_FALSE(ReadFile(path, 4).ok());
  std::filesystem::remove(path);
}

TEST(FileTest, VersionsChangeWithSizeAndTime) {
  const std::string path = testing::TempDir() + "/kvasir_version_test";
  ASSERT_TRUE(WriteFileAtomic(path, "hello").ok());
  const FileVersion first = *FileVersion::Of(path);
  EXPECT_EQ(*FileVersion::Of(path), first);
  EXPECT_EQ(first.path, path);
  EXPECT_EQ(first.stamp.find("5 "), 0u) << first.stamp;
  const auto time = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, time + std::chrono::nanoseconds(1000));
  EXPECT_NE(*FileVersion::Of(path), first);
  // A time that was set back is not one at which nothing happened.
  std::filesystem::last_write_time(path, time);
  EXPECT_NE(*FileVersion::Of(path), first);
  ASSERT_TRUE(WriteFileAtomic(path, "hello!").ok());
  std::filesystem::last_write_time(path, time);
  EXPECT_NE(*FileVersion::Of(path), first);
  std::filesystem::remove(path);
  EXPECT_EQ(FileVersion::Of(path).error().code, ErrorCode::kNotFound);
}

TEST(FileTest, AMapKnowsTheVersionThatWasOpened) {
  const std::string path = testing::TempDir() + "/kvasir_version_test";
  ASSERT_TRUE(WriteFileAtomic(path, "hello").ok());
  const FileVersion first = *FileVersion::Of(path);
  MappedFile opened = *MappedFile::Open(path);
  EXPECT_EQ(opened.version(), first);
  ASSERT_TRUE(WriteFileAtomic(path, "others").ok());
  EXPECT_EQ(opened.version(), first);
  EXPECT_NE(*FileVersion::Of(path), first);
  const MappedFile moved = std::move(opened);
  EXPECT_EQ(moved.version(), first);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace kvasir
