// .npy files: exact bytes, round trips and damage.
// Deliberately compares the header with what NumPy itself writes.
#include "kvasir/formats/npy.h"

#include <gtest/gtest.h>

#include <cstring>

#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

Result<NpyMatrix> ParseText(const std::string& file) {
  return ParseNpy(std::as_bytes(std::span(file)));
}

// As numpy.save does it: the header is padded to a multiple of 64 bytes.
std::string NumpyFile(const std::string& dict, size_t data_bytes) {
  std::string header = dict;
  header.resize(117, ' ');
  header += '\n';
  return std::string("\x93NUMPY\x01\x00\x76\x00", 10) + header + std::string(data_bytes, '\0');
}

TEST(Npy, RoundTripWithRowsCountedAtTheEnd) {
  const ScratchFolder folder;
  const std::string path = folder.File("logits.npy");
  auto writer = NpyWriter::Create(path, 3);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->AppendRow(std::vector<float>{1.0f, -0.0f, 3.5f}).ok());
  ASSERT_TRUE(writer->AppendRow(std::vector<float>{4.0f, 5.0f, 1e-40f}).ok());
  EXPECT_FALSE(writer->AppendRow(std::vector<float>{4.0f}).ok());
  EXPECT_EQ(writer->rows(), 2);
  EXPECT_FALSE(FileExists(path));
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_FALSE(writer->Finish().ok());
  const auto matrix = ReadNpy(path);
  ASSERT_TRUE(matrix.ok()) << matrix.error().message;
  EXPECT_EQ(matrix->rows, 2);
  EXPECT_EQ(matrix->cols, 3);
  const std::vector<float> expected = {1.0f, -0.0f, 3.5f, 4.0f, 5.0f, 1e-40f};
  EXPECT_EQ(std::memcmp(matrix->values.data(), expected.data(), 24), 0);
  EXPECT_EQ(folder.FileCount(), 1u);
}

TEST(Npy, HeaderIsNumpys) {
  const ScratchFolder folder;
  auto writer = NpyWriter::Create(folder.File("a.npy"), 2);
  ASSERT_TRUE(writer.ok());
  ASSERT_TRUE(writer->AppendRow(std::vector<float>{0.0f, 0.0f}).ok());
  ASSERT_TRUE(writer->Finish().ok());
  EXPECT_EQ(*ReadFile(folder.File("a.npy")),
            NumpyFile("{'descr': '<f4', 'fortran_order': False, 'shape': (1, 2), }", 8));
}

TEST(Npy, NoRowsAndNoColumns) {
  const ScratchFolder folder;
  for (const int64_t cols : {0, 4}) {
    auto writer = NpyWriter::Create(folder.File("e.npy"), cols);
    ASSERT_TRUE(writer.ok());
    if (cols == 0) {
      ASSERT_TRUE(writer->AppendRow({}).ok());
    }
    ASSERT_TRUE(writer->Finish().ok());
    const auto matrix = ReadNpy(folder.File("e.npy"));
    ASSERT_TRUE(matrix.ok()) << matrix.error().message;
    EXPECT_EQ(matrix->rows, cols == 0 ? 1 : 0);
    EXPECT_EQ(matrix->cols, cols);
  }
  EXPECT_FALSE(NpyWriter::Create(folder.File("n.npy"), -1).ok());
}

TEST(Npy, RefusesWhatItDoesNotUnderstand) {
  const auto code = [](const std::string& dict, size_t data_bytes) {
    const auto matrix = ParseText(NumpyFile(dict, data_bytes));
    EXPECT_FALSE(matrix.ok()) << dict;
    return matrix.error().code;
  };
  const std::string front = "{'descr': '<f4', 'fortran_order': False, 'shape': ";
  EXPECT_EQ(code("{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }", 16),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code("{'descr': '<f4', 'fortran_order': True, 'shape': (1, 2), }", 8),
            ErrorCode::kUnsupported);
  EXPECT_EQ(code(front + "(1, 2, 3), }", 24), ErrorCode::kUnsupported);
  EXPECT_EQ(code(front + "(2,), }", 8), ErrorCode::kCorrupt);
  EXPECT_EQ(code(front + "(-1, 2), }", 8), ErrorCode::kCorrupt);
  EXPECT_EQ(code(front + "(1, 2), }", 9), ErrorCode::kCorrupt);
  EXPECT_EQ(code(front + "(1, 2), }", 12), ErrorCode::kCorrupt);
  EXPECT_EQ(code(front + "(4611686018427387905, 4), }", 16), ErrorCode::kCorrupt);
  EXPECT_EQ(code(front + "(99999999999999999999, 4), }", 16), ErrorCode::kCorrupt);
  EXPECT_EQ(code(front, 0), ErrorCode::kCorrupt);
  EXPECT_EQ(code("", 0), ErrorCode::kUnsupported);
  EXPECT_FALSE(ParseText("").ok());
  EXPECT_FALSE(ParseText("\x93NUMPY\x02").ok());
  const std::string whole = NumpyFile(front + "(1, 2), }", 8);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseText(whole.substr(0, size)).ok()) << size;
  }
}

}  // namespace
}  // namespace kvasir
