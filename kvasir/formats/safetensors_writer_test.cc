// What the writer writes, the reader reads; what it refuses leaves nothing behind.
// Deliberately also checks bytes: alignment and the order of the data are promises.
#include "kvasir/formats/safetensors_writer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "kvasir/formats/safetensors.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

std::span<const std::byte> Bytes(const std::vector<float>& values) {
  return std::as_bytes(std::span(values));
}

TEST(SafetensorsWriter, RoundTripInPieces) {
  const ScratchFolder folder;
  const std::string path = folder.File("out.safetensors");
  const std::vector<float> first = {1.0f, 2.0f, 3.0f, 4.0f, 5.0f, 6.0f};
  const std::vector<std::byte> second = {std::byte{7}, std::byte{8}, std::byte{9}};
  auto writer = SafetensorsWriter::Create(path,
                                          {{"none", DType::kF32, {0, 5}},
                                           {"first", DType::kF32, {2, 3}},
                                           {"also \"none\"", DType::kI8, {0}},
                                           {"second", DType::kU8, {3}},
                                           {"last", DType::kF16, {4, 0}}},
                                          {{"format", "pt"}});
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  ASSERT_TRUE(writer->Append("first", Bytes(first).first(5)).ok());
  ASSERT_TRUE(writer->Append("none", {}).ok());
  SafetensorsWriter moved = *std::move(writer);
  ASSERT_TRUE(moved.Append("first", Bytes(first).subspan(5)).ok());
  ASSERT_TRUE(moved.Append("second", second).ok());
  EXPECT_FALSE(FileExists(path));
  ASSERT_TRUE(moved.Finish().ok());
  EXPECT_EQ(folder.FileCount(), 1u);

  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->tensors().size(), 5u);
  EXPECT_EQ(file->metadata().at("format"), "pt");
  std::vector<float> read(6);
  ReadFloats(*file->Find("first"), 0, 6, read.data());
  EXPECT_EQ(read, first);
  EXPECT_EQ(std::memcmp(file->Find("second")->data, second.data(), 3), 0);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(file->Find("first")->data) % 8, 0u);
}

TEST(SafetensorsWriter, LargePiecesPassTheBuffer) {
  const ScratchFolder folder;
  const std::string path = folder.File("large.safetensors");
  constexpr int64_t kCount = 700'000;
  std::vector<float> values(kCount);
  for (int64_t i = 0; i < kCount; ++i) values[i] = static_cast<float>(i);
  auto writer =
      SafetensorsWriter::Create(path, {{"a", DType::kF32, {kCount}}, {"b", DType::kF32, {1}}});
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->Append("a", Bytes(values)).ok());
  ASSERT_TRUE(writer->Append("b", Bytes({42.0f})).ok());
  ASSERT_TRUE(writer->Finish().ok());
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.error().message;
  std::vector<float> read(kCount);
  ReadFloats(*file->Find("a"), 0, kCount, read.data());
  EXPECT_EQ(read, values);
}

TEST(SafetensorsWriter, RefusesWhatWasNotDeclared) {
  const ScratchFolder folder;
  const std::string path = folder.File("out.safetensors");
  {
    auto writer =
        SafetensorsWriter::Create(path, {{"a", DType::kF32, {1}}, {"b", DType::kF32, {1}}});
    ASSERT_TRUE(writer.ok());
    EXPECT_FALSE(writer->Append("b", Bytes({1.0f})).ok());
    EXPECT_FALSE(writer->Append("a", Bytes({1.0f, 2.0f})).ok());
    ASSERT_TRUE(writer->Append("a", Bytes({1.0f})).ok());
    const Status early = writer->Finish();
    ASSERT_FALSE(early.ok());
    EXPECT_NE(early.error().message.find("'b': 4 bytes"), std::string::npos);
    ASSERT_TRUE(writer->Append("b", Bytes({1.0f})).ok());
    EXPECT_FALSE(writer->Append("b", Bytes({1.0f})).ok());
  }
  EXPECT_EQ(folder.FileCount(), 0u);
}

TEST(SafetensorsWriter, RefusesBadDeclarations) {
  const ScratchFolder folder;
  const std::string path = folder.File("out.safetensors");
  EXPECT_FALSE(SafetensorsWriter::Create(path, {{"", DType::kF32, {1}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(path, {{"__metadata__", DType::kF32, {1}}}).ok());
  EXPECT_FALSE(
      SafetensorsWriter::Create(path, {{"a", DType::kF32, {1}}, {"a", DType::kF32, {1}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(path, {{"a", DType::kF32, {-1}}}).ok());
  EXPECT_FALSE(SafetensorsWriter::Create(path, {{"a", DType::kF32, {1ll << 40, 1ll << 40}}}).ok());
  EXPECT_EQ(folder.FileCount(), 0u);
  const auto nowhere = SafetensorsWriter::Create(folder.File("no/out.safetensors"), {});
  EXPECT_EQ(nowhere.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace kvasir
