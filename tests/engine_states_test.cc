// Recurrent layers in the engine: which states are kept, found again, and given up.
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/engine_bench.h"

namespace kvasir {
namespace {

Tokens RandomPrompt(int64_t tokens, uint64_t seed = 1) { return RandomTokens(tokens, 256, seed); }

// States are kept where prompts are gone on with: also behind recent copies, for which runs are
// cut.
TEST(EngineStatesTest, StatesAreFoundWherePromptsPart) {
  for (const TinyPolicy& policy :
       {TinyPolicy{"states", kTinyStates, "f32", "f32"},
        TinyPolicy{"tails", kTinyStates, "affine4:32", "turbo4", "", 0, 64}}) {
    SCOPED_TRACE(policy.name);
    Bench bench(policy);
    bench.Start();
    const auto cached = [&](const Tokens& prompt) {
      const EngineRequest request = Request(prompt, 3);
      const RequestId id = bench.Submit(request);
      bench.Drain();
      EXPECT_EQ(bench.Answer(id).tokens, bench.Alone(request));
      return bench.Answer(id).stats.cached_tokens;
    };
    const auto with_end = [&](Tokens prompt, size_t end, uint64_t seed) {
      prompt.resize(end);
      const Tokens more = RandomPrompt(50, seed);
      prompt.insert(prompt.end(), more.begin(), more.end());
      return prompt;
    };
    // The next turn parts from this one a few tokens before the answer.
    const Tokens turn = RandomPrompt(200);
    EXPECT_EQ(cached(turn), 0);
    EXPECT_EQ(cached(with_end(turn, 195, 2)), 128);
    // Of requests that begin alike the second learns where they part.
    const Tokens shared = RandomPrompt(300, 3);
    EXPECT_EQ(cached(with_end(shared, 300, 4)), 0);
    EXPECT_LT(cached(with_end(shared, 300, 5)), 300);
    EXPECT_EQ(cached(with_end(shared, 300, 6)), 300);
    EXPECT_EQ(cached(with_end(shared, 300, 7)), 300);
  }
}

// What is kept for others fails nobody.
TEST(EngineStatesTest, StatesAreNotKeptWhereThereIsNoRoom) {
  const TinyPolicy policy = {"states", kTinyStates, "affine4:32", "affine4:32"};
  for (const int64_t spare : {0, 8, 16, 40}) {
    for (const size_t shared : {0, 64, 70}) {
      Bench bench(policy);
      const Tokens first = RandomPrompt(100);
      Tokens second = RandomPrompt(420, 2);
      std::copy_n(first.begin(), shared, second.begin());
      bench.Start(bench.spec().BytesAt(430) + static_cast<size_t>(spare << 10),
                  {.scheduler = {64, 64}});
      bench.Submit(Request(first, 2));
      bench.Drain();
      const EngineRequest request = Request(second, 4);
      const RequestId id = bench.Submit(request);
      bench.Drain();
      ASSERT_TRUE(bench.ResultOf(id).status.ok()) << bench.ResultOf(id).status.error().message;
      EXPECT_EQ(bench.Answer(id).tokens, bench.Alone(request)) << spare << " " << shared;
    }
  }
}

// Of a conversation the states of earlier turns go before its end.
TEST(EngineStatesTest, StatesOfEarlierTurnsAreEvictedFirst) {
  Bench bench({"states", kTinyStates, "f32", "f32"});
  bench.Start();
  Tokens known = RandomPrompt(150);
  for (uint64_t turn = 0; turn < 4; ++turn) {
    const RequestId id = bench.Submit(Request(known, 20));
    bench.Drain();
    const Tokens& answer = bench.Answer(id).tokens;
    known.insert(known.end(), answer.begin(), answer.end());
    const Tokens more = RandomPrompt(100, 10 + turn);
    known.insert(known.end(), more.begin(), more.end());
  }
  PrefixTree& tree = bench.engine().prefix_tree();
  const auto states = [&] {
    std::vector<int64_t> found;
    for (auto at = static_cast<int64_t>(known.size()); at > 0; --at) {
      at = tree.LookForTokens(0, known, at);
      if (at > 0) found.push_back(at);
    }
    return found;  // descending
  };
  std::vector<int64_t> left = states();
  ASSERT_GT(left.size(), 8u);
  const int64_t end = left.front();
  while (left.size() > 2) {
    ASSERT_GT(tree.Evict(1), 0u);
    const std::vector<int64_t> now = states();
    ASSERT_LT(now.size(), left.size());
    EXPECT_EQ(now.front(), end);
    EXPECT_LE(left.back(), now.back());
    left = now;
  }
  // The first turn's went, the last one's are there.
  EXPECT_GT(left.back(), 400);
}

}  // namespace
}  // namespace kvasir
