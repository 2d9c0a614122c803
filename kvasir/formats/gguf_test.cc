#include "kvasir/formats/gguf.h"

#include <gtest/gtest.h>

#include "kvasir/formats/gguf_test_bytes.h"
#include "kvasir/formats/gguf_writer.h"
#include "kvasir/formats/safetensors.h"
#include "kvasir/formats/test_files.h"
#include "kvasir/tensor/packed_matrix.h"

namespace kvasir {
namespace {

Result<GgufHeader> Parse(const std::string& bytes) {
  return GgufHeader::Parse(std::as_bytes(std::span(bytes)));
}

void ExpectError(const std::string& bytes, ErrorCode code, std::string_view part) {
  const auto header = Parse(bytes);
  ASSERT_FALSE(header.ok()) << part;
  EXPECT_EQ(header.error().code, code) << header.error().message;
  EXPECT_NE(header.error().message.find(part), std::string::npos) << header.error().message;
}

GgufTestFile Sound() {
  GgufTestFile file;
  file.Text("general.architecture", "llama")
      .U32("llama.block_count", 2)
      .F32("llama.rope.freq_base", 5e5f)
      .Bool("tokenizer.ggml.add_bos_token", true)
      .Texts("tokenizer.ggml.tokens", {"a", "b"})
      .I32s("llama.attention.head_count_kv", {4, 4})
      .Tensor({"token_embd.weight", {32, 2}, 8, 0})  // Q8_0: 68 bytes
      .Tensor({"output_norm.weight", {3}, 0, 96});
  return file;
}

TEST(GgufHeader, ReadsMetadataAndTensors) {
  const std::string bytes = Sound().Bytes(96 + 12);
  const auto header = Parse(bytes);
  ASSERT_TRUE(header.ok()) << header.error().message;
  const GgufMetadata& metadata = header->metadata;
  EXPECT_EQ(*metadata.Text("general.architecture"), "llama");
  EXPECT_EQ(*metadata.Int("llama.block_count"), 2);
  EXPECT_EQ(*metadata.NumberOr("llama.rope.freq_base", 0), 5e5);
  EXPECT_EQ(*metadata.NumberOr("llama.block_count", 0), 2.0);
  EXPECT_TRUE(*metadata.FlagOr("tokenizer.ggml.add_bos_token", false));
  EXPECT_EQ(metadata.Strings("tokenizer.ggml.tokens")->size(), 2u);
  EXPECT_EQ(*metadata.SameInt("llama.attention.head_count_kv"), 4);
  EXPECT_EQ(metadata.Int("llama.rope.freq_base").error().code, ErrorCode::kCorrupt);
  EXPECT_NE(metadata.Int("missing").error().message.find("'missing'"), std::string::npos);
  ASSERT_EQ(header->entries.size(), 2u);
  EXPECT_EQ(header->entries[0].shape, (std::vector<int64_t>{2, 32}));
  EXPECT_EQ(header->entries[0].size_bytes, 68u);
  EXPECT_EQ(header->entries[1].begin, bytes.size() - 12);
}

TEST(GgufHeader, VersionsAndMagic) {
  EXPECT_TRUE(Parse(Sound().Bytes(108, 2)).ok());
  ExpectError(Sound().Bytes(108, 1), ErrorCode::kUnsupported, "version 1");
  ExpectError(Sound().Bytes(108, 0x03000000), ErrorCode::kUnsupported, "big-endian");
  ExpectError("GGML" + Sound().Bytes(108).substr(4), ErrorCode::kCorrupt, "GGUF");
  ExpectError("", ErrorCode::kCorrupt, "truncated");
}

TEST(GgufHeader, TensorsThatLieAreNamed) {
  const auto one = [](const GgufTestTensor& tensor) {
    GgufTestFile file;
    file.Tensor(tensor);
    return file.Bytes(128);
  };
  EXPECT_TRUE(Parse(one({"x", {32}, 0, 0})).ok());
  ExpectError(one({"x", {33}, 0, 0}), ErrorCode::kCorrupt, "tensor 'x' needs 132 bytes");
  ExpectError(one({"x", {8}, 0, 32}), ErrorCode::kCorrupt, "tensor 'x' begins at 32");
  ExpectError(one({"x", {33}, 8, 0}), ErrorCode::kCorrupt, "tensor 'x': has rows of 33");
  ExpectError(one({"x", {0}, 0, 0}), ErrorCode::kCorrupt, "tensor 'x': has an extent of 0");
  ExpectError(one({"x", {1ull << 63}, 0, 0}), ErrorCode::kCorrupt, "tensor 'x'");
  ExpectError(one({"x", {1ull << 62}, 0, 0}), ErrorCode::kCorrupt, "larger than");
  ExpectError(one({"x", {1u << 31, 1u << 31, 1u << 31}, 24, 0}), ErrorCode::kCorrupt, "larger");
  ExpectError(one({"x", {1, 1, 1, 1, 1}, 0, 0}), ErrorCode::kCorrupt, "5 dimensions");
  ExpectError(one({"x", {}, 0, 0}), ErrorCode::kCorrupt, "0 dimensions");
  ExpectError(one({"x", {32}, 4, 0}), ErrorCode::kUnsupported, "element type Q4_2, which");
  ExpectError(one({"x", {32}, 77, 0}), ErrorCode::kCorrupt, "unknown element type 77");
  ExpectError(one({"x", {256}, 140, 0}), ErrorCode::kCorrupt,
              "unknown element type 140, one of a fork of llama.cpp: quantize");
  ExpectError(one({"", {32}, 0, 0}), ErrorCode::kCorrupt, "tensor 0 has a name of 0 bytes");
  GgufTestFile twice;
  twice.Tensor({"x", {8}, 0, 0}).Tensor({"x", {8}, 0, 32});
  ExpectError(twice.Bytes(64), ErrorCode::kCorrupt, "tensor 'x' occurs twice");
  GgufTestFile overlapping;
  overlapping.Tensor({"x", {8}, 0, 0}).Tensor({"y", {8}, 0, 0});
  ExpectError(overlapping.Bytes(64), ErrorCode::kCorrupt, "tensor 'y' begins at 0");
}

TEST(GgufHeader, MetadataThatLiesIsNamed) {
  const auto with = [](auto&& add) {
    GgufTestFile file;
    add(file);
    return file.Bytes(0);
  };
  ExpectError(with([](auto& f) { f.U32("a", 1).U32("a", 2); }), ErrorCode::kCorrupt, "'a' occurs");
  ExpectError(with([](auto& f) { f.U32("", 1); }), ErrorCode::kCorrupt, "key 0");
  ExpectError(with([](auto& f) { f.Raw("a", 13, ""); }), ErrorCode::kCorrupt, "unknown type 13");
  ExpectError(with([](auto& f) { f.Raw("a", 7, "\2"); }), ErrorCode::kCorrupt, "bool of 2");
  ExpectError(with([](auto& f) { f.Raw("a", 10, "\377\377\377\377\377\377\377\377"); }),
              ErrorCode::kUnsupported, "2^63");
  ExpectError(with([](auto& f) { f.Array("a", 9, 1); }), ErrorCode::kUnsupported, "arrays in");
  ExpectError(with([](auto& f) { f.Array("a", 13, 1); }), ErrorCode::kCorrupt, "unknown type");
  ExpectError(with([](auto& f) { f.Array("a", 0, 1ull << 60); }), ErrorCode::kUnsupported,
              "metadata 'a': has");
  ExpectError(with([](auto& f) { f.Array("a", 8, 1 << 20); }), ErrorCode::kCorrupt, "truncated");
  ExpectError(with([](auto& f) { f.U32("general.alignment", 33); }), ErrorCode::kCorrupt,
              "power of two");
  ExpectError(with([](auto& f) { f.U32("general.alignment", 0); }), ErrorCode::kCorrupt, "power");
}

TEST(GgufHeader, SurvivesEveryTruncationAndFlippedByte) {
  const std::string good = Sound().Bytes(108);
  for (size_t size = 0; size < good.size(); ++size) {
    EXPECT_FALSE(Parse(good.substr(0, size)).ok()) << size;
  }
  for (size_t at = 0; at < good.size(); ++at) {
    for (const int flip : {0x01, 0x80, 0xFF}) {
      std::string bad = good;
      bad[at] = static_cast<char>(bad[at] ^ flip);
      const auto header = Parse(bad);
      if (!header.ok()) continue;
      for (const GgufEntry& entry : header->entries) {
        EXPECT_LE(entry.begin + entry.size_bytes, bad.size());
      }
    }
  }
}

TEST(GgufFile, GetChecksShapeAndType) {
  const ScratchFolder folder;
  GgufTestFile content;
  content.Tensor({"w", {32, 2}, 8, 0}).Tensor({"rare", {256}, 16, 96});
  const auto file = GgufFile::Open(folder.Write("m.gguf", content.Bytes(96 + 66)));
  ASSERT_TRUE(file.ok()) << file.error().message;
  const auto good = file->Get("w", {2, 32});
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good->stored_format, WeightFormat::kQ8);
  EXPECT_EQ(file->Get("v", {1}).error().code, ErrorCode::kNotFound);
  const Error shape = file->Get("w", {32, 2}).error();
  EXPECT_EQ(shape.code, ErrorCode::kCorrupt);
  EXPECT_NE(shape.message.find("[2, 32], the model needs [32, 2]"), std::string::npos);
  const Error type = file->Get("rare", {256}).error();
  EXPECT_EQ(type.code, ErrorCode::kUnsupported);
  EXPECT_NE(type.message.find("m.gguf: tensor 'rare' is IQ2_XXS"), std::string::npos);
}

std::string Part(uint32_t number, uint32_t count, const std::string& tensor) {
  GgufTestFile file;
  file.U32("split.no", number).U32("split.count", count).U32("split.tensors.count", 2);
  file.Tensor({tensor, {8}, 0, 0});
  return file.Bytes(32);
}

// Rows of many blocks, as floats and as what a packed format keeps of them.
TEST(GgufFile, RowsOfEveryTypeAreTheReferences) {
  const auto blocks = SafetensorsFile::Open(std::string(KVASIR_SOURCE_DIR) +
                                            "/testdata/formats/gguf_blocks.safetensors");
  ASSERT_TRUE(blocks.ok()) << blocks.error().message;
  std::vector<GgufDeclaration> declarations;
  for (const GgufType& type : AllGgufTypes()) {
    if (blocks->Find(std::string(type.name) + ".raw") == nullptr) continue;
    declarations.push_back({std::string(type.name), &type, {2, 1024}});
  }
  ASSERT_EQ(declarations.size(), 16u);
  const ScratchFolder folder;
  auto writer = GgufWriter::Create(folder.File("m.gguf"), GgufPairs(), declarations);
  ASSERT_TRUE(writer.ok()) << writer.error().message;
  for (size_t i = 0; i < declarations.size(); ++i) {
    const TensorView& raw = *blocks->Find(declarations[i].name + ".raw");
    ASSERT_TRUE(writer->Append(i, {raw.data, static_cast<size_t>(raw.elements())}).ok());
  }
  ASSERT_TRUE(writer->Finish().ok());
  const auto file = GgufFile::Open(folder.File("m.gguf"));
  ASSERT_TRUE(file.ok()) << file.error().message;
  for (const GgufDeclaration& declared : declarations) {
    SCOPED_TRACE(declared.name);
    const auto tensor = file->Get(declared.name, {2, 1024});
    ASSERT_TRUE(tensor.ok()) << tensor.error().message;
    auto packed = PackedMatrix::Allocate(2, 1024, tensor->stored_format, tensor->affine);
    ASSERT_TRUE(packed.ok()) << packed.error().message;
    for (int64_t row = 0; row < 2; ++row) {
      std::vector<float> wanted(1024);
      ReadFloats(*blocks->Find(declared.name + ".decoded"), row * 1024, 1024, wanted.data());
      std::vector<float> read(1024);
      tensor->read_row(row, read.data());
      EXPECT_EQ(read, wanted);
      CodedRow codes;
      tensor->read_codes(row, &codes);
      packed->SetCodedRow(row, codes);
      packed->GetRow(row, read.data());
      EXPECT_EQ(read, wanted);
    }
  }
}

TEST(GgufFile, PartsAreFoundFromTheFirst) {
  const ScratchFolder folder;
  const std::string first = folder.Write("m-00001-of-00002.gguf", Part(0, 2, "a"));
  EXPECT_EQ(GgufFile::Open(first).error().code, ErrorCode::kNotFound);
  const std::string second = folder.Write("m-00002-of-00002.gguf", Part(1, 2, "b"));
  const auto file = GgufFile::Open(first);
  ASSERT_TRUE(file.ok()) << file.error().message;
  EXPECT_EQ(file->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(file->part_count(), 2u);
  EXPECT_NE(GgufFile::Open(second).error().message.find("name the first part"), std::string::npos);
  folder.Write("m-00002-of-00002.gguf", Part(1, 2, "a"));
  EXPECT_NE(GgufFile::Open(first).error().message.find("'a' is in an earlier part"),
            std::string::npos);
  folder.Write("m-00002-of-00002.gguf", Part(0, 2, "b"));
  EXPECT_NE(GgufFile::Open(first).error().message.find("'split.no'"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
