// Blocks on disk: what comes back is what went, and what has changed does not come back.
#include "kvasir/engine/swap_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "kvasir/engine/swap_choice.h"
#include "tests/support/swap_folder.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

using State = SwapStore::State;
using Block = std::vector<std::byte>;

std::vector<Block> Blocks() {
  std::vector<Block> blocks;
  for (const size_t bytes : {1000u, 64u, 300'000u, 1u}) {
    Block block(bytes);
    for (size_t i = 0; i < bytes; ++i) block[i] = static_cast<std::byte>(i * 7 + blocks.size());
    blocks.push_back(std::move(block));
  }
  return blocks;
}

class SwapStoreTest : public testing::Test {
 protected:
  std::unique_ptr<SwapStore> Open(uint64_t max_bytes = 1 << 20) {
    return ValueOrDie(SwapStore::Open({.dir = folder_.path(), .max_bytes = max_bytes}));
  }
  static State Wait(SwapStore& store, const SwapFile& file) {
    for (;;) {
      const State state = store.ProgressOf(file).state;
      if (state != State::kBusy) return state;
      store.WaitForProgress(std::chrono::seconds(10));
    }
  }
  static std::shared_ptr<SwapFile> Write(SwapStore& store, const std::vector<Block>& blocks) {
    return store.Write({blocks.begin(), blocks.end()});
  }
  static State Read(SwapStore& store, const std::shared_ptr<SwapFile>& file,
                    std::vector<Block>& blocks) {
    store.Read(file, {blocks.begin(), blocks.end()});
    return Wait(store, *file);
  }

  SwapFolder folder_;
};

TEST_F(SwapStoreTest, WhatComesBackIsWhatWent) {
  const auto store = Open();
  const std::vector<Block> blocks = Blocks();
  auto file = Write(*store, blocks);
  ASSERT_EQ(Wait(*store, *file), State::kDone);
  EXPECT_EQ(store->ProgressOf(*file).blocks, blocks.size());
  EXPECT_EQ(store->used_bytes(), 301'065u);
  for (int times = 0; times < 2; ++times) {
    std::vector<Block> back = blocks;
    for (Block& block : back) std::fill(block.begin(), block.end(), std::byte{0});
    back[1].clear();  // not wanted
    ASSERT_EQ(Read(*store, file, back), State::kDone);
    EXPECT_TRUE(back[0] == blocks[0] && back[2] == blocks[2] && back[3] == blocks[3]);
  }
  EXPECT_GT(store->rates().write, 0);
  EXPECT_GT(store->rates().read, 0);
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
  EXPECT_TRUE(store->Release(file, {}));
  file.reset();
  EXPECT_EQ(store->used_bytes(), 0u);
}

TEST_F(SwapStoreTest, ChangedBytesDoNotComeBack) {
  const auto store = Open();
  std::vector<Block> blocks = Blocks();
  const auto file = Write(*store, blocks);
  ASSERT_EQ(Wait(*store, *file), State::kDone);
  ASSERT_EQ(folder_.ChangeFiles(5000), 1);
  EXPECT_EQ(Read(*store, file, blocks), State::kFailed);
}

TEST_F(SwapStoreTest, TruncatedFilesDoNotComeBack) {
  const auto store = Open();
  std::vector<Block> blocks = Blocks();
  const auto file = Write(*store, blocks);
  ASSERT_EQ(Wait(*store, *file), State::kDone);
  ASSERT_EQ(folder_.TruncateFiles(1000), 1);
  EXPECT_EQ(Read(*store, file, blocks), State::kFailed);
}

TEST_F(SwapStoreTest, TakesNoMoreThanItMay) {
  const auto store = Open(301'100);
  const std::vector<Block> blocks = Blocks();
  auto first = Write(*store, blocks);
  ASSERT_NE(first, nullptr);
  EXPECT_EQ(Write(*store, blocks), nullptr);
  EXPECT_EQ(Wait(*store, *first), State::kDone);
  first.reset();
  const auto second = Write(*store, blocks);
  ASSERT_NE(second, nullptr);
  EXPECT_EQ(Wait(*store, *second), State::kDone);
}

TEST_F(SwapStoreTest, AFolderThatIsNotThereIsSaidAtTheStartAndSurvivedLater) {
  const auto missing = SwapStore::Open({.dir = folder_.path() + "/none"});
  ASSERT_FALSE(missing.ok());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("none"), std::string::npos);
  const auto store = Open();
  folder_.Remove();
  const std::vector<Block> blocks = Blocks();
  const auto file = Write(*store, blocks);
  EXPECT_EQ(Wait(*store, *file), State::kFailed);
}

TEST_F(SwapStoreTest, WhatIsReleasedIsNotTouchedAgain) {
  const auto store = Open();
  std::vector<Block> blocks = Blocks();
  std::vector<std::shared_ptr<SwapFile>> files;
  for (int i = 0; i < 3; ++i) files.push_back(Write(*store, blocks));
  for (const auto& file : files) EXPECT_TRUE(store->Release(file, {}));
  // A thread sanitizer would see a read of these.
  for (Block& block : blocks) std::fill(block.begin(), block.end(), std::byte{1});
  files.clear();
  EXPECT_EQ(store->used_bytes(), 0u);
}

TEST(SwapChoiceTest, TheFasterOfTwoWays) {
  struct Row {
    SwapCost cost;
    bool is_swap;
  };
  const Row rows[] = {
      {{.tokens = 0, .write_bytes = 1}, false},
      {{.tokens = 1, .write_bytes = 1 << 30}, true},  // nothing is known
      {{.tokens = 100, .prefill_rate = 100, .write_bytes = 1 << 30}, true},
      {{.tokens = 100,
        .prefill_rate = 100,
        .write_bytes = 400,
        .read_bytes = 400,
        .disk = {1000, 1000}},
       true},
      {{.tokens = 100,
        .prefill_rate = 100,
        .write_bytes = 600,
        .read_bytes = 600,
        .disk = {1000, 1000}},
       false},
      // On disk already.
      {{.tokens = 100,
        .prefill_rate = 100,
        .write_bytes = 0,
        .read_bytes = 600,
        .disk = {1000, 1000}},
       true},
      {{.tokens = 10,
        .prefill_rate = 100,
        .write_bytes = 0,
        .read_bytes = 600,
        .disk = {1000, 1000}},
       false},
  };
  for (const Row& row : rows) EXPECT_EQ(IsSwapFaster(row.cost), row.is_swap) << &row - rows;
}

}  // namespace
}  // namespace kvasir
