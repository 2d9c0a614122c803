#include "kvasir/formats/packed_weights_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "kvasir/base/bytes.h"
#include "kvasir/base/checksum.h"
#include "kvasir/base/rng.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

constexpr int64_t kOutputs = 21;
constexpr int64_t kInputs = 256;
constexpr AffineScales kAffine = {
    .group_inputs = 64, .dtype = DType::kBf16, .rounds_values = true, .has_zeros = false};

// Of E4M3 the next one is NaN.
int MostCode(WeightFormat format) {
  const bool is_e4m3 = format == WeightFormat::kMxfp8 || format == WeightFormat::kFp8;
  return is_e4m3 ? 126 : (1 << CodeBits(format)) - 1;
}

// Numbers that are a function of the format alone.
PackedMatrix MatrixOf(WeightFormat format, int64_t outputs = kOutputs) {
  PackedMatrix matrix = *PackedMatrix::Allocate(outputs, kInputs, format, kAffine);
  uint64_t counter = 0;
  const auto next = [&](int below) {
    return static_cast<int>(UniformDouble(7, counter++) * below);
  };
  const int scales = format == WeightFormat::kQ2K ? 16 : 64;
  const int least_scale = format == WeightFormat::kMxfp8 ? 64 : 0;
  for (int64_t output = 0; output < outputs; ++output) {
    if (!IsCodedOnly(format)) {
      std::vector<float> row(kInputs);
      for (float& value : row) value = static_cast<float>(next(2001) - 1000) / 512;
      matrix.SetRow(output, row.data());
      continue;
    }
    CodedRow row;
    for (int64_t k = 0; k < kInputs; ++k) {
      row.codes.push_back(static_cast<uint8_t>(next(MostCode(format) + 1)));
      row.scales.push_back(static_cast<uint16_t>(next(0x3C00)));
      row.biases.push_back(static_cast<uint16_t>(next(0x3C00)));
      row.sub_scales.push_back(static_cast<uint8_t>(least_scale + next(scales)));
      row.sub_mins.push_back(static_cast<uint8_t>(next(scales)));
      row.wide_scales.push_back(static_cast<float>(k % 7 + output + 1) / 4096);
    }
    matrix.SetCodedRow(output, row);
  }
  return matrix;
}

std::string KeyOf(WeightFormat format) { return std::string(WeightFormatName(format)) + " key"; }

std::string BytesOf(const PackedMatrix& matrix) {
  return std::string(reinterpret_cast<const char*>(matrix.panel(0)), matrix.bytes());
}

class PackedWeightsFileTest : public testing::Test {
 protected:
  void WriteTwo() {
    auto writer = *PackedWeightsWriter::Create(path_, "made of this");
    ASSERT_TRUE(writer.Append("first", first_).ok());
    ASSERT_TRUE(writer.Append("second", second_).ok());
    ASSERT_TRUE(writer.Commit().ok());
    file_ = *ReadFile(path_);
  }

  static PackedMatrix Small(int64_t outputs) {
    PackedMatrix matrix = *PackedMatrix::Allocate(outputs, 3, WeightFormat::kF16);
    const float row[3] = {1, 2, 3};
    for (int64_t output = 0; output < outputs; ++output) matrix.SetRow(output, row);
    return matrix;
  }

  uint64_t Field(size_t at) const {
    uint64_t value;
    std::memcpy(&value, file_.data() + at, sizeof(value));
    return value;
  }
  void SetField(size_t at, uint64_t value) {
    std::memcpy(file_.data() + at, &value, sizeof(value));
  }
  // Of the index, then of the header.
  void RepairChecksums() {
    const uint64_t offset = Field(24);
    if (offset <= file_.size()) {
      SetField(40, Checksum64(std::as_bytes(std::span(file_)).subspan(offset)));
    }
    SetField(56, Checksum64(std::as_bytes(std::span(file_)).first(56)));
  }
  Result<PackedWeightsIndex> Parse() const {
    return ParsePackedWeights(std::as_bytes(std::span(file_)), "made of this");
  }
  ErrorCode ParseError() const {
    const auto parsed = Parse();
    EXPECT_FALSE(parsed.ok());
    if (parsed.ok()) return ErrorCode::kCancelled;
    EXPECT_FALSE(parsed.error().message.empty());
    return parsed.error().code;
  }

  ScratchFolder scratch_;
  const std::string path_ = scratch_.File("some.panels");
  // 96 bytes a panel: the second matrix needs padding before it.
  const PackedMatrix first_ = Small(20);
  const PackedMatrix second_ = Small(33);
  std::string file_;
};

TEST_F(PackedWeightsFileTest, EveryFormatComesBackToTheBit) {
  auto writer = *PackedWeightsWriter::Create(path_, "made of this");
  for (const WeightFormat format : AllWeightFormats()) {
    ASSERT_TRUE(writer.Append(KeyOf(format), MatrixOf(format)).ok());
  }
  ASSERT_TRUE(writer.Append("empty", *PackedMatrix::Allocate(0, 32, WeightFormat::kQ8)).ok());
  ASSERT_TRUE(writer.Commit().ok());
  EXPECT_EQ(scratch_.FileCount(), 1u);
  const auto file = PackedWeightsFile::Open(path_, "made of this");
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const WeightFormat format : AllWeightFormats()) {
    SCOPED_TRACE(WeightFormatName(format));
    const PackedMatrix made = MatrixOf(format);
    const auto found = file->Find(KeyOf(format), made.shape());
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(found->panel(0)) % 64, 0u);
    EXPECT_EQ(BytesOf(*found), BytesOf(made));
    std::vector<float> wanted(kInputs), row(kInputs);
    for (int64_t output = 0; output < kOutputs; ++output) {
      made.GetRow(output, wanted.data());
      found->GetRow(output, row.data());
      ASSERT_EQ(row, wanted) << output;
    }
  }
  EXPECT_TRUE(file->Find("empty", {0, 32, WeightFormat::kQ8, {}}).ok());
}

// Files outlive programs: who changes these bytes counts kPanelLayoutVersion up.
TEST_F(PackedWeightsFileTest, PanelsAreThoseOfTheirVersion) {
  static_assert(kPanelLayoutVersion == 7);
  constexpr uint64_t kVersion7[kWeightFormats] = {
      0xC37C1FDA9D4FBCF1ull, 0x88AB5D2345F9B8EBull, 0xF1A0F0C94CFBFD84ull, 0xF64D702B8EA3E896ull,
      0x989C510703C4BCCDull, 0x9970B0105D181F3Dull, 0xBF3D0742337D280Bull, 0x8C4F2E6C136B9110ull,
      0xBC4E3D7F48E7D628ull, 0x0A399CA8CE240A05ull, 0x64C58F25AE43E255ull, 0x42F17035753266A5ull,
      0xABB107F58801246Aull, 0x0A5E3226E053E66Dull, 0x3FFC39EA88255A47ull, 0x22ACF000671A8C1Dull,
      0x8403EA0C96D45479ull, 0x70963E146EA513ACull, 0x74964000DA160704ull, 0xD2B1D2F16DACAE12ull,
      0x1F9170E3995D6D3Full, 0x153C1B4241A81D6Full, 0x5CEDDC1BD826AA9Eull, 0x9A3BCF449AE1D3BAull,
      0xDA2976294577240Bull};
  for (const WeightFormat format : AllWeightFormats()) {
    const PackedMatrix matrix = MatrixOf(format);
    const uint64_t sum = Checksum64({matrix.panel(0), matrix.bytes()});
    EXPECT_EQ(sum, kVersion7[static_cast<size_t>(format)]) << WeightFormatName(format);
  }
}

TEST_F(PackedWeightsFileTest, MatricesOutliveTheirFile) {
  WriteTwo();
  PackedMatrix matrix;
  {
    const auto file = *PackedWeightsFile::Open(path_, "made of this");
    matrix = *file.Find("second", second_.shape());
  }
  std::filesystem::remove(path_);
  const PackedMatrix moved = std::move(matrix);
  EXPECT_EQ(BytesOf(moved), BytesOf(second_));
}

TEST_F(PackedWeightsFileTest, OnlyTheShapeThatWasPackedIsFound) {
  WriteTwo();
  const auto file = *PackedWeightsFile::Open(path_, "made of this");
  EXPECT_EQ(file.Find("third", second_.shape()).error().code, ErrorCode::kNotFound);
  const PackedShape right = second_.shape();
  std::vector<PackedShape> wrong(7, right);
  wrong[0].outputs = 34;
  wrong[1].inputs = 4;
  wrong[2].format = WeightFormat::kBf16;
  wrong[3].affine.group_inputs = 128;
  wrong[4].affine.dtype = DType::kBf16;
  wrong[5].affine.rounds_values = true;
  wrong[6].affine.has_zeros = true;
  for (size_t i = 0; i < wrong.size(); ++i) {
    const auto found = file.Find("second", wrong[i]);
    ASSERT_FALSE(found.ok()) << i;
    EXPECT_EQ(found.error().code, ErrorCode::kCorrupt);
  }
  EXPECT_TRUE(file.Find("second", right).ok());
}

TEST_F(PackedWeightsFileTest, FirstOfEqualKeysCounts) {
  auto writer = *PackedWeightsWriter::Create(path_, "made of this");
  ASSERT_TRUE(writer.Append("tied", first_).ok());
  const uint64_t size = writer.size_bytes();
  ASSERT_TRUE(writer.Append("tied", second_).ok());
  EXPECT_EQ(writer.size_bytes(), size);
  EXPECT_EQ(writer.matrices(), 1u);
}

TEST_F(PackedWeightsFileTest, AbandonedFilesLeaveNothing) {
  {
    auto writer = *PackedWeightsWriter::Create(path_, "made of this");
    ASSERT_TRUE(writer.Append("first", first_).ok());
  }
  EXPECT_EQ(scratch_.FileCount(), 0u);
  EXPECT_EQ(PackedWeightsFile::Open(path_, "").error().code, ErrorCode::kNotFound);
}

TEST_F(PackedWeightsFileTest, OtherSourcesAreRefused) {
  WriteTwo();
  for (const char* other : {"", "made of thi", "made of this ", "made of that"}) {
    const auto file = PackedWeightsFile::Open(path_, other);
    ASSERT_FALSE(file.ok()) << other;
    EXPECT_EQ(file.error().code, ErrorCode::kInvalidArgument);
    EXPECT_NE(file.error().message.find(path_), std::string::npos);
  }
}

TEST_F(PackedWeightsFileTest, TruncatedAtEveryLength) {
  WriteTwo();
  const std::string whole = file_;
  for (size_t size = 0; size < whole.size(); ++size) {
    file_ = whole.substr(0, size);
    ASSERT_EQ(ParseError(), ErrorCode::kCorrupt) << size;
    if (size < 64) continue;
    // Even if the header says so.
    SetField(16, size);
    RepairChecksums();
    ASSERT_EQ(ParseError(), ErrorCode::kCorrupt) << size;
  }
  file_ = whole + '\0';
  EXPECT_EQ(ParseError(), ErrorCode::kCorrupt);
}

TEST_F(PackedWeightsFileTest, EveryByteOfHeaderAndIndexCounts) {
  WriteTwo();
  const auto index_offset = static_cast<size_t>(Field(24));
  for (size_t at = 0; at < file_.size(); ++at) {
    if (at == 64) at = index_offset;
    file_[at] = static_cast<char>(file_[at] ^ 0x40);
    ASSERT_FALSE(Parse().ok()) << at;
    file_[at] = static_cast<char>(file_[at] ^ 0x40);
  }
  EXPECT_TRUE(Parse().ok());
}

TEST_F(PackedWeightsFileTest, OtherVersionsAndOrdersOfBytesAreRefused) {
  WriteTwo();
  const std::string whole = file_;
  SetField(8, Field(8) + 1);
  RepairChecksums();
  EXPECT_EQ(ParseError(), ErrorCode::kUnsupported);
  file_ = whole;
  std::swap(file_[12], file_[15]);
  std::swap(file_[13], file_[14]);
  RepairChecksums();
  EXPECT_EQ(ParseError(), ErrorCode::kUnsupported);
}

// Whoever makes a file by hand gets its checksums right.
TEST_F(PackedWeightsFileTest, AbsurdHeadersAreRefused) {
  WriteTwo();
  const std::string whole = file_;
  for (const size_t field : {16, 24, 32, 48}) {
    for (const uint64_t value :
         {uint64_t{0}, uint64_t{1}, uint64_t{63}, uint64_t{whole.size() - 1},
          uint64_t{whole.size() + 1}, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 63}) {
      if (field == 48 && value == 0) continue;  // as it is
      file_ = whole;
      SetField(field, value);
      RepairChecksums();
      ASSERT_EQ(ParseError(), ErrorCode::kCorrupt) << field << " " << value;
    }
  }
}

TEST_F(PackedWeightsFileTest, AbsurdMatricesAreRefused) {
  WriteTwo();
  const std::string whole = file_;
  const auto index_offset = static_cast<size_t>(Field(24));
  // Fingerprint, number of matrices, then key, extents, format, affine: as in the document.
  const size_t entry = index_offset + 4 + 12 + 4;
  const size_t extents = entry + 4 + 5;
  const size_t place = extents + 16 + 4 + 3 + 4 + 3;
  ASSERT_EQ(Field(place), 64u);
  ASSERT_EQ(Field(place + 8), first_.bytes());
  for (const uint64_t offset :
       {uint64_t{0}, uint64_t{63}, uint64_t{65}, uint64_t{96}, uint64_t{index_offset},
        uint64_t{index_offset} + 64, uint64_t{1} << 62, ~uint64_t{0} - 63}) {
    file_ = whole;
    SetField(place, offset);
    RepairChecksums();
    EXPECT_EQ(ParseError(), ErrorCode::kCorrupt) << offset;
  }
  for (const uint64_t size :
       {uint64_t{index_offset} - 63, uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 63}) {
    file_ = whole;
    SetField(place + 8, size);
    RepairChecksums();
    EXPECT_EQ(ParseError(), ErrorCode::kCorrupt) << size;
  }
  // More matrices than there are.
  file_ = whole;
  file_[index_offset + 4 + 12 + 3] = '\x7F';
  RepairChecksums();
  EXPECT_EQ(ParseError(), ErrorCode::kCorrupt);
  // The same twice, the text of the key one byte shorter than it was.
  file_ = whole;
  const size_t second = file_.find("second", index_offset);
  file_.replace(second - 4, 10, std::string("\5\0\0\0first", 9));
  SetField(16, file_.size());
  SetField(32, file_.size() - index_offset);
  RepairChecksums();
  const auto twice = Parse();
  ASSERT_FALSE(twice.ok());
  EXPECT_NE(twice.error().message.find("twice"), std::string::npos) << twice.error().message;
  // Sizes within the file that no such matrix has.
  for (const uint64_t size :
       {uint64_t{0}, uint64_t{first_.bytes()} - 1, uint64_t{first_.bytes()} + 1}) {
    file_ = whole;
    SetField(place + 8, size);
    RepairChecksums();
    scratch_.Write("some.panels", file_);
    const auto file = *PackedWeightsFile::Open(path_, "made of this");
    const auto found = file.Find("first", first_.shape());
    ASSERT_FALSE(found.ok()) << size;
    EXPECT_EQ(found.error().code, ErrorCode::kCorrupt);
  }
  // Extents that fit no memory are never asked for, so nothing is computed from them.
  for (const uint64_t extent : {uint64_t{1} << 62, ~uint64_t{0}}) {
    file_ = whole;
    SetField(extents, extent);
    SetField(extents + 8, extent);
    RepairChecksums();
    scratch_.Write("some.panels", file_);
    const auto file = *PackedWeightsFile::Open(path_, "made of this");
    EXPECT_FALSE(file.Find("first", first_.shape()).ok());
  }
}

}  // namespace
}  // namespace kvasir
