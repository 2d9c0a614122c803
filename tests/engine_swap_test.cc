// Preempted caches on disk: the answers are those of each request alone, whatever becomes of the
// disk, and nothing is left when they are done.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/engine_bench.h"
#include "tests/support/swap_folder.h"

namespace kvasir {
namespace {

// Two requests that do not fit together, so that the second is preempted and comes back.
class SwapBench {
 public:
  explicit SwapBench(const TinyPolicy& policy) : bench_(policy) {
    first_ = Request(RandomTokens(60, bench_.model().vocab_size(), 1), 200);
    second_ = Request(RandomTokens(100, bench_.model().vocab_size(), 2), 150, 9);
  }

  Bench& bench() { return bench_; }
  Engine& engine() { return bench_.engine(); }
  void Start(uint64_t max_bytes = 64 << 20, std::function<void(bool)> before_block = {}) {
    // Both prompts fit, both answers do not.
    const size_t budget = bench_.spec().BytesAt(260) + 2 * bench_.spec().BytesAt(1);
    bench_.Start(budget, {.scheduler = {64, 64},
                          .swap = {.dir = folder_.path(),
                                   .max_bytes = max_bytes,
                                   .ignores_rates = true,
                                   .before_block = std::move(before_block)}});
    ids_ = {bench_.Submit(first_), bench_.Submit(second_)};
  }
  RequestId stays() const { return ids_.first; }
  RequestId leaves() const { return ids_.second; }
  SwapFolder& folder() { return folder_; }
  // One step, after which the disk has time to work: what is not transferred when its memory is
  // wanted is lost, as it should be, and on a busy machine steps can be faster than a thread.
  bool Step() {
    const bool goes_on = engine().Step();
    const EngineStats stats = engine().Stats();
    const bool is_busy = stats.swap_bytes > 0 && stats.swapped_streams == 0;
    if (is_busy) std::this_thread::sleep_for(std::chrono::milliseconds(2));
    return goes_on;
  }
  // Until the second is on disk.
  void StepUntilSwapped() {
    while (engine().Stats().swapped_streams == 0) ASSERT_TRUE(Step());
  }
  void StepUntilReading() {
    while (engine().Stats().reading_streams == 0) ASSERT_TRUE(Step());
  }
  void Drain() {
    while (Step()) {
    }
  }
  void ExpectRightAnswers() {
    Drain();
    EXPECT_EQ(bench_.Answer(stays()).tokens, bench_.Alone(first_));
    EXPECT_EQ(bench_.Answer(leaves()).tokens, bench_.Alone(second_));
    ExpectNothingLeft();
  }
  void ExpectFirstIsRight() {
    Drain();
    EXPECT_EQ(bench_.Answer(stays()).tokens, bench_.Alone(first_));
    ExpectNothingLeft();
  }

 private:
  void ExpectNothingLeft() {
    // What a disk still hangs at comes back with the first step after that.
    for (int i = 0; i < 300 && engine().Stats().swap_bytes > 0; ++i) {
      engine().Step();
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    EXPECT_EQ(bench_.LiveBytes(), 0u);
    engine().prefix_tree().Clear();
    EXPECT_EQ(bench_.pool().used_bytes(), 0u);
    EXPECT_EQ(engine().Stats().swap_bytes, 0u);
  }

  SwapFolder folder_;
  Bench bench_;
  EngineRequest first_, second_;
  std::pair<RequestId, RequestId> ids_;
};

constexpr TinyPolicy kFull = {"full_f32", kTinyFull, "f32", "f32"};

// Other ways to store a cache: engine_soak_test.cc.
TEST(EngineSwapTest, WhatWasSwappedGoesOnAsIfNothingHadHappened) {
  for (const TinyPolicy& policy : {kFull, TinyPolicy{"qwen_f16", kTinyQwen, "f16", "f16"}}) {
    SwapBench swap(policy);
    swap.Start();
    swap.StepUntilSwapped();
    swap.ExpectRightAnswers();
    EXPECT_EQ(swap.engine().Stats().swapped_in, 1);
    EXPECT_EQ(swap.engine().Stats().swaps_lost, 0);
  }
}

TEST(EngineSwapTest, OnlyWhatIsLostIsRead) {
  SwapBench swap(kFull);
  swap.Start();
  swap.StepUntilReading();
  const int64_t before = swap.engine().Stats().evaluated_tokens;
  const int64_t generated = swap.engine().Stats().generated_tokens;
  swap.Drain();
  // Nothing was evaluated twice: a row for every token that came after.
  EXPECT_EQ(swap.engine().Stats().evaluated_tokens - before,
            swap.engine().Stats().generated_tokens - generated);
}

TEST(EngineSwapTest, CancelledWhileWrittenOnDiskOrRead) {
  for (const bool is_reading : {false, true}) {
    SwapBench swap(kFull);
    swap.Start();
    if (is_reading) {
      swap.StepUntilReading();
    } else {
      swap.StepUntilSwapped();
    }
    swap.engine().Cancel(swap.leaves());
    EXPECT_EQ(swap.bench().Answer(swap.leaves()).finish, FinishReason::kCancelled);
    EXPECT_EQ(swap.engine().Stats().swapped_streams + swap.engine().Stats().reading_streams, 0);
    swap.ExpectFirstIsRight();
  }
}

TEST(EngineSwapTest, AnEngineMayEndWithCachesOnDisk) {
  SwapBench swap(kFull);
  swap.Start();
  swap.StepUntilSwapped();
}

TEST(EngineSwapTest, BadBytesAreComputedAgain) {
  for (const bool is_cut : {false, true}) {
    SwapBench swap(kFull);
    swap.Start();
    swap.StepUntilSwapped();
    // What a step begins to read was changed before it.
    int changed = 0;
    while (swap.engine().Stats().reading_streams == 0) {
      changed = is_cut ? swap.folder().TruncateFiles(0) : swap.folder().ChangeFiles(100);
      ASSERT_TRUE(swap.Step());
    }
    EXPECT_EQ(changed, 1);
    swap.ExpectRightAnswers();
    EXPECT_EQ(swap.engine().Stats().swapped_in, 0);
    EXPECT_EQ(swap.engine().Stats().swaps_lost, 1);
  }
}

// A disk that hangs holds nobody up for longer than it is waited for, and what it has of the pool
// comes back before anybody is told that there is not enough.
TEST(EngineSwapTest, ADiskThatHangsIsComputedAgain) {
  for (const bool hangs_reading : {false, true}) {
    SwapBench swap(kFull);
    std::atomic<bool> hangs = true;
    swap.Start(64 << 20, [&, hangs_reading](bool is_read) {
      if (is_read != hangs_reading || !hangs.exchange(false)) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(1500));
    });
    swap.ExpectRightAnswers();
    EXPECT_FALSE(hangs);
    EXPECT_EQ(swap.engine().Stats().swaps_lost, 1) << hangs_reading;
  }
}

// Blocks that the disk is at cannot be had at once; the request has then lost what it had there.
TEST(EngineSwapTest, WhoIsPreemptedWhileADiskHangsReadsNothingMore) {
  SwapBench swap(kFull);
  std::atomic<bool> hangs = true;
  swap.Start(64 << 20, [&](bool is_read) {
    if (!is_read || !hangs.exchange(false)) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  });
  swap.StepUntilReading();
  EngineRequest urgent = Request(RandomTokens(180, swap.bench().model().vocab_size(), 5), 60, 3);
  urgent.priority = 5;
  const RequestId id = swap.bench().Submit(urgent);
  swap.ExpectRightAnswers();
  EXPECT_FALSE(hangs);
  EXPECT_EQ(swap.bench().Answer(id).tokens, swap.bench().Alone(urgent));
  EXPECT_GE(swap.engine().Stats().swaps_lost, 1);
}

TEST(EngineSwapTest, AFullOrVanishedDiskIsComputedAgain) {
  SwapBench full(kFull);
  full.Start(1000);
  full.ExpectRightAnswers();
  EXPECT_EQ(full.engine().Stats().swapped_out, 0);
  SwapBench vanished(kFull);
  vanished.Start();
  vanished.folder().Remove();
  vanished.ExpectRightAnswers();
  EXPECT_EQ(vanished.engine().Stats().swapped_in, 0);
  EXPECT_GT(vanished.engine().Stats().preemptions, 0);
}

TEST(EngineSwapTest, AFolderThatIsNotThereIsRefused) {
  const Error error = RefusalOf({.swap = {.dir = "/there/is/no/such/folder"}});
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_NE(error.message.find("/there/is/no/such/folder"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
