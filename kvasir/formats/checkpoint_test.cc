// Checkpoints of one file and of many, whole and damaged.
// Deliberately also opens the reference models where they are at hand.
#include "kvasir/formats/checkpoint.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kvasir/formats/model_config.h"
#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

std::string OneTensor(const std::string& name) {
  return SafetensorsBytes("{\"" + name + R"(":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]}})",
                          8);
}

void ExpectError(const std::string& path, ErrorCode code, const std::string& part) {
  const auto checkpoint = Checkpoint::Open(path);
  ASSERT_FALSE(checkpoint.ok()) << part;
  EXPECT_EQ(checkpoint.error().code, code) << checkpoint.error().message;
  EXPECT_NE(checkpoint.error().message.find(part), std::string::npos) << checkpoint.error().message;
}

TEST(Checkpoint, OneFileByFolderOrByPath) {
  const ScratchFolder folder;
  const std::string path = folder.Write("model.safetensors", OneTensor("w"));
  for (const std::string& where : {folder.path(), path}) {
    auto opened = Checkpoint::Open(where);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const TensorView* before = opened->Find("w");
    const Checkpoint checkpoint = *std::move(opened);
    EXPECT_EQ(checkpoint.names(), (std::vector<std::string>{"w"}));
    EXPECT_EQ(checkpoint.total_bytes(), 8u);
    EXPECT_EQ(checkpoint.Find("w"), before);
    EXPECT_EQ(checkpoint.Find("v"), nullptr);
    EXPECT_TRUE(checkpoint.Get("w", {1, 2}).ok());
  }
}

TEST(Checkpoint, ShardsMayLackAnIndex) {
  const ScratchFolder folder;
  folder.Write("model-00002-of-00002.safetensors", OneTensor("b"));
  folder.Write("adapter_model.safetensors", OneTensor("c"));
  ExpectError(folder.path(), ErrorCode::kCorrupt, "model-00001-of-00002.safetensors: is missing");
  folder.Write("model-00001-of-00002.safetensors", OneTensor("a"));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string>{"a", "b"}));
  folder.Write("model-00001-of-00002.safetensors", OneTensor("b"));
  ExpectError(folder.path(), ErrorCode::kCorrupt, "tensor 'b' is in two shards");
}

TEST(Checkpoint, LinksThatLeadNowhereAreNamed) {
  for (const char* name :
       {"model.safetensors", "model.safetensors.index.json", "model-00001-of-00001.safetensors"}) {
    const ScratchFolder folder;
    std::filesystem::create_symlink(folder.path() + "/gone", folder.path() + "/" + name);
    ExpectError(folder.path(), ErrorCode::kNotFound, std::string(name) + ": cannot open");
  }
}

TEST(Checkpoint, FilesOfOtherKindsAreNamed) {
  const ScratchFolder folder;
  folder.Write("training_args.bin", "");
  EXPECT_TRUE(Checkpoint::WeightFiles(folder.path()).empty());
  ExpectError(folder.path(), ErrorCode::kNotFound, "holds neither model.safetensors nor");
  folder.Write("pytorch_model-00001-of-00002.bin", "");
  EXPECT_EQ(Checkpoint::WeightFiles(folder.path()).size(), 1u);
  ExpectError(folder.path(), ErrorCode::kNotFound, "but pytorch_model-00001-of-00002.bin");
}

// JSON takes 20 times its size in memory.
TEST(Checkpoint, AnIndexHasItsBounds) {
  const ScratchFolder folder;
  const std::string index = folder.Write("model.safetensors.index.json", "{}");
  std::filesystem::resize_file(index, (size_t{64} << 20) + 1);
  ExpectError(folder.path(), ErrorCode::kResourceExhausted, "index.json");
}

TEST(Checkpoint, GetNamesTensorAndShapes) {
  const ScratchFolder folder;
  folder.Write("model.safetensors",
               SafetensorsBytes(R"({"w":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
                                R"("q":{"dtype":"U32","shape":[1],"data_offsets":[8,12]}})",
                                12));
  const auto checkpoint = Checkpoint::Open(folder.path());
  ASSERT_TRUE(checkpoint.ok());
  const auto missing = checkpoint->Get("v", {1});
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("tensor 'v'"), std::string::npos);
  const auto wrong = checkpoint->Get("w", {2, 1});
  EXPECT_EQ(wrong.error().code, ErrorCode::kCorrupt);
  EXPECT_NE(wrong.error().message.find("tensor 'w' has shape [1, 2], the model needs [2, 1]"),
            std::string::npos)
      << wrong.error().message;
  EXPECT_EQ(checkpoint->Get("q", {1}).error().code, ErrorCode::kUnsupported);
}

class Shards : public testing::Test {
 protected:
  void WriteIndex(const std::string& weight_map) {
    folder_.Write("model.safetensors.index.json",
                  R"({"metadata":{"total_size":1.5},"weight_map":)" + weight_map + "}");
  }
  ScratchFolder folder_;
};

constexpr char kIndex[] = R"({"a":"m-1.safetensors","b":"m-2.safetensors"})";

TEST_F(Shards, AreOneCheckpoint) {
  WriteIndex(kIndex);
  folder_.Write("m-1.safetensors", OneTensor("a"));
  folder_.Write("m-2.safetensors", OneTensor("b"));
  folder_.Write("model.safetensors", "the index wins over this");
  const auto checkpoint = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names(), (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(checkpoint->files().size(), 2u);
  EXPECT_EQ(checkpoint->total_bytes(), 16u);
}

// As after shards were made into one file.
TEST_F(Shards, AnIndexOfNothingIsLeftOver) {
  WriteIndex(kIndex);
  folder_.Write("model.safetensors", OneTensor("c"));
  const auto checkpoint = Checkpoint::Open(folder_.path());
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->names(), std::vector<std::string>{"c"});
  // With one shard it is a download that has not ended.
  folder_.Write("m-1.safetensors", OneTensor("a"));
  ExpectError(folder_.path(), ErrorCode::kNotFound, "m-2.safetensors");
}

TEST_F(Shards, MissingShard) {
  WriteIndex(kIndex);
  folder_.Write("m-1.safetensors", OneTensor("a"));
  ExpectError(folder_.path(), ErrorCode::kNotFound, "m-2.safetensors");
}

TEST_F(Shards, MissingTensor) {
  WriteIndex(kIndex);
  folder_.Write("m-1.safetensors", OneTensor("a"));
  folder_.Write("m-2.safetensors", SafetensorsBytes("{}", 0));
  ExpectError(folder_.path(), ErrorCode::kCorrupt, "m-2.safetensors: has no tensor 'b'");
}

TEST_F(Shards, SwappedShards) {
  WriteIndex(kIndex);
  folder_.Write("m-1.safetensors", OneTensor("b"));
  folder_.Write("m-2.safetensors", OneTensor("a"));
  ExpectError(folder_.path(), ErrorCode::kCorrupt, "has no tensor 'a'");
}

TEST_F(Shards, TensorInTwoShards) {
  WriteIndex(kIndex);
  folder_.Write("m-1.safetensors", OneTensor("a"));
  folder_.Write("m-2.safetensors", OneTensor("a"));
  ExpectError(folder_.path(), ErrorCode::kCorrupt, "tensor 'a' is in two shards");
}

TEST_F(Shards, UnlistedTensor) {
  WriteIndex(R"({"a":"m-1.safetensors"})");
  folder_.Write("m-1.safetensors",
                SafetensorsBytes(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},)"
                                 R"("x":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
                                 2));
  ExpectError(folder_.path(), ErrorCode::kCorrupt, "tensor 'x' is not listed");
}

TEST_F(Shards, IndexThatReachesElsewhere) {
  for (const char* shard : {"../m.safetensors", "/m.safetensors", "a\\\\m.safetensors", "m.bin",
                            "m\\u0000.safetensors", ""}) {
    WriteIndex("{\"a\":\"" + std::string(shard) + "\"}");
    ExpectError(folder_.path(), ErrorCode::kCorrupt, "tensor 'a' must map to");
  }
  WriteIndex("[]");
  ExpectError(folder_.path(), ErrorCode::kCorrupt, "weight_map");
  folder_.Write("model.safetensors.index.json", "{");
  ExpectError(folder_.path(), ErrorCode::kCorrupt, "model.safetensors.index.json");
}

TEST(Checkpoint, NothingThere) {
  const ScratchFolder folder;
  ExpectError(folder.path(), ErrorCode::kNotFound, "neither");
  ExpectError(folder.File("none"), ErrorCode::kNotFound, "none");
}

// The weights of a real checkpoint are exactly those its configuration promises.
TEST(Checkpoint, ReferenceModelsHaveTheParametersTheirConfigsCount) {
  for (const char* name : {"public_llama_f32", "public_qwen3_f32", "public_gemma3_f32"}) {
    const std::string folder = std::string(KVASIR_SHARED_DATA) + "/models/" + name;
    if (!FileExists(folder + "/model.safetensors")) GTEST_SKIP() << "no reference models";
    const auto config = ModelConfig::Load(folder);
    ASSERT_TRUE(config.ok()) << config.error().message;
    const auto checkpoint = Checkpoint::Open(folder);
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.error().message;
    EXPECT_EQ(checkpoint->total_bytes(), static_cast<uint64_t>(config->ParameterCount()) * 4);
    EXPECT_EQ(checkpoint->files()[0].metadata().at("format"), "pt");
    const auto embedding =
        checkpoint->Get("model.embed_tokens.weight", {config->vocab_size, config->hidden_size});
    EXPECT_TRUE(embedding.ok());
  }
}

}  // namespace
}  // namespace kvasir
