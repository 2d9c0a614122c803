#include "kvasir/base/file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>

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

TEST(FileTest, FingerprintsChangeWithSizeAndTime) {
  const std::string path = testing::TempDir() + "/kvasir_fingerprint_test";
  ASSERT_TRUE(WriteFileAtomic(path, "hello").ok());
  const std::string first = *FileFingerprint(path);
  EXPECT_EQ(*FileFingerprint(path), first);
  EXPECT_EQ(first.find(path + " 5 "), 0u) << first;
  const auto time = std::filesystem::last_write_time(path);
  std::filesystem::last_write_time(path, time + std::chrono::nanoseconds(1000));
  EXPECT_NE(*FileFingerprint(path), first);
  std::filesystem::last_write_time(path, time);
  EXPECT_EQ(*FileFingerprint(path), first);
  ASSERT_TRUE(WriteFileAtomic(path, "hello!").ok());
  std::filesystem::last_write_time(path, time);
  EXPECT_NE(*FileFingerprint(path), first);
  std::filesystem::remove(path);
  EXPECT_EQ(FileFingerprint(path).error().code, ErrorCode::kIo);
}

}  // namespace
}  // namespace kvasir
