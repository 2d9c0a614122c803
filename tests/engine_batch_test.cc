// Continuous batching: whatever else runs, is cached, is evicted or is cancelled, each request is
// answered as if it were alone.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kvasir/engine/cached_sequence.h"
#include "tests/support/engine_bench.h"

namespace kvasir {
namespace {

class EngineBatchTest : public testing::TestWithParam<TinyPolicy> {};

TEST_P(EngineBatchTest, EveryAnswerIsThatOfTheRequestAlone) {
  Bench bench(GetParam());
  const auto requests = Mixed(bench.model().vocab_size());
  for (const int64_t step_tokens : {16, 200}) {
    bench.Start(size_t{64} << 20, {.scheduler = {step_tokens, step_tokens}});
    std::vector<RequestId> ids;
    // They join while others run, one every other step, and leave when they are done.
    for (const EngineRequest& request : requests) {
      ids.push_back(bench.Submit(request));
      bench.engine().Step();
      bench.engine().Step();
    }
    bench.Drain();
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(bench.Answer(ids[i]).tokens, bench.Alone(requests[i])) << i;
      EXPECT_EQ(bench.Answer(ids[i]).finish, FinishReason::kLength);
    }
    EXPECT_EQ(bench.LiveBytes(), 0u);
    bench.engine().prefix_tree().Clear();
    EXPECT_EQ(bench.pool().used_bytes(), 0u);
  }
}

// A pool that holds little more than the largest request: nothing stays cached for long, and
// whoever comes later is preempted again and again.
TEST_P(EngineBatchTest, AnswersAreRightWhenEvictionAndPreemptionNeverStop) {
  Bench bench(GetParam());
  auto requests = Mixed(bench.model().vocab_size());
  std::vector<Tokens> wanted;
  size_t largest = 0;
  for (size_t i = 0; i < requests.size(); ++i) {
    // Answers that grow by several blocks, which nobody kept free for them.
    requests[i].max_tokens = 80 + 40 * static_cast<int64_t>(i % 5);
    wanted.push_back(bench.Alone(requests[i]));
    const auto prompt = static_cast<Position>(requests[i].prompt.size());
    largest = std::max(largest, bench.spec().BytesAt(prompt + requests[i].max_tokens));
  }
  // A block more for each layer, which copies on write and evictions take.
  const size_t budget = largest + 4 * bench.spec().BytesAt(1);
  bench.Start(budget, {.scheduler = {64, 32}});
  std::mt19937 random(1);
  std::vector<std::pair<RequestId, size_t>> ids;
  int steps = 0;
  for (; ids.size() < 120 || bench.engine().has_work(); ++steps) {
    ASSERT_LT(steps, 20'000);
    if (ids.size() < 120 && bench.engine().Stats().waiting_requests < 6) {
      const size_t which = random() % requests.size();
      ids.emplace_back(bench.Submit(requests[which]), which);
    }
    bench.engine().Step();
    ASSERT_LE(bench.pool().used_bytes(), budget);
  }
  EXPECT_GT(steps, 100);
  for (const auto& [id, which] : ids) {
    ASSERT_TRUE(bench.IsFinished(id));
    EXPECT_EQ(bench.Answer(id).tokens, wanted[which]) << which;
  }
  EXPECT_EQ(bench.LiveBytes(), 0u);
  // Where a budget bounds the rows, few answers outgrow what they began with.
  const bool is_bounded = *GetParam().budget != '\0';
  EXPECT_GT(bench.engine().Stats().preemptions, is_bounded ? 0 : 20);
}

TEST_P(EngineBatchTest, SeveralAnswersShareThePromptAndAreThoseOfTheirSeeds) {
  Bench bench(GetParam());
  bench.Start();
  EngineRequest request = Request(RandomTokens(200, bench.model().vocab_size(), 1), 20, 40);
  request.answers = 4;
  const RequestId id = bench.Submit(request);
  bench.Drain();
  for (int i = 0; i < 4; ++i) EXPECT_EQ(bench.Answer(id, i).tokens, bench.Alone(request, i)) << i;
  EXPECT_NE(bench.Answer(id, 0).tokens, bench.Answer(id, 1).tokens);
  // The prompt once, then each answer's tokens but the last.
  EXPECT_EQ(bench.engine().Stats().evaluated_tokens, 200 + 4 * 19);
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineBatchTest, testing::ValuesIn(EnginePolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

class EngineTest : public testing::Test {
 protected:
  EngineTest() : bench_({"full_f32", kTinyFull, "f32", "f32"}) { bench_.Start(); }

  Tokens Prompt(int64_t tokens, uint64_t seed = 1) {
    return RandomTokens(tokens, bench_.model().vocab_size(), seed);
  }

  Bench bench_;
};

TEST_F(EngineTest, AnIdenticalPromptEvaluatesOneToken) {
  for (const char* folder : {kTinyFull, kTinyWindows, kTinyStates}) {
    Bench bench({"f32", folder, "f32", "f32"});
    bench.Start();
    const EngineRequest request = Request(Prompt(200), 1);
    const RequestId first = bench.Submit(request);
    bench.Drain();
    const int64_t before = bench.engine().Stats().evaluated_tokens;
    EXPECT_EQ(before, 200);
    const RequestId second = bench.Submit(request);
    bench.Drain();
    EXPECT_EQ(bench.engine().Stats().evaluated_tokens - before, 1);
    EXPECT_EQ(bench.Answer(first).stats.cached_tokens, 0);
    EXPECT_EQ(bench.Answer(second).stats.cached_tokens, 199);
    EXPECT_EQ(bench.Answer(second).stats.known_prefix_tokens, 200);
    EXPECT_EQ(bench.Answer(second).tokens, bench.Answer(first).tokens);
  }
}

TEST_F(EngineTest, TheNextTurnReadsOnlyWhatIsNew) {
  const EngineRequest first = Request(Prompt(100), 20);
  const RequestId id = bench_.Submit(first);
  bench_.Drain();
  EngineRequest second = first;
  const Tokens& answer = bench_.Answer(id).tokens;
  second.prompt.insert(second.prompt.end(), answer.begin(), answer.end());
  const Tokens turn = Prompt(30, 2);
  second.prompt.insert(second.prompt.end(), turn.begin(), turn.end());
  const RequestId next = bench_.Submit(second);
  bench_.Drain();
  // All but the answer's last token, which nothing had to be predicted from.
  EXPECT_EQ(bench_.Answer(next).stats.cached_tokens, 119);
  EXPECT_EQ(bench_.Answer(next).tokens, bench_.Alone(second));
}

TEST_F(EngineTest, APromptThatIsJustBeingReadIsReadOnce) {
  for (const char* folder : {kTinyFull, kTinyWindows, kTinyStates}) {
    Bench bench({"f32", folder, "f32", "f32"});
    bench.Start(size_t{64} << 20, {.scheduler = {64, 64}});
    std::vector<EngineRequest> requests(4, Request(Prompt(300), 5));
    // One goes on where the first prompt ends, one has nothing to do with it.
    const Tokens more = Prompt(20, 3);
    requests[2].prompt.insert(requests[2].prompt.end(), more.begin(), more.end());
    requests[3].prompt = Prompt(100, 4);
    std::vector<RequestId> ids;
    for (const EngineRequest& request : requests) ids.push_back(bench.Submit(request));
    bench.Drain();
    // Where there are states, what goes on from the first prompt goes on from its last token but
    // one.
    const int64_t again = bench.spec().HasRecurrentLayers() ? 1 : 0;
    EXPECT_EQ(bench.engine().Stats().evaluated_tokens, 300 + 1 + 20 + again + 100 + 4 * 4);
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(bench.Answer(ids[i]).tokens, bench.Alone(requests[i])) << folder << i;
    }
    // Whoever reads it may leave: the others read what it had not.
    bench.Start(size_t{64} << 20, {.scheduler = {64, 64}});
    const RequestId first = bench.Submit(requests[0]);
    const RequestId second = bench.Submit(requests[1]);
    bench.engine().Step();
    bench.engine().Cancel(first);
    bench.Drain();
    EXPECT_EQ(bench.Answer(second).tokens, bench.Alone(requests[1]));
  }
}

// What waits looks at the prefixes in every step, and uses none of them.
TEST_F(EngineTest, WaitingIsNoUse) {
  const auto age_after = [this](bool is_together) {
    Bench bench({"f32", kTinyFull, "f32", "f32"});
    bench.Start(size_t{64} << 20, {.scheduler = {64, 32}});
    for (int i = 0; i < 6; ++i) {
      Tokens prompt = Prompt(600);
      const Tokens own = Prompt(10, 100 + i);
      prompt.insert(prompt.end(), own.begin(), own.end());
      bench.Submit(Request(prompt, 2));
      if (!is_together) bench.Drain();
    }
    bench.Drain();
    bench.Submit(Request(Prompt(70, 3), 1));
    bench.Drain();
    return bench.engine().prefix_tree().LastWithin(0, Prompt(70, 3))->last_used;
  };
  EXPECT_EQ(age_after(true), age_after(false));
}

TEST_F(EngineTest, SaltsShareNothing) {
  EngineRequest request = Request(Prompt(200), 4);
  bench_.Submit(request);
  bench_.Drain();
  request.salt = 7;
  const RequestId other = bench_.Submit(request);
  bench_.Drain();
  EXPECT_EQ(bench_.Answer(other).stats.cached_tokens, 0);
  EXPECT_EQ(bench_.Answer(other).stats.known_prefix_tokens, 0);
}

TEST_F(EngineTest, ARunningAnswerGetsATokenInEveryStep) {
  bench_.Start(size_t{64} << 20, {.scheduler = {64, 16}});
  int64_t shown = 0;
  EngineCallbacks callbacks;
  callbacks.on_token = [&](int, Token, const TokenScores*) { ++shown; };
  bench_.Submit(Request(Prompt(5), 60), callbacks);
  bench_.engine().Step();
  ASSERT_EQ(shown, 1);
  for (uint64_t i = 0; i < 3; ++i) bench_.Submit(Request(Prompt(300, 10 + i), 1));
  for (int64_t step = 2; step <= 40; ++step) {
    const int64_t before = bench_.engine().Stats().evaluated_tokens;
    bench_.engine().Step();
    EXPECT_EQ(shown, step);
    EXPECT_LE(bench_.engine().Stats().evaluated_tokens - before, 16);
  }
}

TEST_F(EngineTest, AShortRequestIsNotHeldUpByALongPrompt) {
  bench_.Start(size_t{64} << 20, {.scheduler = {32, 32}});
  const RequestId slow = bench_.Submit(Request(Prompt(400), 1));
  bench_.engine().Step();
  const RequestId quick = bench_.Submit(Request(Prompt(10, 2), 1));
  bench_.engine().Step();
  EXPECT_TRUE(bench_.IsFinished(quick));
  EXPECT_FALSE(bench_.IsFinished(slow));
}

TEST_F(EngineTest, CancellationInEveryStateGivesBackEveryByte) {
  bench_.Start(size_t{64} << 20, {.scheduler = {32, 32}, .max_streams = 2});
  const EngineRequest other = Request(Prompt(90, 3), 60, 3);
  const RequestId stays = bench_.Submit(other);
  for (const int steps : {0, 1, 3, 20}) {
    // Not yet seen, in the middle of its prompt, and answering.
    const RequestId id = bench_.Submit(Request(Prompt(150, static_cast<uint64_t>(steps)), 200));
    for (int i = 0; i < steps; ++i) bench_.engine().Step();
    // No free slot: it waits in the queue.
    const RequestId queued = bench_.Submit(Request(Prompt(20), 5));
    if (steps > 0) bench_.engine().Step();
    bench_.engine().Cancel(queued);
    EXPECT_EQ(bench_.Answer(queued).finish, FinishReason::kCancelled);
    EXPECT_EQ(bench_.ResultOf(queued).answers[0].tokens.size(), 0u);
    bench_.engine().Cancel(id);
    EXPECT_EQ(bench_.Answer(id).finish, FinishReason::kCancelled);
    const EngineStats stats = bench_.engine().Stats();
    EXPECT_LE(stats.active_streams, 1);
    EXPECT_EQ(stats.running_requests + stats.waiting_requests, bench_.IsFinished(stays) ? 0 : 1);
  }
  bench_.Drain();
  EXPECT_EQ(bench_.Answer(stays).tokens, bench_.Alone(other));
  EXPECT_EQ(bench_.LiveBytes(), 0u);
  bench_.engine().prefix_tree().Clear();
  EXPECT_EQ(bench_.pool().used_bytes(), 0u);
  bench_.engine().Cancel(12345);
  bench_.engine().Cancel(stays);
}

TEST_F(EngineTest, APreemptedRequestCanBeCancelled) {
  const size_t budget = bench_.spec().BytesAt(300);
  bench_.Start(budget, {.scheduler = {64, 64}});
  const EngineRequest first = Request(Prompt(60), 200);
  const RequestId stays = bench_.Submit(first);
  const RequestId leaves = bench_.Submit(Request(Prompt(100, 2), 150));
  while (bench_.engine().Stats().preemptions == 0) ASSERT_TRUE(bench_.engine().Step());
  EXPECT_EQ(bench_.engine().Stats().active_streams, 1);
  bench_.engine().Cancel(leaves);
  EXPECT_EQ(bench_.ResultOf(leaves).preemptions, 1);
  bench_.Drain();
  EXPECT_EQ(bench_.Answer(stays).tokens, bench_.Alone(first));
  EXPECT_EQ(bench_.LiveBytes(), 0u);
}

TEST_F(EngineTest, CallbacksMayCancelAndSubmit) {
  RequestId id = 0, next = 0;
  EngineCallbacks callbacks;
  int shown = 0;
  callbacks.on_token = [&](int, Token, const TokenScores*) {
    if (++shown == 3) bench_.engine().Cancel(id);
    if (shown == 1) next = bench_.Submit(Request(Prompt(9, 5), 2));
  };
  id = bench_.Submit(Request(Prompt(10), 50), callbacks);
  bench_.Drain();
  EXPECT_EQ(bench_.Answer(id).finish, FinishReason::kCancelled);
  EXPECT_EQ(bench_.Answer(id).tokens.size(), 3u);
  EXPECT_EQ(bench_.Answer(next).tokens.size(), 2u);
}

TEST_F(EngineTest, WhoIsCancelledByACancelledOneEndsAtOnce) {
  RequestId second = 0;
  EngineCallbacks callbacks;
  bool has_ended = false;
  const RequestId first = bench_.engine().NewId();
  callbacks.on_finish = [&](EngineResult) {
    bench_.engine().Cancel(second);
    has_ended = true;
  };
  const EngineRequest request = Request(Prompt(10), 50);
  OrDie(bench_.engine().Submit(first, request, callbacks, nullptr));
  second = bench_.Submit(request);
  bench_.engine().Step();
  bench_.engine().Cancel(first);
  EXPECT_TRUE(has_ended && bench_.IsFinished(second));
  EXPECT_FALSE(bench_.engine().has_work());
}

TEST_F(EngineTest, WhatIsAskedOncePerStepMayCancelAndSubmit) {
  // Requests that nobody has looked at yet are moved and ended meanwhile.
  std::vector<RequestId> first, next;
  bool is_asked = false;
  EngineCallbacks callbacks;
  callbacks.is_paused = [&] {
    if (std::exchange(is_asked, true)) return false;
    for (int i = 0; i < 9; ++i) next.push_back(bench_.Submit(Request(Prompt(9, 5), 2)));
    for (const RequestId id : first) bench_.engine().Cancel(id);
    return false;
  };
  for (int i = 0; i < 3; ++i) first.push_back(bench_.Submit(Request(Prompt(10), 50), callbacks));
  bench_.Drain();
  for (const RequestId id : first) EXPECT_EQ(bench_.Answer(id).finish, FinishReason::kCancelled);
  for (const RequestId id : next) EXPECT_EQ(bench_.Answer(id).tokens.size(), 2u);
}

TEST_F(EngineTest, NothingIsAcceptedWhileTheEngineEnds) {
  Engine& engine = bench_.engine();
  Status refused;
  EngineCallbacks callbacks;
  callbacks.on_finish = [&](const EngineResult&) {
    refused = engine.Submit(Request(Prompt(9), 2), {}).status();
  };
  ASSERT_TRUE(engine.Submit(Request(Prompt(10), 50), callbacks).ok());
  bench_.Start();
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kCancelled);
}

TEST_F(EngineTest, WhoeverIsGoneIsCancelledWithinAStep) {
  bool is_gone = false;
  EngineCallbacks callbacks;
  callbacks.is_cancelled = [&] { return is_gone; };
  const RequestId id = bench_.Submit(Request(Prompt(10), 50), callbacks);
  bench_.engine().Step();
  is_gone = true;
  EXPECT_FALSE(bench_.engine().Step());
  EXPECT_EQ(bench_.Answer(id).finish, FinishReason::kCancelled);
}

TEST_F(EngineTest, APausedRequestKeepsItsPlaceAndYieldsItsMemory) {
  bench_.Start(bench_.spec().BytesAt(300));
  bool is_paused = false;
  EngineCallbacks callbacks;
  callbacks.is_paused = [&] { return is_paused; };
  const EngineRequest slow = Request(Prompt(100), 30), quick = Request(Prompt(100, 2), 120);
  const RequestId first = bench_.Submit(slow, callbacks);
  const RequestId second = bench_.Submit(quick);
  bench_.engine().Step();
  is_paused = true;
  while (!bench_.IsFinished(second)) ASSERT_TRUE(bench_.engine().Step());
  EXPECT_FALSE(bench_.IsFinished(first));
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(bench_.engine().Step());
  EXPECT_EQ(bench_.engine().Stats().preemptions, 1);  // the older one, because it is behind
  is_paused = false;
  bench_.Drain();
  EXPECT_EQ(bench_.ResultOf(first).preemptions, 1);
  EXPECT_EQ(bench_.Answer(first).tokens, bench_.Alone(slow));
  EXPECT_EQ(bench_.Answer(second).tokens, bench_.Alone(quick));
}

TEST_F(EngineTest, SlowReadersKeepNobodyOut) {
  bench_.Start(size_t{64} << 20, {.max_streams = 2});
  bool is_paused = false;
  EngineCallbacks callbacks;
  callbacks.is_paused = [&] { return is_paused; };
  const EngineRequest slow = Request(Prompt(60), 40), quick = Request(Prompt(60, 2), 20);
  const RequestId first = bench_.Submit(slow, callbacks), second = bench_.Submit(slow, callbacks);
  for (int i = 0; i < 5; ++i) bench_.engine().Step();
  is_paused = true;
  const RequestId third = bench_.Submit(quick);
  for (int i = 0; i < 30; ++i) bench_.engine().Step();
  EXPECT_TRUE(bench_.IsFinished(third));
  EXPECT_FALSE(bench_.IsFinished(first));
  is_paused = false;
  bench_.Drain();
  for (const RequestId id : {first, second})
    EXPECT_EQ(bench_.Answer(id).tokens, bench_.Alone(slow));
  EXPECT_EQ(bench_.Answer(third).tokens, bench_.Alone(quick));
}

// Its prompt goes on when it does, and who has the same one does not wait for that.
TEST_F(EngineTest, NobodyWaitsForAPromptThatASlowReaderHasBegun) {
  bench_.Start(size_t{64} << 20, {.scheduler = {64, 64}});
  bool is_paused = false;
  EngineCallbacks callbacks;
  callbacks.is_paused = [&] { return is_paused; };
  const EngineRequest request = Request(Prompt(300), 10);
  const RequestId slow = bench_.Submit(request, callbacks);
  bench_.engine().Step();
  is_paused = true;
  const RequestId quick = bench_.Submit(request);
  for (int i = 0; i < 30; ++i) bench_.engine().Step();
  EXPECT_TRUE(bench_.IsFinished(quick));
  EXPECT_FALSE(bench_.IsFinished(slow));
  is_paused = false;
  bench_.Drain();
  EXPECT_EQ(bench_.Answer(slow).tokens, bench_.Answer(quick).tokens);
}

TEST_F(EngineTest, WhoCatchesUpIsAdmittedThoughOthersHaveNoRoom) {
  bench_.Start(bench_.spec().BytesAt(640));
  const RequestId running = bench_.Submit(Request(Prompt(60), 300));
  bench_.engine().Step();
  bool is_paused = true;
  EngineCallbacks callbacks;
  callbacks.is_paused = [&] { return is_paused; };
  const RequestId slow = bench_.Submit(Request(Prompt(20, 2), 10), callbacks);
  const RequestId large = bench_.Submit(Request(Prompt(600, 3), 10));
  for (int i = 0; i < 3; ++i) bench_.engine().Step();
  is_paused = false;
  for (int i = 0; i < 12; ++i) bench_.engine().Step();
  EXPECT_TRUE(bench_.IsFinished(slow));
  EXPECT_FALSE(bench_.IsFinished(running));
  EXPECT_FALSE(bench_.IsFinished(large));
  bench_.Drain();
}

TEST_F(EngineTest, WhenAWaiterIsCancelledThoseBehindItNeedNotWait) {
  bench_.Start(bench_.spec().BytesAt(300));
  const RequestId running = bench_.Submit(Request(Prompt(60), 100));
  bench_.engine().Step();
  const RequestId large = bench_.Submit(Request(Prompt(250, 2), 10));
  const RequestId small = bench_.Submit(Request(Prompt(20, 3), 5));
  for (int i = 0; i < 10; ++i) bench_.engine().Step();
  EXPECT_FALSE(bench_.IsFinished(small));  // nobody overtakes
  bench_.engine().Cancel(large);
  for (int i = 0; i < 10; ++i) bench_.engine().Step();
  EXPECT_TRUE(bench_.IsFinished(small));
  EXPECT_FALSE(bench_.IsFinished(running));
  bench_.Drain();
}

TEST_F(EngineTest, DeadlinesEndARequestInAnyState) {
  // The engine outlives the body of the test and asks once more at its end.
  const auto now = std::make_shared<EngineClock::time_point>();
  EngineOptions options;
  options.max_streams = 1;
  options.now = [now] { return *now; };
  bench_.Start(size_t{64} << 20, options);
  EngineRequest request = Request(Prompt(10), 50);
  request.deadline = *now + std::chrono::seconds(5);
  const RequestId running = bench_.Submit(request);
  const RequestId queued = bench_.Submit(request);
  bench_.engine().Step();
  *now += std::chrono::seconds(5);
  EXPECT_FALSE(bench_.engine().Step());
  for (const RequestId id : {running, queued}) {
    EXPECT_EQ(bench_.ResultOf(id).status.error().code, ErrorCode::kCancelled);
  }
  EXPECT_EQ(bench_.ResultOf(running).answers[0].tokens.size(), 1u);
}

TEST_F(EngineTest, AnAnswerThatIsCompleteHasNoDeadline) {
  const auto now = std::make_shared<EngineClock::time_point>();
  EngineOptions options;
  options.now = [now] { return *now; };
  bench_.Start(size_t{64} << 20, options);
  EngineRequest request = Request(Prompt(10), 3);
  request.deadline = *now + std::chrono::seconds(5);
  EngineCallbacks callbacks;
  callbacks.on_token = [now, said = 0](int, Token, const TokenScores*) mutable {
    if (++said == 3) *now += std::chrono::seconds(5);
  };
  const RequestId id = bench_.Submit(request, callbacks);
  bench_.Drain();
  EXPECT_TRUE(bench_.ResultOf(id).status.ok());
  EXPECT_EQ(bench_.ResultOf(id).answers[0].tokens.size(), 3u);
  EXPECT_EQ(bench_.ResultOf(id).answers[0].finish, FinishReason::kLength);
}

TEST_F(EngineTest, HigherPrioritiesAreAdmittedFirst) {
  bench_.Start(size_t{64} << 20, {.max_streams = 1});
  std::vector<int> order;
  for (const int priority : {0, 0, 5}) {
    EngineRequest request = Request(Prompt(10), 1);
    request.priority = priority;
    EngineCallbacks callbacks;
    callbacks.on_token = [&order, priority](int, Token, const TokenScores*) {
      order.push_back(priority);
    };
    bench_.Submit(request, callbacks);
  }
  bench_.Drain();
  EXPECT_EQ(order, (std::vector<int>{5, 0, 0}));
}

TEST_F(EngineTest, AHigherPriorityTakesThePlaceOfARunningLowerOne) {
  bench_.Start(size_t{64} << 20, {.max_streams = 1});
  const EngineRequest low = Request(Prompt(70), 40, 3);
  EngineRequest high = Request(Prompt(90, 2), 10), equal = Request(Prompt(50, 4), 5);
  high.priority = 2;
  const RequestId running = bench_.Submit(low);
  for (int i = 0; i < 5; ++i) bench_.engine().Step();
  const RequestId waits = bench_.Submit(equal);
  bench_.engine().Step();
  EXPECT_EQ(bench_.engine().Stats().preemptions, 0);
  const RequestId first = bench_.Submit(high);
  bench_.engine().Step();
  EXPECT_EQ(bench_.engine().Stats().preemptions, 1);
  while (!bench_.IsFinished(first)) ASSERT_TRUE(bench_.engine().Step());
  EXPECT_FALSE(bench_.IsFinished(running));
  bench_.Drain();
  EXPECT_EQ(bench_.ResultOf(running).preemptions, 1);
  EXPECT_EQ(bench_.Answer(running).tokens, bench_.Alone(low));
  EXPECT_EQ(bench_.Answer(first).tokens, bench_.Alone(high));
  EXPECT_EQ(bench_.Answer(waits).tokens, bench_.Alone(equal));
}

TEST_F(EngineTest, AHigherPriorityTakesOnlyTheMemoryItNeedsOfTheYoungestOfTheLowest) {
  bench_.Start(bench_.spec().BytesAt(64 * 14));
  std::vector<EngineRequest> requests;
  std::vector<RequestId> ids;
  for (const int priority : {1, 0, 0}) {
    requests.push_back(Request(Prompt(150, 10 + requests.size()), 40));
    requests.back().priority = priority;
    ids.push_back(bench_.Submit(requests.back()));
  }
  for (int i = 0; i < 4; ++i) bench_.engine().Step();
  ASSERT_EQ(bench_.engine().Stats().active_streams, 3);
  for (const int64_t prompt : {200, 700}) {
    requests.push_back(Request(Prompt(prompt, 20), 20));
    requests.back().priority = 1;
    ids.push_back(bench_.Submit(requests.back()));
  }
  bench_.engine().Step();
  // The last of the lowest makes room for one; all of them would not for the other, which waits.
  EXPECT_EQ(bench_.engine().Stats().active_streams, 3);
  EXPECT_EQ(bench_.engine().Stats().preemptions, 1);
  bench_.Drain();
  EXPECT_EQ(bench_.ResultOf(ids[0]).preemptions, 0);
  EXPECT_EQ(bench_.ResultOf(ids[1]).preemptions, 0);
  EXPECT_EQ(bench_.ResultOf(ids[2]).preemptions, 1);
  for (size_t i = 0; i < ids.size(); ++i) {
    EXPECT_EQ(bench_.Answer(ids[i]).tokens, bench_.Alone(requests[i])) << i;
  }
}

TEST_F(EngineTest, OnlyARequestThatCannotFitAloneIsEndedForMemory) {
  const size_t budget = bench_.spec().BytesAt(192);
  bench_.Start(budget);
  EXPECT_EQ(bench_.engine().Check(Request(Prompt(300), 1)).error().code,
            ErrorCode::kInvalidArgument);
  const EngineRequest small = Request(Prompt(40, 2), 30);
  const RequestId large = bench_.Submit(Request(Prompt(100), 400));
  const RequestId other = bench_.Submit(small);
  bench_.Drain();
  const EngineResult& result = bench_.ResultOf(large);
  ASSERT_FALSE(result.status.ok());
  EXPECT_EQ(result.status.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(result.status.error().message.find("does not fit"), std::string::npos);
  // As far as the cache goes, it was answered.
  EXPECT_EQ(result.answers[0].tokens.size(), 93u);
  EXPECT_EQ(bench_.Answer(other).tokens, bench_.Alone(small));
  EXPECT_EQ(bench_.LiveBytes(), 0u);
}

// Its own first blocks hold slabs that somebody else left, whose free blocks have the wrong size.
TEST(EngineBlocksTest, WhatOthersLeftInTheWayEndsNobody) {
  Bench bench({"dense_start", kTinyFull, "turbo4", "turbo4", "", 64});
  const EngineRequest request = Request(RandomTokens(60, bench.model().vocab_size(), 1), 140);
  const size_t layers = bench.spec().layers.size();
  const size_t dense = bench.spec().BytesAt(64) / layers;
  const size_t budget = bench.spec().BytesAt(200);
  bench.Start(budget);
  // Two slabs of four blocks, and the request's first ones in both.
  ASSERT_EQ(budget / dense, 2 * layers);
  const KvPool::Demand all = {dense, static_cast<int64_t>(2 * layers)};
  OrDie(bench.pool().EnsureFree(std::span(&all, 1)));
  std::vector<BlockRef> others;
  for (size_t i = 0; i < layers / 2; ++i) others.push_back(bench.pool().Take(dense));
  const RequestId id = bench.Submit(request);
  bench.engine().Step();
  others.clear();
  bench.Drain();
  EXPECT_EQ(bench.Answer(id).tokens, bench.Alone(request));
  EXPECT_EQ(bench.ResultOf(id).preemptions, 1);
  EXPECT_EQ(bench.pool().Stats().size_classes.size(), 2u);
}

// Blocks of three sizes, of which long runs take more for a moment: what is free of one size must
// not decide how far an answer comes, nor what was there before.
TEST(EngineBlocksTest, AnAnswerComesAsFarAsItsBytesWhateverWasBefore) {
  Bench bench({"dense_ends", kTinyFull, "turbo4", "turbo4", "", 256, 128});
  const int64_t vocab = bench.model().vocab_size();
  const int64_t reach = 2200;
  const auto known_at_end = [&](const std::vector<EngineRequest>& before, int64_t step_tokens) {
    EngineOptions options;
    options.scheduler = {step_tokens, std::min<int64_t>(step_tokens, 128)};
    // Slabs as large as they may be.
    bench.Start(bench.spec().BytesAt(reach), options, size_t{64} << 20);
    for (const EngineRequest& request : before) {
      bench.Submit(request);
      bench.Drain();
    }
    const RequestId id = bench.Submit(Request(RandomTokens(1900, vocab, 5), 1000));
    bench.Drain();
    EXPECT_EQ(bench.ResultOf(id).status.error().code, ErrorCode::kResourceExhausted);
    return 1900 + static_cast<int64_t>(bench.ResultOf(id).answers[0].tokens.size());
  };
  const int64_t fresh = known_at_end({}, 512);
  // A run of one token takes a block of recent copies more in every layer.
  EXPECT_GE(fresh, reach - 3 * kBlockTokens);
  EXPECT_LE(fresh, reach + kBlockTokens);
  EXPECT_EQ(known_at_end({}, 64), fresh);
  EXPECT_EQ(known_at_end({Request(RandomTokens(3, vocab, 6), 3)}, 512), fresh);
  EXPECT_EQ(known_at_end({Request(RandomTokens(1200, vocab, 7), 30),
                          Request(RandomTokens(1900, vocab, 5), 20)},
                         512),
            fresh);
}

TEST_F(EngineTest, SeveralAnswersThatDoNotFitTogetherComeOneAfterTheOther) {
  bench_.Start(bench_.spec().BytesAt(64 * 5));
  EngineRequest request = Request(Prompt(100), 130, 11);
  request.answers = 3;
  const RequestId id = bench_.Submit(request);
  bench_.Drain();
  EXPECT_GT(bench_.ResultOf(id).preemptions, 0);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(bench_.Answer(id, i).tokens, bench_.Alone(request, i)) << i;
}

TEST_F(EngineTest, StopTokensEndAnAnswerUnseen) {
  EngineRequest request = Request(Prompt(10), 50);
  const Tokens whole = bench_.Alone(request);
  request.stop_tokens = {whole[5]};
  const RequestId id = bench_.Submit(request);
  request.ignore_stop_tokens = true;
  const RequestId ignores = bench_.Submit(request);
  bench_.Drain();
  const auto end = std::find(whole.begin(), whole.end(), whole[5]);
  EXPECT_EQ(bench_.Answer(id).tokens, Tokens(whole.begin(), end));
  EXPECT_EQ(bench_.Answer(id).finish, FinishReason::kStop);
  EXPECT_EQ(bench_.Answer(ignores).tokens, whole);
}

TEST_F(EngineTest, ScoresComeWithTokensWhenAskedFor) {
  EngineRequest request = Request(Prompt(10), 5);
  request.top_logprobs = 3;
  const RequestId id = bench_.Submit(request);
  bench_.Drain();
  const GenerationResult& answer = bench_.Answer(id);
  ASSERT_EQ(answer.scores.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_EQ(answer.scores[i].token.token, answer.tokens[i]);
    ASSERT_EQ(answer.scores[i].top.size(), 3u);
    EXPECT_EQ(answer.scores[i].top[0].token, answer.tokens[i]);  // greedy
    EXPECT_EQ(answer.scores[i].top[0].logprob, answer.scores[i].token.logprob);
  }
}

TEST_F(EngineTest, PromptsAreScoredWhateverIsCached) {
  EngineRequest request = Request(Prompt(100), 2);
  request.top_logprobs = 2;
  bench_.Submit(request);
  bench_.Drain();
  request.scores_prompt = true;
  request.answers = 2;
  const RequestId id = bench_.Submit(request);
  bench_.Drain();
  const GenerationResult& answer = bench_.Answer(id);
  ASSERT_EQ(answer.prompt_scores.size(), 99u);
  for (const size_t i : {0u, 15u, 16u, 98u}) {
    EXPECT_EQ(answer.prompt_scores[i].token.token, request.prompt[i + 1]);
    // What the prompt up to there alone says of the next token.
    EngineRequest part = request;
    part.scores_prompt = false;
    part.prompt.resize(i + 1);
    part.max_tokens = 1;
    const RequestId alone = bench_.Submit(part);
    bench_.Drain();
    EXPECT_EQ(answer.prompt_scores[i].top[0].token, bench_.Answer(alone).tokens[0]);
    EXPECT_EQ(answer.prompt_scores[i].top[0].logprob, bench_.Answer(alone).scores[0].token.logprob);
  }
  EXPECT_EQ(bench_.Answer(id, 1).prompt_scores.size(), 99u);
}

TEST_F(EngineTest, LimitsOfTheContextAndOfTheRequest) {
  const int64_t context = bench_.model().context_tokens();
  const RequestId to_the_end = bench_.Submit(Request(Prompt(context - 3), 1'000'000));
  const RequestId nothing = bench_.Submit(Request(Prompt(10), 0));
  bench_.Drain();
  EXPECT_EQ(bench_.Answer(to_the_end).tokens.size(), 3u);
  EXPECT_EQ(bench_.Answer(to_the_end).finish, FinishReason::kLength);
  EXPECT_TRUE(bench_.Answer(nothing).tokens.empty());
}

TEST_F(EngineTest, BadRequestsAreRefused) {
  Engine& engine = bench_.engine();
  const auto code = [&](const EngineRequest& request) {
    return engine.Submit(request, {}).error().code;
  };
  EXPECT_EQ(code(Request({}, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(Request(Prompt(bench_.model().context_tokens()), 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(Request({-1}, 5)), ErrorCode::kInvalidArgument);
  EXPECT_EQ(code(Request({1 << 20}, 5)), ErrorCode::kInvalidArgument);
  EngineRequest request = Request(Prompt(5), 5);
  request.answers = 0;
  EXPECT_EQ(code(request), ErrorCode::kInvalidArgument);
  request.answers = 1;
  request.sampling.top_p = 7;
  EXPECT_EQ(code(request), ErrorCode::kInvalidArgument);
  request = Request(Prompt(5), 5);
  request.pooling = Pooling::kLast;
  request.top_logprobs = 1;
  request.scores_prompt = true;
  EXPECT_EQ(code(request), ErrorCode::kInvalidArgument);
  EXPECT_FALSE(engine.has_work());
}

// Rows of another model's extents would be written where there is no room for them.
TEST_F(EngineTest, CachesOfOtherExtentsAreRefused) {
  KvPool pool({.budget_bytes = size_t{16} << 20});
  const auto refused = [&](const std::function<void(KvCacheSpec&)>& change) {
    auto spec = std::make_shared<KvCacheSpec>(bench_.spec());
    change(*spec);
    const auto engine = Engine::Create({.model = &bench_.model(),
                                        .pool = &pool,
                                        .spec = spec,
                                        .vocabulary = {.sampleable_tokens = 1}});
    const auto sequence = CachedSequence::Create(&bench_.model(), &pool, spec);
    EXPECT_EQ(engine.ok(), sequence.ok());
    return engine.ok() ? "" : engine.error().message;
  };
  EXPECT_EQ(refused([](KvCacheSpec&) {}), "");
  EXPECT_NE(refused([](KvCacheSpec& spec) { spec.layers.pop_back(); }).find("layers"),
            std::string::npos);
  EXPECT_NE(refused([](KvCacheSpec& spec) { spec.layers[1].layout.kv_heads += 1; }).find("layer 1"),
            std::string::npos);
  EXPECT_NE(refused([](KvCacheSpec& spec) { spec.layers[0].layout.value_dim *= 2; }).find("value"),
            std::string::npos);
}

// The head of a padded vocabulary has rows that no token names.
TEST_F(EngineTest, OnlyTokensWithNamesAreScored) {
  const int64_t vocab_size = bench_.model().vocab_size();
  KvPool pool({.budget_bytes = size_t{16} << 20});
  EngineParts parts = {.model = &bench_.model(),
                       .pool = &pool,
                       .spec = std::make_shared<const KvCacheSpec>(bench_.spec()),
                       .vocabulary = {.sampleable_tokens = vocab_size - 8}};
  const auto engine = ValueOrDie(Engine::Create(parts));
  EngineRequest request = Request({static_cast<Token>(vocab_size - 1), 2, 3}, 1);
  request.top_logprobs = 1;
  request.scores_prompt = true;
  EXPECT_TRUE(engine->Check(request).ok());  // nobody scores the first
  request.prompt[1] = static_cast<Token>(vocab_size - 8);
  EXPECT_EQ(engine->Check(request).error().code, ErrorCode::kInvalidArgument);
  request.scores_prompt = false;
  EXPECT_TRUE(engine->Check(request).ok());
  for (const int64_t wrong : {int64_t{0}, vocab_size + 1}) {
    parts.vocabulary.sampleable_tokens = wrong;
    EXPECT_EQ(Engine::Create(parts).error().code, ErrorCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kvasir
