#include "kvasir/base/file.h"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace kvasir
