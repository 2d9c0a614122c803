// Requests that fill the cache: how far they come depends on themselves alone.
#include <gtest/gtest.h>

#include "tests/support/engine_bench.h"
#include "tests/support/oracle_drafter.h"
#include "tests/support/tiny_assistant.h"

namespace kvasir {
namespace {

class FullCacheTest : public testing::Test {
 protected:
  FullCacheTest() : bench_({"full_f32", kTinyFull, "f32", "f32"}) {}

  Tokens Prompt(int64_t tokens) { return RandomTokens(tokens, bench_.model().vocab_size(), 1); }

  Bench bench_;
};

// The cache of the prompt's own beginning would be copied to go on from it.
TEST_F(FullCacheTest, AnAnswerMayTakeAllOfIt) {
  bench_.Start(bench_.spec().BytesAt(128));
  const EngineRequest request = Request(Prompt(100), 28);
  const RequestId id = bench_.Submit(request);
  bench_.Drain();
  EXPECT_EQ(bench_.Answer(id).tokens, bench_.Alone(request));
}

TEST_F(FullCacheTest, APromptMayTakeAllOfItWhateverIsCached) {
  for (const int64_t tokens : {128, 192}) {
    bench_.Start(bench_.spec().BytesAt(tokens));
    const EngineRequest request = Request(Prompt(tokens), 1);
    EngineRequest before = request;
    before.prompt.resize(static_cast<size_t>(tokens - 28));
    before.prompt[static_cast<size_t>(tokens - 38)] ^= 1;
    bench_.Submit(before);
    bench_.Drain();
    const RequestId id = bench_.Submit(request);
    bench_.Drain();
    EXPECT_EQ(bench_.Answer(id).tokens, bench_.Alone(request)) << tokens;
  }
}

// Several answers of which one does not fit alone: it ends there, and the others at theirs.
TEST_F(FullCacheTest, AnswersOfOneRequestEndEachAtItsOwnLimit) {
  bench_.Start(bench_.spec().BytesAt(128));
  EngineRequest request = Request(Prompt(100), 60, 7);
  request.answers = 3;
  std::map<int, GenerationResult> ended;
  EngineCallbacks callbacks;
  callbacks.on_answer_end = [&](int answer, const Status& status, GenerationResult result) {
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kResourceExhausted);
    EXPECT_TRUE(ended.emplace(answer, std::move(result)).second);
  };
  const RequestId id = bench_.Submit(request, callbacks);
  bench_.Drain();
  EXPECT_FALSE(bench_.ResultOf(id).status.ok());
  EXPECT_TRUE(bench_.ResultOf(id).answers.empty());
  ASSERT_EQ(ended.size(), 3u);
  for (const auto& [answer, result] : ended) {
    EXPECT_EQ(result.finish, FinishReason::kLength);
    Tokens alone = bench_.Alone(request, answer);
    alone.resize(29);
    EXPECT_EQ(result.tokens, alone) << answer;
  }
}

// What one answer ended with is not what the others did.
TEST_F(FullCacheTest, AnErrorOfOneAnswerIsItsOwn) {
  bench_.Start(bench_.spec().BytesAt(192));
  EngineRequest request = Request(Prompt(100), 150, 7);
  request.answers = 2;
  std::map<int, bool> ended;
  EngineCallbacks callbacks;
  callbacks.on_answer_end = [&](int answer, const Status& status, GenerationResult result) {
    ended[answer] = status.ok();
    EXPECT_EQ(result.finish, status.ok() ? FinishReason::kCancelled : FinishReason::kLength);
  };
  const RequestId id = bench_.Submit(request, callbacks);
  while (ended.empty()) ASSERT_TRUE(bench_.engine().Step());
  bench_.engine().Cancel(id);
  ASSERT_EQ(ended.size(), 2u);
  EXPECT_NE(ended[0], ended[1]);
  EXPECT_EQ(bench_.ResultOf(id).status.error().code, ErrorCode::kResourceExhausted);
}

// More answers than there are places: those that wait have chosen their first token, and nothing of
// the prompt is read again for them.
TEST_F(FullCacheTest, AnswersBeyondThePlacesWaitForOne) {
  EngineOptions options;
  options.max_streams = 2;
  bench_.Start(size_t{64} << 20, options);
  EngineRequest request = Request(Prompt(200), 20, 40);
  request.answers = 5;
  int tokens_within_places = 0;
  EngineCallbacks callbacks;
  callbacks.on_token = [&](int, Token, const TokenScores*) {
    if (bench_.engine().Stats().active_streams <= 2) ++tokens_within_places;
  };
  const RequestId id = bench_.Submit(request, callbacks);
  bench_.Drain();
  EXPECT_EQ(tokens_within_places, 5 * 20);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(bench_.Answer(id, i).tokens, bench_.Alone(request, i)) << i;
  EXPECT_EQ(bench_.engine().Stats().evaluated_tokens, 200 + 5 * 19);
}

// A step asks for what evicting rows needs and for new blocks at once; where drafts are verified
// rows are evicted first.
TEST(FullBudgetCacheTest, DraftsChangeNothingAboutHowFarAnAnswerComes) {
  Bench bench(
      {"tova", kTinyFull, "f16", "f16", "budget:64,keep=4,recent=0,interval=64,score=tova"});
  const EngineRequest request = Request(RandomTokens(62, bench.model().vocab_size(), 1), 130);
  bench.Start();
  RequestId id = bench.Submit(request);
  bench.Drain();
  const Tokens whole = bench.Answer(id).tokens;
  const size_t full = bench.spec().BytesAt(128);
  int cut = 0;
  for (size_t budget = full; budget < 3 * full; budget += full / 8) {
    std::vector<size_t> lengths;
    for (const bool is_drafted : {false, true}) {
      bench.Start(budget, bench.FlatCosts());
      if (is_drafted) {
        auto drafter = std::make_unique<OracleDrafter>(OracleOptions{.is_cheap = true});
        drafter->Learn(request.prompt, whole);
        bench.engine().UseDrafter(std::move(drafter));
      }
      id = bench.Submit(request);
      bench.Drain();
      const GenerationResult& answer = bench.ResultOf(id).answers[0];
      EXPECT_EQ(answer.stats.accepted_drafts > 0, is_drafted) << budget;
      lengths.push_back(answer.tokens.size());
    }
    EXPECT_EQ(lengths[0], lengths[1]) << budget;
    cut += lengths[0] < whole.size();
  }
  EXPECT_GT(cut, 0);
}

// As EngineBlocksTest has it, and again while the request starts over: blocks of a file that
// somebody reads take places in both slabs before it does.
TEST(FullBlocksCacheTest, WhoStartsOverMayDoSoAgainWhenOthersTookMemory) {
  Bench bench({"dense_start", kTinyFull, "turbo4", "turbo4", "", 64});
  const EngineRequest request = Request(RandomTokens(60, bench.model().vocab_size(), 1), 140);
  const size_t layers = bench.spec().layers.size();
  const size_t dense = bench.spec().BytesAt(64) / layers;
  bench.Start(bench.spec().BytesAt(200));
  const KvPool::Demand all = {dense, static_cast<int64_t>(2 * layers)};
  const auto take = [&] {
    OrDie(bench.pool().EnsureFree(std::span(&all, 1)));
    std::vector<BlockRef> blocks;
    for (size_t i = 0; i < layers / 2; ++i) blocks.push_back(bench.pool().Take(dense));
    return blocks;
  };
  std::vector<BlockRef> others = take();
  const RequestId id = bench.Submit(request);
  bench.engine().Step();
  others.clear();
  while (bench.engine().Stats().preemptions == 0) ASSERT_TRUE(bench.engine().Step());
  auto lent = std::make_shared<LentBlocks>(take());
  bench.engine().Lend(lent);
  bench.engine().Step();
  lent.reset();
  bench.Drain();
  EXPECT_EQ(bench.Answer(id).tokens, bench.Alone(request));
}

}  // namespace
}  // namespace kvasir
