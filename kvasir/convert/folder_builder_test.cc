#include "kvasir/convert/folder_builder.h"

#include <gtest/gtest.h>

#include <filesystem>

#include "kvasir/formats/test_files.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

std::string Refusal(const std::string& path) {
  const auto builder = FolderBuilder::Create(path);
  return builder.ok() ? "no error" : builder.error().message;
}

TEST(FolderBuilder, AppearsWhenItIsCommitted) {
  const ScratchFolder scratch;
  const std::string path = scratch.File("out/");
  auto builder = FolderBuilder::Create(path);
  ASSERT_TRUE(builder.ok()) << builder.error().message;
  const std::string folder = builder->partial();
  fs::create_directory(folder + "/draft");
  for (const char* name : {"/config.json", "/conversion.json", "/draft/conversion.json"}) {
    ASSERT_TRUE(WriteFileAtomic(folder + name, "{}").ok());
  }
  EXPECT_FALSE(DirectoryExists(path));
  ASSERT_TRUE(builder->Commit().ok());
  EXPECT_EQ(scratch.FileCount(), 1u);
  EXPECT_TRUE(FileExists(path + "config.json"));
  EXPECT_FALSE(FileExists(path + "conversion.json"));
  EXPECT_FALSE(FileExists(path + "draft/conversion.json"));
}

TEST(FolderBuilder, RefusesNamesThatAreTaken) {
  const ScratchFolder scratch;
  scratch.Write("file", "");
  fs::create_directory(scratch.File("folder"));
  fs::create_symlink("nowhere", scratch.File("link"));
  for (const char* name : {"file", "folder", "link"}) {
    EXPECT_NE(Refusal(scratch.File(name)).find("exists; remove it"), std::string::npos) << name;
  }
  for (const char* name : {"", ".", "..", "../..", "./"}) {
    EXPECT_NE(Refusal(name).find("names no new folder"), std::string::npos) << name;
  }
  EXPECT_EQ(scratch.FileCount(), 3u);
}

TEST(FolderBuilder, RefusesNamesOfGgufFiles) {
  const ScratchFolder scratch;
  EXPECT_NE(Refusal(scratch.File("out.gguf/")).find("would be taken for a GGUF file"),
            std::string::npos);
  EXPECT_EQ(scratch.FileCount(), 0u);
}

// What a stopped run left may be a whole model.
TEST(FolderBuilder, KnowsWhatLiesWithin) {
  const ScratchFolder scratch;
  const auto builder = FolderBuilder::Create(scratch.File("out"));
  ASSERT_TRUE(builder.ok()) << builder.error().message;
  fs::create_directory(builder->partial() + "/draft");
  fs::create_directory(scratch.File("out.partial2"));
  fs::create_symlink(builder->partial(), scratch.File("link"));
  for (const char* name :
       {"out.partial", "out.partial/draft", "out.partial/../out.partial/", "link/draft"}) {
    const Status status = builder->CheckIsOutside(scratch.File(name));
    ASSERT_FALSE(status.ok()) << name;
    EXPECT_NE(status.error().message.find("choose another name"), std::string::npos);
  }
  EXPECT_TRUE(builder->CheckIsOutside(scratch.File("out.partial2")).ok());
  EXPECT_TRUE(builder->CheckIsOutside(scratch.File("")).ok());
}

// "convert -m x.partial -o x" must not eat what it reads.
TEST(FolderBuilder, AFolderThatNoRunLeftIsNotTouched) {
  const ScratchFolder scratch;
  const std::string partial = scratch.File("out.partial");
  fs::create_directory(partial);
  scratch.Write("out.partial/model.safetensors", "weights");
  EXPECT_NE(Refusal(scratch.File("out")).find("no stopped run left it"), std::string::npos);
  EXPECT_EQ(*ReadFile(partial + "/model.safetensors"), "weights");
  scratch.Write("other.partial", "a file");
  EXPECT_NE(Refusal(scratch.File("other")).find("no stopped run left it"), std::string::npos);

  scratch.Write("out.partial/conversion.json", "{}");
  EXPECT_EQ(Refusal(scratch.File("out")), "no error");
}

TEST(FolderBuilder, ARunThatWasStoppedAtOnceIsGoneOnWith) {
  const ScratchFolder scratch;
  fs::create_directory(scratch.File("empty.partial"));
  EXPECT_EQ(Refusal(scratch.File("empty")), "no error");
  fs::create_directory(scratch.File("begun.partial"));
  scratch.Write("begun.partial/conversion.json.tmp.abc123", "{");
  EXPECT_EQ(Refusal(scratch.File("begun")), "no error");
}

TEST(FolderBuilder, OneRunAtATime) {
  const ScratchFolder scratch;
  auto first = FolderBuilder::Create(scratch.File("out"));
  ASSERT_TRUE(first.ok()) << first.error().message;
  EXPECT_NE(Refusal(scratch.File("out")).find("another run is writing"), std::string::npos);
  { const FolderBuilder ended = *std::move(first); }
  EXPECT_EQ(Refusal(scratch.File("out")), "no error");
}

}  // namespace
}  // namespace kvasir
