// Many threads ask one engine: nothing is lost, nothing is answered twice, stopping drains.
#include "kvasir/engine/engine_thread.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

class EngineThreadTest : public testing::Test {
 protected:
  EngineThreadTest() : tiny_({.folder = "public_llama_f32"}) {}

  std::unique_ptr<EngineThread> Start(int64_t max_waiting, EngineOptions options = {}) {
    auto engine = ValueOrDie(
        Engine::Create({.model = &tiny_.model(),
                        .pool = &tiny_.pool(),
                        .spec = std::make_shared<const KvCacheSpec>(tiny_.model().CacheSpec({})),
                        .vocabulary = {.sampleable_tokens = tiny_.model().vocab_size()}},
                       std::move(options)));
    return std::make_unique<EngineThread>(std::move(engine), max_waiting);
  }
  EngineRequest Request(int64_t prompt_tokens, int64_t max_tokens, uint64_t seed) {
    EngineRequest request;
    request.prompt = RandomTokens(prompt_tokens, tiny_.model().vocab_size(), seed);
    request.max_tokens = max_tokens;
    request.sampling.temperature = 1;
    request.sampling.seed = seed;
    return request;
  }

  TinyModel tiny_;
};

// A request's end, to be waited for on another thread.
struct Ending {
  std::promise<EngineResult> promise;
  std::future<EngineResult> result = promise.get_future();
  EngineCallbacks Callbacks() {
    EngineCallbacks callbacks;
    callbacks.on_finish = [this](EngineResult r) { promise.set_value(std::move(r)); };
    return callbacks;
  }
};

TEST_F(EngineThreadTest, PartsThatLackAreRefused) {
  const auto engine = Engine::Create({.model = &tiny_.model(), .pool = &tiny_.pool()});
  ASSERT_FALSE(engine.ok());
  EXPECT_EQ(engine.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(EngineThreadTest, ManyThreadsAskAtOnce) {
  std::vector<std::vector<Token>> alone;
  {
    const auto thread = Start(100);
    for (uint64_t i = 0; i < 8; ++i) {
      Ending ending;
      (void)ValueOrDie(
          thread->Submit(Request(5 + 20 * static_cast<int64_t>(i), 15, i), ending.Callbacks()));
      alone.push_back(ending.result.get().answers[0].tokens);
    }
  }
  const auto thread = Start(100);
  std::vector<std::future<bool>> clients;
  for (uint64_t i = 0; i < 8; ++i) {
    clients.push_back(std::async(std::launch::async, [&, i] {
      bool is_same = true;
      for (int round = 0; round < 3; ++round) {
        Ending cancelled, ending;
        const RequestId id =
            ValueOrDie(thread->Submit(Request(100, 1000, 100 + i), cancelled.Callbacks()));
        (void)ValueOrDie(
            thread->Submit(Request(5 + 20 * static_cast<int64_t>(i), 15, i), ending.Callbacks()));
        thread->Cancel(id);
        is_same = is_same && ending.result.get().answers[0].tokens == alone[i];
        // It may have ended by itself in the moment before.
        const EngineResult left = cancelled.result.get();
        is_same = is_same && (left.answers[0].finish == FinishReason::kCancelled ||
                              left.answers[0].tokens.size() == 1000);
        (void)thread->Stats();
      }
      return is_same;
    }));
  }
  for (auto& client : clients) EXPECT_TRUE(client.get());
}

TEST_F(EngineThreadTest, AFullInboxRefusesAndThenTakesAgain) {
  const auto thread = Start(2, {.max_streams = 1});
  std::promise<void> shown, go_on;
  std::atomic<bool> is_first = true;
  Ending running, waiting, other, later;
  EngineCallbacks callbacks = running.Callbacks();
  callbacks.on_token = [&](int, Token, const TokenScores*) {
    if (!is_first.exchange(false)) return;
    shown.set_value();
    go_on.get_future().wait();
  };
  (void)ValueOrDie(thread->Submit(Request(5, 3, 1), callbacks));
  shown.get_future().wait();
  // The engine stands still: what comes now stays in the inbox.
  for (Ending* ending : {&waiting, &other}) {
    (void)ValueOrDie(thread->Submit(Request(5, 2, 2), ending->Callbacks()));
  }
  EXPECT_EQ(thread->Stats().waiting_requests, 3);  // the running one too, until its first step ends
  const auto refused = thread->Submit(Request(5, 2, 3), later.Callbacks());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
  go_on.set_value();
  running.result.get();
  waiting.result.get();
  other.result.get();
  (void)ValueOrDie(thread->Submit(Request(5, 2, 3), later.Callbacks()));
  EXPECT_EQ(later.result.get().answers[0].tokens.size(), 2u);
}

TEST_F(EngineThreadTest, APausedRequestGoesOnWhenItsReaderHasCaughtUp) {
  const auto thread = Start(100);
  std::atomic<bool> is_paused = true;
  Ending slow, quick;
  EngineCallbacks callbacks = slow.Callbacks();
  callbacks.is_paused = [&] { return is_paused.load(); };
  (void)ValueOrDie(thread->Submit(Request(50, 5, 1), callbacks));
  (void)ValueOrDie(thread->Submit(Request(50, 5, 2), quick.Callbacks()));
  EXPECT_EQ(quick.result.get().answers[0].tokens.size(), 5u);
  is_paused = false;
  EXPECT_EQ(slow.result.get().answers[0].tokens.size(), 5u);
}

TEST_F(EngineThreadTest, StopLetsAcceptedRequestsEnd) {
  const auto thread = Start(100);
  Ending endings[3];
  for (Ending& ending : endings) {
    (void)ValueOrDie(thread->Submit(Request(50, 30, 1), ending.Callbacks()));
  }
  thread->Stop(std::chrono::milliseconds::max());
  for (Ending& ending : endings) {
    EXPECT_EQ(ending.result.get().answers[0].finish, FinishReason::kLength);
  }
  const auto late = thread->Submit(Request(5, 1, 1), {});
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kCancelled);
}

TEST_F(EngineThreadTest, StopWithoutGraceCancels) {
  auto thread = Start(100);
  Ending endings[3];
  for (Ending& ending : endings) {
    (void)ValueOrDie(thread->Submit(Request(50, 4000, 1), ending.Callbacks()));
  }
  thread.reset();
  for (Ending& ending : endings) {
    EXPECT_EQ(ending.result.get().answers[0].finish, FinishReason::kCancelled);
  }
  EXPECT_EQ(tiny_.pool().used_bytes(), 0u);
}

TEST_F(EngineThreadTest, BadRequestsAreRefusedBeforeTheyWait) {
  const auto thread = Start(1);
  const auto refused = thread->Submit(EngineRequest{}, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidArgument);
}

TEST_F(EngineThreadTest, AllOfSeveralRequestsAreTakenOrNone) {
  const auto thread = Start(10);
  bool is_called = false;
  std::vector<EngineThread::Job> jobs(2);
  jobs[0].request = Request(5, 3, 1);
  jobs[0].callbacks.on_finish = [&](EngineResult) { is_called = true; };
  ASSERT_FALSE(thread->SubmitAll(std::move(jobs)).ok());  // the second has no prompt
  Ending first, second;
  jobs = std::vector<EngineThread::Job>(2);
  jobs[0] = {Request(5, 3, 1), first.Callbacks()};
  jobs[1] = {Request(5, 3, 2), second.Callbacks()};
  const auto ids = ValueOrDie(thread->SubmitAll(std::move(jobs)));
  EXPECT_NE(ids[0], ids[1]);
  EXPECT_EQ(first.result.get().answers[0].tokens.size(), 3u);
  EXPECT_EQ(second.result.get().answers[0].tokens.size(), 3u);
  EXPECT_FALSE(is_called);
}

TEST_F(EngineThreadTest, ShowsItsCacheWhileItWorksAndWhenItDoesNot) {
  using Shown = std::promise<std::shared_ptr<const EnginePicture>>;
  const auto look = [](EngineThread& thread) {
    const auto shown = std::make_shared<Shown>();
    thread.Picture([shown](std::shared_ptr<const EnginePicture> picture) {
      shown->set_value(std::move(picture));
    });
    return shown->get_future().get();
  };
  const auto thread = Start(100);
  const auto empty = look(*thread);
  EXPECT_TRUE(empty->cache.sequences.empty());
  EXPECT_EQ(empty->live_bytes, 0u);
  EXPECT_GT(empty->budget_bytes, 0u);

  // Asked at a token, so it is made before the answer ends.
  Ending ending;
  EngineCallbacks callbacks = ending.Callbacks();
  bool has_asked = false;
  std::promise<void> first_token;
  callbacks.on_token = [&](int, Token, const TokenScores*) {
    if (!std::exchange(has_asked, true)) first_token.set_value();
  };
  const RequestId id = ValueOrDie(thread->Submit(Request(100, 100'000, 1), std::move(callbacks)));
  first_token.get_future().wait();
  // The first one asked may still be the one of the empty cache.
  std::shared_ptr<const EnginePicture> busy;
  while (busy == nullptr || busy->made_at == empty->made_at) busy = look(*thread);
  thread->Cancel(id);
  ending.result.wait();
  ASSERT_FALSE(busy->cache.sequences.empty());
  EXPECT_TRUE(busy->cache.sequences[0].is_running);
  EXPECT_EQ(busy->cache.sequences[0].id, id);
  EXPECT_GE(busy->cache.sequences[0].tokens, 100);
  EXPECT_GT(busy->live_bytes, 0u);
  EXPECT_LE(busy->live_bytes, busy->stats.used_bytes);
  EXPECT_EQ(busy->stats.prompt_tokens, 100);
}

}  // namespace
}  // namespace kvasir
