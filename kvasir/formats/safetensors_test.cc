// Every rule of the safetensors header, broken one at a time.
// Deliberately without the writer: files here are made by hand.
#include "kvasir/formats/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "kvasir/base/rng.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

Result<SafetensorsHeader> ParseText(const std::string& file) {
  return SafetensorsHeader::Parse(std::as_bytes(std::span(file)));
}

void ExpectError(const std::string& file, ErrorCode code, const std::string& part) {
  const auto header = ParseText(file);
  ASSERT_FALSE(header.ok()) << part;
  EXPECT_EQ(header.error().code, code) << header.error().message;
  EXPECT_NE(header.error().message.find(part), std::string::npos) << header.error().message;
}

void ExpectCorrupt(const std::string& header, size_t data_bytes, const std::string& part) {
  ExpectError(SafetensorsBytes(header, data_bytes), ErrorCode::kCorrupt, part);
}

constexpr char kTwo[] =
    R"({"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]},"__metadata__":{"format":"pt"},)"
    R"("a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]}}  )";

TEST(SafetensorsHeader, ReadsTensorsInTheOrderOfTheirBytes) {
  const auto header = ParseText(SafetensorsBytes(kTwo, 12));
  ASSERT_TRUE(header.ok()) << header.error().message;
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].name, "a");
  EXPECT_EQ(header->entries[0].dtype, DType::kBf16);
  EXPECT_EQ(header->entries[0].shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(header->entries[1].begin, 4u);
  EXPECT_EQ(header->entries[1].end, 12u);
  EXPECT_EQ(header->metadata.at("format"), "pt");
  EXPECT_EQ(header->data_offset, 8 + sizeof(kTwo) - 1);
}

TEST(SafetensorsHeader, ScalarsEmptyTensorsAndNoTensors) {
  EXPECT_TRUE(ParseText(SafetensorsBytes("{}", 0)).ok());
  EXPECT_TRUE(ParseText(SafetensorsBytes(R"({"__metadata__":{}})", 0)).ok());
  const auto header =
      ParseText(SafetensorsBytes(R"({"s":{"dtype":"F64","shape":[],"data_offsets":[0,8]},)"
                                 R"("e":{"dtype":"I8","shape":[3,0],"data_offsets":[8,8]},)"
                                 R"("z":{"dtype":"I8","shape":[0],"data_offsets":[0,0]}})",
                                 8));
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->entries.size(), 3u);
}

TEST(SafetensorsHeader, EscapedAndOddNamesAreRead) {
  const auto header = ParseText(SafetensorsBytes(
      R"({ "a\"},{\u00e9" : {"dtype":"U8","shape":[1],"data_offsets":[0,1]} })", 1));
  ASSERT_TRUE(header.ok()) << header.error().message;
  EXPECT_EQ(header->entries[0].name, "a\"},{\u00e9");
}

TEST(SafetensorsHeader, EveryTypeOfElement) {
  for (const char* name : {"F32", "F16", "BF16", "U8", "I8", "I16", "U16", "I32", "U32", "I64",
                           "U64", "F64", "BOOL", "F8_E4M3", "F8_E5M2", "F8_E8M0"}) {
    const auto dtype = DTypeFromSafetensors(name);
    ASSERT_TRUE(dtype.ok()) << name;
    EXPECT_EQ(SafetensorsDTypeName(*dtype), name);
  }
  ExpectError(SafetensorsBytes(R"({"w":{"dtype":"F4","shape":[1],"data_offsets":[0,1]}})", 1),
              ErrorCode::kUnsupported, "tensor 'w': element type 'F4'");
}

TEST(SafetensorsHeader, LengthsThatDoNotFitTheFile) {
  ExpectError("", ErrorCode::kCorrupt, "too short");
  ExpectError("1234567", ErrorCode::kCorrupt, "too short");
  ExpectError(std::string(8, '\xff'), ErrorCode::kCorrupt, "limit");
  BytesWriter long_header;
  long_header.Write(uint64_t{3});
  long_header.WriteText("{}");
  ExpectError(long_header.Take(), ErrorCode::kCorrupt, "truncated");
  BytesWriter huge;
  huge.Write(uint64_t{100'000'001});
  ExpectError(huge.Take(), ErrorCode::kCorrupt, "limit");
  ExpectError(std::string(8, '\0'), ErrorCode::kCorrupt, "'{'");
}

TEST(SafetensorsHeader, MalformedJson) {
  ExpectCorrupt(" {}", 0, "'{'");
  ExpectCorrupt("[]", 0, "'{'");
  ExpectCorrupt("{", 0, "name was expected");
  ExpectCorrupt("{}x", 0, "nothing may follow");
  ExpectCorrupt("{\"a", 0, "name was expected");
  ExpectCorrupt("{\"a\\", 0, "name was expected");
  ExpectCorrupt("{\"a\" 1}", 0, "':'");
  ExpectCorrupt("{\"a\":}", 0, "invalid JSON");
  ExpectCorrupt("{\"a\":[}", 0, "invalid JSON");
  ExpectCorrupt("{\"a\":1,}", 0, "must be an object");
  ExpectCorrupt(R"({"__metadata__":{},})", 0, "name was expected");
  ExpectCorrupt("{\"\xff\":{}}", 0, "name");
  ExpectCorrupt(R"({"__metadata__":{"a":1}})", 0, "__metadata__ field 'a'");
  ExpectCorrupt(R"({"__metadata__":[]})", 0, "__metadata__");
  ExpectCorrupt("{\"a\":" + std::string(5000, '['), 0, "nested deeper");
  ExpectCorrupt("{\"a\":" + std::string(20'000, '1') + "}", 0, "16 KiB");
}

TEST(SafetensorsHeader, MalformedEntries) {
  ExpectCorrupt(R"({"w":{"shape":[1],"data_offsets":[0,1]}})", 1, "tensor 'w': field 'dtype'");
  ExpectCorrupt(R"({"w":{"dtype":8,"shape":[1],"data_offsets":[0,1]}})", 1, "'dtype'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","data_offsets":[0,1]}})", 1, "'shape'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":1,"data_offsets":[0,1]}})", 1, "'shape'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", 1, "'shape'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", 1, "'shape'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,1]}})", 1,
                "'shape'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[1]}})", 1, "'data_offsets'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", 1, "'data_offsets'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[0,1,2]}})", 1, "'data_offsets'");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[1,0]}})", 1, "before it begins");
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[1],"data_offsets":[-1,0]}})", 1, "'data_offsets'");
  ExpectCorrupt(R"({"w":{"dtype":"F32","shape":[1],"data_offsets":[0,3]}})", 3, "takes 4");
  ExpectCorrupt(R"({"w":[]})", 0, "must be an object");
}

TEST(SafetensorsHeader, SizesThatOverflow) {
  ExpectCorrupt(R"({"w":{"dtype":"U8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})", 0,
                "too large");
  ExpectCorrupt(R"({"w":{"dtype":"F64","shape":[2305843009213693952],"data_offsets":[0,0]}})", 0,
                "too large");
  // The bytes would wrap to 0, so would the product with the zero last if it were not looked for.
  EXPECT_FALSE(DenseTensorBytes(DType::kF32, {1ll << 40, 1ll << 40, 0}).ok());
  EXPECT_EQ(*DenseTensorBytes(DType::kF32, {0, 1ll << 40}), 0u);
  EXPECT_FALSE(DenseTensorBytes(DType::kF32, {-1}).ok());
}

TEST(SafetensorsHeader, LayoutMustBeGapless) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  ExpectCorrupt("{" + a + "}", 5, "the tensors end at byte 4");
  ExpectCorrupt("{" + a + "}", 3, "truncated");
  ExpectCorrupt("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[5,9]}})", 9,
                "tensor 'b' leaves a hole");
  ExpectCorrupt("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[3,7]}})", 7,
                "tensor 'b' overlaps");
  ExpectCorrupt("{" + a + "," + a + "}", 4, "tensor 'a' is declared twice");
  ExpectCorrupt(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})", 2, "hole");
  ExpectCorrupt(R"({"__metadata__":{},"__metadata__":{}})", 0, "declared twice");
}

TEST(SafetensorsHeader, SurvivesEveryTruncationAndFlippedByte) {
  const std::string whole = SafetensorsBytes(kTwo, 12);
  for (size_t size = 0; size < whole.size(); ++size) {
    EXPECT_FALSE(ParseText(whole.substr(0, size)).ok()) << size;
  }
  for (uint64_t round = 0; round < 20'000; ++round) {
    std::string changed = whole;
    const auto at = static_cast<size_t>(UniformDouble(1, round) * changed.size());
    changed[at] = static_cast<char>(static_cast<uint8_t>(UniformDouble(2, round) * 256.0));
    const auto header = ParseText(changed);
    if (!header.ok()) continue;
    for (const SafetensorsEntry& entry : header->entries) {
      ASSERT_LE(header->data_offset + entry.end, changed.size());
    }
  }
}

TEST(SafetensorsFile, ViewsUnalignedDataAndSurvivesMoves) {
  const ScratchFolder folder;
  // An odd header length: maps begin at pages, so the floats lie at an odd address.
  std::string header = kTwo;
  if (header.size() % 2 == 0) header += ' ';
  const std::string path = folder.Write("t.safetensors", SafetensorsBytes(header, 12));
  auto opened = SafetensorsFile::Open(path);
  ASSERT_TRUE(opened.ok()) << opened.error().message;
  SafetensorsFile file = *std::move(opened);
  const TensorView* before = file.Find("b");
  SafetensorsFile moved = std::move(file);
  const TensorView* view = moved.Find("b");
  ASSERT_NE(view, nullptr);
  EXPECT_EQ(view, before);
  ASSERT_EQ(reinterpret_cast<uintptr_t>(view->data) % 2, 1u);
  float values[2], expected[2];
  const uint8_t raw[8] = {4, 5, 6, 7, 8, 9, 10, 11};
  std::memcpy(expected, raw, 8);
  ReadFloats(*view, 0, 2, values);
  EXPECT_EQ(std::memcmp(values, expected, 8), 0);
  EXPECT_EQ(moved.Find("c"), nullptr);
  EXPECT_EQ(moved.data_bytes(), 12u);
  EXPECT_EQ(moved.metadata().at("format"), "pt");
}

TEST(SafetensorsFile, ErrorsBeginWithThePath) {
  const ScratchFolder folder;
  const auto missing = SafetensorsFile::Open(folder.File("none"));
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  const std::string path = folder.Write("bad.safetensors", "");
  const auto bad = SafetensorsFile::Open(path);
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.error().message.find(path), 0u) << bad.error().message;
}

}  // namespace
}  // namespace kvasir
