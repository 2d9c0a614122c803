// A folder of stored prefixes that several processes use, on whatever machines: each finds what the
// others wrote, the bound holds for all, and what others use stays. An engine each is a process.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/support/store_bench.h"

namespace kvasir {
namespace {

class SharedStoreTest : public testing::TestWithParam<TinyPolicy> {};

// A conversation that goes from one process to another and back, both of which began with nothing:
// each goes on from what the other wrote, and writes what goes on from there.
TEST_P(SharedStoreTest, WhatOthersStoreIsFound) {
  const bool keeps_rows = *GetParam().budget == '\0';
  Tokens wanted;
  for (const bool forgets : {true, false}) {
    StoreBench first(GetParam());
    StoreBench second(GetParam(), first);
    first.Restart();
    second.Restart();
    EngineRequest request = Request(first.Prompt(kSegment + 100), kSegment);
    // One answer of the likeliest tokens, however many turns it takes.
    if (wanted.empty()) {
      wanted = first.bench().Alone(Request(request.prompt, 4 * kSegment));
    }
    int64_t turns = 0;
    for (StoreBench* store : {&first, &second, &first, &second}) {
      SCOPED_TRACE(turns);
      if (forgets) store->engine().prefix_tree().Clear();
      const auto stored = static_cast<int64_t>(first.Files().size()) * kSegment;
      const int64_t before = store->Stats().fetched_tokens;
      const GenerationResult answer = store->Answer(request);
      EXPECT_EQ(answer.tokens,
                Tokens(wanted.begin() + turns * kSegment, wanted.begin() + (turns + 1) * kSegment));
      if (forgets) {
        EXPECT_EQ(store->Stats().fetched_tokens - before, stored);
      }
      // At least the prompt, and each segment once.
      ++turns;
      EXPECT_GE(first.Files().size(), keeps_rows ? static_cast<size_t>(turns) : 0u);
      EXPECT_EQ(first.Stats().store.written + second.Stats().store.written,
                static_cast<int64_t>(first.Files().size()));
      request.prompt.insert(request.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    }
    EXPECT_EQ(first.Stats().store.failed + second.Stats().store.failed, 0);
    first.ExpectNothingLeft();
    second.ExpectNothingLeft();
  }
}

// Two that evaluate the same at the same time.
TEST(SharedStoreTest, TwoMayStoreTheSame) {
  StoreBench first(kWindows);
  StoreBench second(kWindows, first);
  first.Restart();
  second.Restart();
  const EngineRequest request = Request(first.Prompt(3 * kSegment + 100), 5);
  const RequestId ids[] = {first.bench().Submit(request), second.bench().Submit(request)};
  for (bool is_left = true; is_left;) {
    const bool first_left = first.engine().Step();
    is_left = second.engine().Step() || first_left;
  }
  EXPECT_EQ(first.bench().Answer(ids[0]).tokens, first.bench().Alone(request));
  EXPECT_EQ(second.bench().Answer(ids[1]).tokens, first.bench().Alone(request));
  EXPECT_EQ(first.Files().size(), 3u);
  EXPECT_EQ(first.Stats().store.failed + second.Stats().store.failed, 0);
  EXPECT_GE(first.Stats().store.written + second.Stats().store.written, 3);
  StoreBench third(kWindows, first);
  third.Restart();
  third.ExpectRight(request);
  EXPECT_EQ(third.Stats().fetched_tokens, 3 * kSegment);
}

// Nobody has told the second that there is a file.
TEST(SharedStoreTest, WhatOthersHaveWrittenIsNotWrittenAgain) {
  StoreBench store(kFull);
  const auto spec = std::make_shared<const KvCacheSpec>(store.bench().spec());
  KvPool pool({.budget_bytes = size_t{64} << 20});
  KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, spec));
  OrDie(sequence.Reserve(kSegment));
  sequence.Advance(kSegment);
  const PrefixStoreOptions options = {.dir = store.folder().path(), .identity = "tiny"};
  const auto first = ValueOrDie(PrefixStore::Open(options, spec));
  const auto second = ValueOrDie(PrefixStore::Open(options, spec));
  PrefixKeys keys;
  keys.Extend(first->RootOf(0), store.Prompt(kSegment));
  for (PrefixStore* files : {first.get(), second.get()}) {
    EXPECT_FALSE(files->Has(keys.keys()[0]));
    (void)files->Write(keys.keys(), *SegmentOf(sequence.Snapshot(), 0, kSegment));
    while (files->is_writing()) {
      files->WaitForProgress(files->progress(), std::chrono::milliseconds(100));
      files->Reap();
    }
    EXPECT_TRUE(files->Has(keys.keys()[0]));
    EXPECT_EQ(files->stats().files, 1);
  }
  EXPECT_EQ(first->stats().written, 1);
  EXPECT_EQ(second->stats().written, 0);
}

// What others wrote counts, and what they use stays.
TEST(SharedStoreTest, TheBoundHoldsForAllWhoUseTheFolder) {
  StoreBench first(kFull);
  StoreBench second(kFull, first);
  const auto prompt = [&](uint64_t seed) { return Request(first.Prompt(kSegment + 10, seed), 1); };
  first.Restart();
  first.ExpectRight(prompt(1));
  EngineOptions options = first.Options();
  options.store.max_bytes = 4 * first.Stats().store.bytes;
  options.store.scan_interval = std::chrono::milliseconds(0);
  first.Restart(options);
  second.Restart(options);
  for (const uint64_t seed : {2u, 3u, 4u}) second.ExpectRight(prompt(seed));
  EXPECT_EQ(first.Files().size(), 4u);
  second.ExpectRight(prompt(1));  // which the first would take to be the oldest
  first.ExpectRight(prompt(5));
  first.ExpectRight(prompt(6));
  EXPECT_EQ(first.Files().size(), 4u);
  EXPECT_EQ(first.Stats().store.files, 4);
  EXPECT_EQ(first.Stats().store.removed, 2);
  StoreBench third(kFull, first);
  options.store.max_bytes = 0;
  third.Restart(options);
  for (const uint64_t seed : {1u, 4u, 5u, 6u, 2u, 3u}) third.ExpectRight(prompt(seed));
  EXPECT_EQ(third.Stats().fetched_tokens, 4 * kSegment);
  EXPECT_EQ(third.Files().size(), 6u);
  // Files that others removed make room.
  for (const fs::path& file : third.Files()) fs::remove(file);
  first.ExpectRight(prompt(7));
  EXPECT_EQ(first.Stats().store.files, 1);
  EXPECT_EQ(first.Stats().store.removed, 2);
}

// What could not be read is tried again when others have written it anew, or could read it.
TEST(SharedStoreTest, WhatOthersMendIsReadAgain) {
  StoreBench first(kFull);
  StoreBench second(kFull, first);
  const EngineRequest request = Request(first.Prompt(kSegment + 10), 5);
  first.Restart();
  first.ExpectRight(request);
  const fs::path file = first.Files().at(0);
  const fs::path aside = file.string() + ".aside";
  EngineOptions options = first.Options();
  options.store.scan_interval = std::chrono::milliseconds(0);
  second.Restart(options);
  fs::rename(file, aside);
  fs::create_directory(file);
  second.ExpectRight(request);
  EXPECT_EQ(second.Stats().fetched_tokens, 0);
  EXPECT_GE(second.Stats().store.failed, 1);
  fs::remove(file);
  fs::rename(aside, file);
  fs::last_write_time(file, fs::file_time_type::clock::now());
  second.ExpectRight(Request(first.Prompt(kSegment + 10, 2), 5));
  second.engine().prefix_tree().Clear();
  second.ExpectRight(request);
  EXPECT_EQ(second.Stats().fetched_tokens, kSegment);
}

// A disk that does not say what there is.
TEST(SharedStoreTest, ASearchThatHangsIsNotWaitedFor) {
  std::atomic<bool> may_go = false;
  std::atomic<int> searches = 0;
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(kSegment + 10), 5);
  EngineOptions options = store.Options();
  options.store.before_search = [&] {
    ++searches;
    while (!may_go) std::this_thread::yield();
  };
  store.Restart(options);
  const RequestId cancelled = store.bench().Submit(request);
  while (searches == 0) store.engine().Step();
  store.engine().Cancel(cancelled);
  EXPECT_TRUE(store.bench().IsFinished(cancelled));
  store.ExpectRight(request);  // it waits for the search before, and then no longer
  store.ExpectRight(Request(store.Prompt(kSegment + 10, 2), 5));
  EXPECT_EQ(searches, 1);
  store.ExpectNothingLeft();
  may_go = true;
}

INSTANTIATE_TEST_SUITE_P(Policies, SharedStoreTest, testing::ValuesIn(StoredPolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kvasir
