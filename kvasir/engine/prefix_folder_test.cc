// Which stored prefixes lie in a folder, where others come and go: two PrefixFolders of one folder
// are two processes, on whatever machine.
#include "kvasir/engine/prefix_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <span>
#include <string>
#include <vector>

#include "tests/support/swap_folder.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;
using Clock = fs::file_time_type::clock;

constexpr uint64_t kBytes = 100;
const std::atomic<bool> kGoOn = false;

class PrefixFolderTest : public testing::Test {
 protected:
  std::unique_ptr<PrefixFolder> Open(uint64_t files, int touch_seconds = 0) {
    return ValueOrDie(
        PrefixFolder::Open(folder_.path(), files * kBytes, std::chrono::seconds(touch_seconds)));
  }
  // Keys that follow each other.
  static std::vector<PrefixKey> Path(const std::string& name, int segments) {
    std::vector<PrefixKey> keys = {RootKey(name, 0)};
    const std::vector<Token> tokens(8, 1);
    while (static_cast<int>(keys.size()) < segments) keys.push_back(ChildKey(keys.back(), tokens));
    return keys;
  }
  static PrefixKey Key(const std::string& name) { return Path(name, 1)[0]; }

  std::string FileOf(const PrefixKey& key) const {
    return folder_.path() + "/" + key.Name() + ".kv";
  }
  void Write(const PrefixKey& key, std::chrono::seconds age = std::chrono::seconds(0)) const {
    std::ofstream(FileOf(key)) << std::string(kBytes, 'x');
    fs::last_write_time(FileOf(key), Clock::now() - age);
  }
  bool Exists(const PrefixKey& key) const { return fs::exists(FileOf(key)); }
  Clock::duration AgeOf(const PrefixKey& key) const {
    return Clock::now() - fs::last_write_time(FileOf(key));
  }

  SwapFolder folder_;
};

TEST_F(PrefixFolderTest, WhatOthersAddIsFoundUpToTheFirstThatIsMissing) {
  const auto folder = Open(100);
  const std::vector<PrefixKey> path = Path("a", 5);
  for (const size_t i : {0u, 1u, 2u, 4u}) Write(path[i]);
  EXPECT_EQ(folder->Look(path).segments, 0u);
  folder->Search(path, kGoOn);
  EXPECT_EQ(folder->Look(path).segments, 3u);
  EXPECT_EQ(folder->Look(path).bytes, 3 * kBytes);
  EXPECT_FALSE(folder->Has(path[4]));
  EXPECT_EQ(folder->stats().files, 3);
  // What is known to be bad is not asked for again.
  folder->MarkBad(path[1]);
  Write(path[3]);
  folder->Search(path, kGoOn);
  EXPECT_EQ(folder->Look(path).segments, 1u);
  EXPECT_FALSE(folder->Has(path[3]));
}

TEST_F(PrefixFolderTest, AScanKnowsWhatCameAndWhatWent) {
  const auto folder = Open(100);
  folder->Add(Key("mine"), kBytes);  // whose file has gone
  Write(Key("a"));
  Write(Key("b"));
  folder->Scan(kGoOn);
  EXPECT_FALSE(folder->Has(Key("mine")));
  EXPECT_EQ(folder->stats().files, 2);
  EXPECT_EQ(folder->stats().bytes, 2 * kBytes);
  fs::remove(FileOf(Key("a")));
  fs::resize_file(FileOf(Key("b")), 30);
  folder->Scan(kGoOn);
  EXPECT_EQ(folder->stats().files, 1);
  EXPECT_EQ(folder->stats().bytes, 30u);
  // One that is stopped forgets nothing.
  fs::remove(FileOf(Key("b")));
  const std::atomic<bool> stop = true;
  folder->Scan(stop);
  EXPECT_EQ(folder->stats().files, 1);
}

// Also where nobody has looked at the folder since.
TEST_F(PrefixFolderTest, WhatOthersUseStays) {
  for (const char* name : {"a", "b", "c"}) Write(Key(name), std::chrono::seconds(100 - name[0]));
  const auto folder = Open(3);
  const auto other = Open(3);
  const PrefixKey used[] = {Key("a")};  // the oldest
  EXPECT_TRUE(other->Use(used));
  other->TouchFiles();
  OrDie(folder->MakeRoom(kBytes, {}));
  EXPECT_TRUE(Exists(Key("a")));
  EXPECT_FALSE(Exists(Key("b")));
  EXPECT_TRUE(Exists(Key("c")));
  EXPECT_EQ(folder->stats().removed, 1);
  OrDie(folder->MakeRoom(2 * kBytes, {}));
  EXPECT_TRUE(Exists(Key("a")));
  EXPECT_FALSE(Exists(Key("c")));
}

TEST_F(PrefixFolderTest, TimesThatHaveNotComeYetCountAsNow) {
  for (const char* name : {"a", "b"}) Write(Key(name), -std::chrono::hours(24 * 365 * 50));
  const auto folder = Open(2);
  const std::vector<PrefixKey> path = Path("mine", 2);
  for (size_t i = 0; i < path.size(); ++i) {
    OrDie(folder->MakeRoom(kBytes, std::span(path).first(i + 1)));
    Write(path[i]);
    folder->Add(path[i], kBytes);
    (void)folder->Use(std::span(path).first(i + 1));
  }
  EXPECT_FALSE(Exists(Key("a")));
  EXPECT_FALSE(Exists(Key("b")));
  EXPECT_EQ(folder->Look(path).segments, 2u);
  // Beyond what nanoseconds can count.
  timespec times[2] = {{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
                       {.tv_sec = int64_t{1} << 34, .tv_nsec = 0}};
  (void)utimensat(AT_FDCWD, FileOf(path[0]).c_str(), times, 0);
  folder->Scan(kGoOn);
  EXPECT_EQ(folder->Look(path).segments, 2u);
}

// Of a prefix the end goes first, in this process and by what the files say.
TEST_F(PrefixFolderTest, TheEndOfAPrefixGoesFirst) {
  const std::vector<PrefixKey> path = Path("a", 3);
  for (const PrefixKey& key : path) Write(key, std::chrono::seconds(50));
  const auto folder = Open(3);
  EXPECT_TRUE(folder->Use(path));
  EXPECT_FALSE(folder->Use(path));  // somebody will touch them
  folder->TouchFiles();
  EXPECT_GT(AgeOf(path[2]), AgeOf(path[1]));
  EXPECT_GT(AgeOf(path[1]), AgeOf(path[0]));
  const auto other = Open(3);
  OrDie(other->MakeRoom(kBytes, {}));
  EXPECT_FALSE(Exists(path[2]));
  OrDie(folder->MakeRoom(2 * kBytes, {}));
  EXPECT_FALSE(Exists(path[1]));
  EXPECT_TRUE(Exists(path[0]));
  // And not at all for what continues it.
  const Status refused = folder->MakeRoom(3 * kBytes, path);
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  EXPECT_TRUE(Exists(path[0]));
}

TEST_F(PrefixFolderTest, FilesAreToldOfTheirUseNowAndThen) {
  Write(Key("new"), std::chrono::seconds(5));
  Write(Key("old"), std::chrono::seconds(500));
  const auto folder = Open(3, 60);
  const PrefixKey keys[] = {Key("new"), Key("old"), Key("none")};
  EXPECT_TRUE(folder->Use(keys));
  folder->TouchFiles();
  EXPECT_LT(AgeOf(Key("old")), std::chrono::seconds(4));
  EXPECT_GT(AgeOf(Key("new")), std::chrono::seconds(4));
  EXPECT_FALSE(folder->Use(keys));
  folder->TouchAllFiles();
  EXPECT_LT(AgeOf(Key("new")), std::chrono::seconds(4));
  // What is told finds out that it is gone.
  fs::remove(FileOf(Key("new")));
  (void)folder->Use(keys);
  folder->TouchAllFiles();
  EXPECT_FALSE(folder->Has(Key("new")));
  EXPECT_EQ(folder->stats().bytes, kBytes);
}

// What cannot be removed counts, and nothing more is put beside it.
TEST_F(PrefixFolderTest, TheBoundHoldsWhereNothingCanBeRemoved) {
  if (geteuid() == 0) {
    // As root everything can, but a file that is a folder by the time.
    const auto folder = Open(2);
    for (const char* name : {"a", "b"}) {
      fs::create_directory(FileOf(Key(name)));
      std::ofstream(FileOf(Key(name)) + "/inside") << "x";
      folder->Add(Key(name), kBytes);
    }
    for (int i = 0; i < 3; ++i) {
      const Status refused = folder->MakeRoom(kBytes, {});
      EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    }
    EXPECT_EQ(folder->stats().bytes, 2 * kBytes);
    EXPECT_EQ(folder->stats().removed, 0);
    return;
  }
  for (const char* name : {"a", "b"}) Write(Key(name));
  const auto folder = Open(2);
  chmod(folder_.path().c_str(), 0500);
  for (int i = 0; i < 3; ++i) {
    const Status refused = folder->MakeRoom(kBytes, {});
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    folder->Scan(kGoOn);
  }
  chmod(folder_.path().c_str(), 0700);
  EXPECT_EQ(folder->stats().bytes, 2 * kBytes);
  EXPECT_EQ(folder->stats().removed, 0);
}

TEST_F(PrefixFolderTest, WhatIsWrittenAnewIsNoLongerBad) {
  Write(Key("a"), std::chrono::seconds(50));
  const auto folder = Open(10);
  folder->MarkBad(Key("a"));
  EXPECT_FALSE(folder->Has(Key("a")));
  EXPECT_EQ(folder->stats().bytes, kBytes);
  folder->Scan(kGoOn);
  EXPECT_FALSE(folder->Has(Key("a")));
  Write(Key("a"));
  folder->Scan(kGoOn);
  EXPECT_TRUE(folder->Has(Key("a")));
}

}  // namespace
}  // namespace kvasir
