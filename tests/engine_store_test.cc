// Cached prefixes in a folder: whoever starts next, or has forgotten, goes on from there with the
// same answers, and whatever becomes of the folder, the answers stay right and nothing is left.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "kvasir/kv/prefix_segment.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/store_bench.h"

namespace kvasir {
namespace {

class EngineStoreTest : public testing::TestWithParam<TinyPolicy> {};

// Also shorter, longer, and other from some point on.
TEST_P(EngineStoreTest, WhoeverStartsNextGoesOnFromThere) {
  StoreBench store(GetParam());
  const EngineRequest request = Request(store.Prompt(2 * kSegment + 300), 30);
  const bool keeps_rows = *GetParam().budget == '\0';
  EngineOptions options = store.Options();
  int warnings = 0;
  options.store.log = [&](LogLevel, std::string_view) { ++warnings; };
  store.Restart(options);
  EXPECT_EQ(warnings, keeps_rows ? 0 : 1);
  const Tokens wanted = store.Answer(request).tokens;
  EXPECT_EQ(wanted, store.bench().Alone(request));
  EXPECT_EQ(store.Stats().store.written, keeps_rows ? 2 : 0);
  EXPECT_EQ(store.Files().size(), keeps_rows ? 2u : 0u);

  std::vector<std::pair<EngineRequest, int64_t>> others = {{request, 2 * kSegment}};
  others.emplace_back(request, kSegment);
  others.back().first.prompt.resize(kSegment + 100);
  others.emplace_back(request, kSegment);
  others.back().first.prompt[kSegment + 50] ^= 1;
  others.emplace_back(request, 0);
  others.back().first.prompt[kSegment - 1] ^= 1;
  others.emplace_back(request, 0);
  others.back().first.prompt.resize(kSegment);  // whose last token is always evaluated
  others.emplace_back(request, kSegment);
  others.back().first.prompt.resize(kSegment + 1);
  for (const auto& [other, stored] : others) {
    store.Restart();
    const GenerationResult& answer = store.Answer(other);
    const int64_t fetched = keeps_rows ? stored : 0;
    EXPECT_EQ(answer.tokens, store.bench().Alone(other));
    EXPECT_EQ(answer.stats.cached_tokens, fetched);
    EXPECT_EQ(store.Stats().fetched_tokens, fetched);
    EXPECT_EQ(store.Stats().store.failed, 0);
    // The last token chosen is not evaluated.
    EXPECT_EQ(store.Stats().evaluated_tokens,
              static_cast<int64_t>(other.prompt.size()) - fetched + 30 - 1);
    store.ExpectNothingLeft();
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineStoreTest, testing::ValuesIn(StoredPolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

// An answer of a conversation is stored as its prompt is, and the next turn goes on behind it.
TEST(EngineStoreTest, AnswersAreStoredToo) {
  StoreBench store(kFull);
  EngineRequest request = Request(store.Prompt(kSegment - 100), 2 * kSegment);
  store.Restart();
  const Tokens answer = store.Answer(request).tokens;
  request.prompt.insert(request.prompt.end(), answer.begin(), answer.end());
  request.max_tokens = 10;
  store.Restart();
  store.ExpectRight(request);
  EXPECT_EQ(store.Stats().fetched_tokens, 2 * kSegment);
}

TEST(EngineStoreTest, WhatMemoryForgotComesBack) {
  for (const TinyPolicy& policy : {kFull, kWindows, kStates}) {
    StoreBench store(policy);
    const int64_t tokens = 2 * kSegment + 100;
    // For one prompt and a little.
    store.Restart(store.Options(),
                  store.bench().spec().BytesAt(tokens + 200) + 4 * store.bench().spec().BytesAt(1));
    const EngineRequest first = Request(store.Prompt(tokens, 1), 10);
    const EngineRequest second = Request(store.Prompt(tokens, 2), 10, 3);
    store.ExpectRight(first);
    store.ExpectRight(second);
    const int64_t before = store.Stats().fetched_tokens;
    store.ExpectRight(first);
    EXPECT_GE(store.Stats().fetched_tokens - before, kSegment) << policy.name;
    store.ExpectNothingLeft();
  }
}

// A prompt goes on from what memory has and the store has behind it.
TEST(EngineStoreTest, OnlyWhatIsMissingIsRead) {
  StoreBench store(kFull);
  std::atomic<int> blocks = 0;
  EngineOptions options = store.Options();
  options.store.before_block = [&](bool is_read) { blocks += is_read; };
  const EngineRequest request = Request(store.Prompt(3 * kSegment + 10), 5);
  store.Restart(options);
  store.ExpectRight(request);
  EngineRequest beginning = request;
  beginning.prompt.resize(kSegment + 200);
  store.Restart(options);
  store.ExpectRight(beginning);
  const int blocks_of_one = blocks.exchange(0);
  EXPECT_GT(blocks_of_one, 0);
  store.ExpectRight(request);
  EXPECT_EQ(blocks, 2 * blocks_of_one);
}

// Twenty ask for the same at once: one reads it.
TEST(EngineStoreTest, OneReadsForAll) {
  StoreBench store(kWindows);
  const EngineRequest request = Request(store.Prompt(2 * kSegment + 40), 5);
  store.Restart();
  store.ExpectRight(request);
  std::atomic<int> blocks = 0;
  EngineOptions options = store.Options();
  options.store.before_block = [&](bool is_read) { blocks += is_read; };
  store.Restart(options);
  store.ExpectRight(request);
  const int blocks_of_one = blocks.exchange(0);
  store.Restart(options);
  std::vector<RequestId> ids;
  for (int i = 0; i < 20; ++i) ids.push_back(store.bench().Submit(request));
  store.bench().Drain();
  for (const RequestId id : ids) {
    EXPECT_EQ(store.bench().Answer(id).tokens, store.bench().Alone(request));
  }
  EXPECT_EQ(blocks, blocks_of_one);
  EXPECT_EQ(store.Stats().fetched_tokens, 2 * kSegment);
}

TEST(EngineStoreTest, NobodyGetsWhatIsOfOthers) {
  StoreBench store(kFull);
  EngineRequest request = Request(store.Prompt(kSegment + 10), 5);
  request.salt = 1;
  store.Restart();
  store.ExpectRight(request);
  // Of another tenant, of a model of other bits, of a cache that is stored otherwise.
  EngineRequest others = request;
  others.salt = 2;
  store.Restart();
  store.ExpectRight(others);
  EXPECT_EQ(store.Stats().fetched_tokens, 0);
  EngineOptions other_model = store.Options();
  other_model.store.identity = "other";
  store.Restart(other_model);
  store.ExpectRight(request);
  EXPECT_EQ(store.Stats().fetched_tokens, 0);
  StoreBench packed({"turbo4", kTinyFull, "turbo4", "turbo4"});
  EngineOptions options = packed.Options();
  options.store.dir = store.folder().path();
  packed.Restart(options);
  packed.ExpectRight(request);
  EXPECT_EQ(packed.Stats().fetched_tokens, 0);
  EXPECT_EQ(packed.Stats().store.failed, 0);
  EXPECT_EQ(packed.Stats().store.files, 4);  // each wrote its own
  store.Restart();
  store.ExpectRight(request);
  EXPECT_EQ(store.Stats().fetched_tokens, kSegment);
}

// Flipped bits, half a file, none, another's under its name, a folder in its place.
TEST(EngineStoreTest, WhatCannotBeReadIsComputedAgain) {
  using Change = std::function<void(const fs::path& file, const fs::path& other)>;
  const std::vector<std::pair<const char*, Change>> changes = {
      {"flipped",
       [](const fs::path& file, const fs::path&) {
         std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
         bytes.seekp(static_cast<std::streamoff>(fs::file_size(file)) - 100);
         bytes.put('x').put('y').put('z');
       }},
      {"cut", [](const fs::path& file, const fs::path&) { fs::resize_file(file, 5000); }},
      {"empty", [](const fs::path& file, const fs::path&) { fs::resize_file(file, 0); }},
      {"gone", [](const fs::path& file, const fs::path&) { fs::remove(file); }},
      {"other",
       [](const fs::path& file, const fs::path& other) {
         fs::copy_file(other, file, fs::copy_options::overwrite_existing);
       }},
      {"folder",
       [](const fs::path& file, const fs::path&) {
         fs::remove(file);
         fs::create_directory(file);
       }},
  };
  for (const auto& [name, change] : changes) {
    SCOPED_TRACE(name);
    StoreBench store(kFull);
    const EngineRequest request = Request(store.Prompt(2 * kSegment + 10), 5);
    store.Restart();
    store.ExpectRight(request);
    std::vector<fs::path> files = store.Files();
    ASSERT_EQ(files.size(), 2u);
    store.Restart();
    change(files[0], files[1]);
    store.ExpectRight(request);
    // Whoever shares the folder may take a file away.
    if (std::string(name) != "gone") {
      EXPECT_GE(store.Stats().store.failed, 1);
    }
    EXPECT_LE(store.Stats().fetched_tokens, kSegment);
    store.ExpectNothingLeft();
    if (std::string(name) == "folder") continue;  // which nobody may write over
    // What was bad has been written anew.
    store.Restart();
    store.ExpectRight(request);
    EXPECT_EQ(store.Stats().fetched_tokens, 2 * kSegment);
    EXPECT_EQ(store.Stats().store.failed, 0);
  }
}

TEST(EngineStoreTest, AFolderThatVanishesIsNoError) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(kSegment + 10), 5);
  store.Restart();
  fs::remove_all(store.folder().path());
  store.ExpectRight(request);
  EXPECT_EQ(store.Stats().store.written, 0);
  EXPECT_GE(store.Stats().store.failed, 1);
  store.ExpectNothingLeft();
}

TEST(EngineStoreTest, AFolderThatIsNotThereIsRefused) {
  const Error error = RefusalOf({.store = {.dir = "/there/is/no/such/folder"}});
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("/there/is/no/such/folder"), std::string::npos);
}

TEST(EngineStoreTest, ADiskThatHangsIsComputedAgain) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(kSegment + 10), 5);
  store.Restart();
  store.ExpectRight(request);
  std::atomic<bool> hangs = true;
  EngineOptions options = store.Options();
  options.store.before_block = [&](bool is_read) {
    if (is_read && hangs.exchange(false)) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    }
  };
  store.Restart(options);
  store.ExpectRight(request);
  EXPECT_FALSE(hangs);
  EXPECT_EQ(store.Stats().fetched_tokens, 0);
  store.ExpectNothingLeft();
}

TEST(EngineStoreTest, CancelledWhileItIsRead) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(kSegment + 10), 5);
  store.Restart();
  store.ExpectRight(request);
  std::atomic<bool> may_go = false;
  std::atomic<bool> is_reading = false;
  EngineOptions options = store.Options();
  options.store.before_block = [&](bool is_read) {
    if (!is_read) return;
    is_reading = true;
    while (!may_go) std::this_thread::yield();
  };
  store.Restart(options);
  const RequestId id = store.bench().Submit(request);
  while (!is_reading) store.engine().Step();
  EXPECT_GT(store.bench().pool().used_bytes(), 0u);
  store.engine().Cancel(id);
  EXPECT_TRUE(store.bench().IsFinished(id));
  store.ExpectNothingLeft();  // although the disk is still at it
  may_go = true;
  store.ExpectRight(request);
}

// The engine may end in the middle of anything.
TEST(EngineStoreTest, EndsWhileItIsReadAndWritten) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(kSegment + 10), 5);
  store.Restart();
  (void)store.bench().Submit(request);
  while (store.Stats().steps < 2) store.engine().Step();
  store.Restart();
  (void)store.bench().Submit(request);
  for (int i = 0; i < 3; ++i) store.engine().Step();
  store.Restart();
  store.ExpectRight(request);
}

// Of a prompt that has no room beside what is used its end goes before its beginning.
TEST(EngineStoreTest, TheFolderHasABound) {
  StoreBench store(kFull);
  const auto prompt = [&](uint64_t seed) {
    return Request(store.Prompt(2 * kSegment + 10, seed), 5);
  };
  store.Restart();
  store.ExpectRight(prompt(1));
  uint64_t bytes = 0;
  for (const fs::path& file : store.Files()) bytes += fs::file_size(file);
  EXPECT_EQ(store.Stats().store.bytes, bytes);
  EngineOptions options = store.Options();
  options.store.max_bytes = bytes * 2 - 1;  // three files
  store.Restart(options);
  store.ExpectRight(prompt(2));
  EXPECT_EQ(store.Stats().store.files, 3);
  EXPECT_EQ(store.Files().size(), 3u);
  EXPECT_LE(store.Stats().store.bytes, options.store.max_bytes);
  // Each by a process that could store nothing more.
  for (const auto& [seed, fetched] : {std::pair{2u, 2 * kSegment}, std::pair{1u, kSegment}}) {
    store.Restart(options);
    const RequestId id = store.bench().Submit(prompt(seed));
    while (store.Stats().prompt_tokens == 0) store.engine().Step();
    EXPECT_EQ(store.Stats().fetched_tokens, fetched) << seed;
    store.engine().Cancel(id);
  }
  // A start with a smaller bound, and one that has no room for anything.
  options.store.max_bytes = bytes / 2 + 100;
  store.Restart(options);
  store.ExpectRight(Request(store.Prompt(20, 5), 5));
  store.Restart();  // when the one before has done what it had to
  EXPECT_EQ(store.Files().size(), 1u);
  // Of a prompt that has more than the folder its beginning stays.
  store.Restart(options);
  store.ExpectRight(prompt(4));
  store.Restart(options);
  store.ExpectRight(prompt(4));
  EXPECT_EQ(store.Stats().fetched_tokens, kSegment);
  options.store.max_bytes = 1000;
  store.Restart(options);
  store.ExpectRight(prompt(3));
  EXPECT_EQ(store.Stats().store.files, 0);
  EXPECT_TRUE(store.Files().empty());
}

// What is used stays, and the order of use outlives the process.
TEST(EngineStoreTest, TheLeastRecentlyUsedGoesFirst) {
  StoreBench store(kFull);
  const auto ask = [&](uint64_t seed) {
    const int64_t before = store.Stats().fetched_tokens;
    (void)store.Answer(Request(store.Prompt(kSegment + 10, seed), 1));
    return store.Stats().fetched_tokens - before;
  };
  store.Restart();
  for (const uint64_t seed : {1u, 2u, 3u}) ask(seed);
  EXPECT_EQ(store.Stats().store.files, 3);
  ask(1);  // from memory: it is used all the same
  EngineOptions options = store.Options();
  options.store.max_bytes = store.Stats().store.bytes;
  store.Restart(options);
  ask(4);  // takes the place of 2
  store.Restart(options);
  EXPECT_EQ(ask(1), kSegment);
  EXPECT_EQ(ask(3), kSegment);
  EXPECT_EQ(ask(4), kSegment);
  EXPECT_EQ(ask(2), 0);
}

// Names that are none of its own are left alone, and what a killed process left goes.
TEST(EngineStoreTest, OtherFilesStay) {
  StoreBench store(kFull);
  store.Restart();
  store.ExpectRight(Request(store.Prompt(kSegment + 10), 5));
  const fs::path own = store.Files().at(0);
  const fs::path foreign = own.parent_path() / "notes.txt";
  const fs::path link = own.parent_path() / (std::string(64, 'a') + ".kv");
  std::ofstream(foreign) << "mine";
  fs::create_symlink(foreign, link);
  const fs::path left = own.string() + ".tmp.77.1";
  std::ofstream(left) << "half";
  const fs::path fresh = own.string() + ".tmp.78.1";
  std::ofstream(fresh) << "half";
  fs::last_write_time(left, fs::file_time_type::clock::now() - std::chrono::hours(2));
  EngineOptions options = store.Options();
  options.store.max_bytes = 1;
  store.Restart(options);
  store.ExpectRight(Request(store.Prompt(10), 5));
  EXPECT_TRUE(fs::exists(foreign));
  EXPECT_TRUE(fs::is_symlink(link));
  EXPECT_TRUE(fs::exists(fresh));
  EXPECT_FALSE(fs::exists(left));
}

// Where computing is faster nothing is read, once it is known: a disk that takes four times as
// long.
TEST(EngineStoreTest, ASlowDiskIsNotWaitedFor) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(kSegment + 10), 5);
  const EngineRequest other = Request(store.Prompt(kSegment + 10, 2), 5);
  store.Restart();
  const auto begin = std::chrono::steady_clock::now();
  store.ExpectRight(request);
  const auto evaluating = std::chrono::steady_clock::now() - begin;
  store.ExpectRight(other);
  EngineOptions options = store.Options();
  options.store.ignores_rates = false;
  std::atomic<int> blocks = 0;
  options.store.before_block = [&](bool is_read) {
    if (!is_read) return;
    ++blocks;
    std::this_thread::sleep_for(evaluating / 8);  // of at least 32
  };
  store.Restart(options);
  store.ExpectRight(Request(store.Prompt(300, 9), 5));  // how fast the engine is
  store.ExpectRight(request);                           // how fast the disk is
  EXPECT_GT(blocks.exchange(0), 0);
  store.ExpectRight(other);
  EXPECT_EQ(blocks, 0);
}

// Somebody is answered beside it whose memory it would need: it is evaluated when that has ended.
TEST(EngineStoreTest, NothingIsReadThatHasNoRoom) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(2 * kSegment + 10), 5);
  store.Restart();
  store.ExpectRight(request);
  const KvCacheSpec& spec = store.bench().spec();
  store.Restart(store.Options(), spec.BytesAt(3 * kSegment));
  const EngineRequest large = Request(store.Prompt(kSegment - 20, 2), kSegment);
  const RequestId first = store.bench().Submit(large);
  while (store.Stats().generated_tokens < kSegment / 2) store.engine().Step();
  const RequestId second = store.bench().Submit(request);
  store.bench().Drain();
  EXPECT_EQ(store.bench().Answer(first).tokens, store.bench().Alone(large));
  EXPECT_EQ(store.bench().Answer(second).tokens, store.bench().Alone(request));
  store.ExpectNothingLeft();
}

// A writer that hangs holds up neither answers nor, once its blocks are wanted, memory.
TEST(EngineStoreTest, AWriterThatHangsHoldsNothingUp) {
  StoreBench store(kFull);
  std::atomic<bool> may_go = false;
  EngineOptions options = store.Options();
  options.store.before_block = [&](bool is_read) {
    while (!is_read && !may_go) std::this_thread::yield();
  };
  const KvCacheSpec& spec = store.bench().spec();
  store.Restart(options, spec.BytesAt(kSegment + 300));
  const EngineRequest requests[] = {Request(store.Prompt(kSegment + 10, 1), 20),
                                    Request(store.Prompt(kSegment + 10, 2), 20)};
  for (const EngineRequest& request : requests) {
    const RequestId id = store.bench().Submit(request);
    while (!store.bench().IsFinished(id)) store.engine().Step();
    EXPECT_EQ(store.bench().Answer(id).tokens, store.bench().Alone(request));
  }
  store.engine().CancelAll();
  store.ExpectNothingLeft();
  EXPECT_EQ(store.Stats().store.written, 0);
  may_go = true;
}

// More than is read at once.
TEST(EngineStoreTest, LongPromptsAreReadInSeveralGoes) {
  StoreBench store(kFull);
  const auto segments = static_cast<int64_t>(PrefixStore::kMostSegments) + 2;
  KvPool pool({.budget_bytes = size_t{1} << 30});
  PrefixStoreOptions options = {.dir = store.folder().path(), .identity = "long"};
  const auto spec = std::make_shared<const KvCacheSpec>(store.bench().spec());
  const auto files = ValueOrDie(PrefixStore::Open(options, spec));
  KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, spec));
  PrefixTree tree(&pool, spec);
  PrefixKeys keys;
  const Tokens tokens = store.Prompt(segments * kSegment);
  keys.Extend(files->RootOf(0), tokens);
  OrDie(sequence.Reserve(segments * kSegment));
  sequence.Advance(segments * kSegment);
  for (int64_t i = 0; i < segments; ++i) {
    (void)files->Write(keys.keys().first(static_cast<size_t>(i + 1)),
                       *SegmentOf(sequence.Snapshot(), i * kSegment, (i + 1) * kSegment));
  }
  while (files->is_writing()) {
    files->WaitForProgress(files->progress(), std::chrono::milliseconds(100));
    files->Reap();
  }
  EXPECT_EQ(files->Look(keys.keys()).segments, keys.keys().size());
  int64_t done = 0;
  for (const size_t count : {PrefixStore::kMostSegments, size_t{2}}) {
    const auto fetch = files->Fetch(keys.keys().subspan(static_cast<size_t>(done), count),
                                    done * kSegment, std::chrono::minutes(1));
    while (fetch->state() != FetchState::kRead) {
      if (fetch->state() == FetchState::kOpened) (void)ValueOrDie(fetch->Read(&pool, &tree));
      ASSERT_NE(fetch->state(), FetchState::kFailed);
      files->WaitForProgress(files->progress(), std::chrono::milliseconds(100));
    }
    const KvSnapshot read = ValueOrDie(fetch->Take(&pool));
    EXPECT_EQ(read.begin(), done * kSegment);
    done += static_cast<int64_t>(count);
    EXPECT_EQ(read.end(), done * kSegment);
    EXPECT_TRUE(tree.Insert(0, tokens, read));
  }
  EXPECT_EQ(tree.LookForTokens(0, tokens, segments * kSegment), segments * kSegment);
}

// A well-made file under the right name that holds more than the name speaks for.
TEST(EngineStoreTest, ASegmentOfAnotherLengthIsNone) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(2 * kSegment + 10), 5);
  const auto spec = std::make_shared<const KvCacheSpec>(store.bench().spec());
  {
    KvPool pool({.budget_bytes = size_t{64} << 20});
    KvSequence sequence = ValueOrDie(KvSequence::Create(&pool, spec));
    OrDie(sequence.Reserve(2 * kSegment));
    sequence.Advance(2 * kSegment);
    const auto files =
        ValueOrDie(PrefixStore::Open({.dir = store.folder().path(), .identity = "tiny"}, spec));
    PrefixKeys keys;
    keys.Extend(files->RootOf(0), request.prompt);
    (void)files->Write(keys.keys().first(1), *SegmentOf(sequence.Snapshot(), 0, 2 * kSegment));
    while (files->is_writing()) {
      files->WaitForProgress(files->progress(), std::chrono::milliseconds(100));
      files->Reap();
    }
    EXPECT_EQ(files->stats().written, 1);
  }
  store.Restart();
  EngineRequest shorter = request;
  shorter.prompt.resize(kSegment + 10);
  store.ExpectRight(shorter);
  EXPECT_EQ(store.Stats().fetched_tokens, 0);
  EXPECT_EQ(store.Stats().store.failed, 1);
}

// Drafts beside it.
TEST(EngineStoreTest, DraftedAnswersGoOnFromThere) {
  StoreBench store(kFull);
  const EngineRequest request = Request(store.Prompt(kSegment + 40), 60);
  store.Restart();
  const Tokens wanted = store.Answer(request).tokens;
  EngineOptions options = store.bench().FlatCosts();
  options.store = store.Options().store;
  store.Restart(std::move(options));
  auto oracle = std::make_unique<OracleDrafter>(OracleOptions{.wrong_percent = 15});
  oracle->Learn(request.prompt, wanted);
  store.engine().UseDrafter(std::move(oracle));
  EXPECT_EQ(store.Answer(request).tokens, wanted);
  EXPECT_EQ(store.Stats().fetched_tokens, kSegment);
  EXPECT_GT(store.Stats().accepted_drafts, 0);
}

// Sixty requests, a few at a time, tenants, clients that leave, files that change and go.
void SoakOne(StoreBench& store, const std::vector<EngineRequest>& requests,
             const std::vector<Tokens>& wanted, size_t budget, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::map<RequestId, size_t> asked;
  std::vector<RequestId> gone;
  while (asked.size() < 60 || store.engine().has_work()) {
    if (asked.size() < 60 && store.Stats().waiting_requests < 6) {
      const size_t which = random() % requests.size();
      EngineRequest request = requests[which];
      request.salt = random() % 2;
      request.priority = static_cast<int>(random() % 2);
      asked.emplace(store.bench().Submit(request), which);
    }
    if (random() % 50 == 0) {
      const auto leaving =
          std::next(asked.begin(), static_cast<ptrdiff_t>(random() % asked.size()));
      if (!store.bench().IsFinished(leaving->first)) gone.push_back(leaving->first);
      store.engine().Cancel(leaving->first);
    }
    if (random() % 20 == 0) {
      const std::vector<fs::path> files = store.Files();
      std::error_code raced;
      if (!files.empty() && random() % 2 == 0) fs::remove(files[random() % files.size()], raced);
      if (!files.empty()) fs::resize_file(files[random() % files.size()], random() % 9000, raced);
    }
    store.engine().Step();
    ASSERT_LE(store.bench().pool().used_bytes(), budget);
  }
  for (const auto& [id, which] : asked) {
    const GenerationResult& answer = store.bench().Answer(id);
    if (std::find(gone.begin(), gone.end(), id) != gone.end()) continue;
    EXPECT_EQ(answer.tokens, wanted[which]);
  }
  store.ExpectNothingLeft();
}

// Little memory, a small folder, prompts with beginnings in common, two processes: every answer is
// right, and nothing is left.
TEST(EngineStoreTest, Soak) {
  for (const TinyPolicy& policy :
       {kFull, kWindows, kStates, TinyPolicy{"turbo4", kTinyFull, "turbo4", "turbo4"}}) {
    SCOPED_TRACE(policy.name);
    StoreBench store(policy);
    StoreBench other(policy, store);
    std::vector<EngineRequest> requests;
    std::vector<Tokens> wanted;
    size_t largest = 0;
    for (uint64_t i = 0; i < 5; ++i) {
      Tokens prompt = store.Prompt(kSegment + 100, 100 + i / 3);
      const Tokens own = store.Prompt(150 * static_cast<int64_t>(i) + 50, i);
      prompt.insert(prompt.end(), own.begin(), own.end());
      requests.push_back(Request(std::move(prompt), 30, i));
      wanted.push_back(store.bench().Alone(requests.back()));
      largest = std::max(largest, store.bench().spec().BytesAt(
                                      static_cast<Position>(requests.back().prompt.size()) + 30));
    }
    EngineOptions options = store.Options();
    options.scheduler = {128, 64};
    options.max_streams = 4;
    options.store.max_bytes = 3 * largest;
    options.store.scan_interval = std::chrono::milliseconds(20);
    SwapFolder swap;
    options.swap = {.dir = swap.path(), .max_bytes = 4 * largest, .ignores_rates = true};
    const size_t budget = 2 * largest;
    store.Restart(options, budget);
    other.Restart(options, budget);
    std::thread beside([&] { SoakOne(other, requests, wanted, budget, 6); });
    SoakOne(store, requests, wanted, budget, 5);
    beside.join();
    const auto sum = [&](auto&& of) { return of(store.Stats()) + of(other.Stats()); };
    EXPECT_GT(sum([](const EngineStats& stats) { return stats.fetched_tokens; }), 0);
    EXPECT_GT(sum([](const EngineStats& stats) { return stats.store.failed; }), 0);
    EXPECT_GT(sum([](const EngineStats& stats) { return stats.preemptions; }), 0);
  }
}

}  // namespace
}  // namespace kvasir
