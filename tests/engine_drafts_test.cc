// Speculative decoding: whoever drafts whatever, each request is answered as if it were alone and
// undrafted, bit for bit, whatever the cache is made of and however small it is.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/speculative/model_drafter.h"
#include "kvasir/speculative/ngram_drafter.h"
#include "tests/support/engine_bench.h"
#include "tests/support/oracle_drafter.h"

namespace kvasir {
namespace {

std::unique_ptr<OracleDrafter> MakeOracle(Bench& bench, const std::vector<EngineRequest>& requests,
                                          uint32_t wrong) {
  auto oracle = std::make_unique<OracleDrafter>(OracleOptions{.wrong_percent = wrong});
  for (const EngineRequest& request : requests) {
    for (int i = 0; i < request.answers; ++i) {
      oracle->Learn(request.prompt, bench.Alone(request, i));
    }
  }
  return oracle;
}

class EngineDraftsTest : public testing::TestWithParam<TinyPolicy> {};

TEST_P(EngineDraftsTest, EveryAnswerIsThatOfTheRequestAlone) {
  Bench bench(GetParam());
  const auto requests = Mixed(bench.model().vocab_size());
  for (const uint32_t wrong : {0u, 20u, 100u}) {
    bench.Start(size_t{64} << 20, bench.FlatCosts());
    bench.engine().UseDrafter(MakeOracle(bench, requests, wrong));
    std::vector<RequestId> ids;
    for (const EngineRequest& request : requests) {
      ids.push_back(bench.Submit(request));
      bench.engine().Step();
    }
    bench.Drain();
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(bench.Answer(ids[i]).tokens, bench.Alone(requests[i])) << i << " wrong " << wrong;
    }
    const EngineStats stats = bench.engine().Stats();
    EXPECT_GT(stats.drafted_tokens, wrong == 100 ? 0 : 20);
    if (wrong == 0) {
      EXPECT_GT(stats.accepted_drafts, stats.drafted_tokens / 2);
    }
    if (wrong == 100) {
      EXPECT_EQ(stats.accepted_drafts, 0);
    }
    bench.engine().prefix_tree().Clear();
    EXPECT_EQ(bench.pool().used_bytes(), 0u);
  }
}

TEST_P(EngineDraftsTest, AnswersAreRightWhenEvictionAndPreemptionNeverStop) {
  Bench bench(GetParam());
  auto requests = Mixed(bench.model().vocab_size());
  requests[2].answers = 3;
  size_t largest = 0;
  for (const EngineRequest& request : requests) {
    largest =
        std::max(largest, bench.spec().BytesAt(static_cast<Position>(request.prompt.size()) + 64));
  }
  bench.Start(3 * largest, bench.FlatCosts());
  bench.engine().UseDrafter(MakeOracle(bench, requests, 15));
  std::vector<RequestId> ids;
  std::vector<RequestId> cancelled;
  for (int round = 0; round < 2; ++round) {
    for (const EngineRequest& request : requests) {
      ids.push_back(bench.Submit(request));
      cancelled.push_back(bench.Submit(request));
      bench.engine().Step();
      if (cancelled.size() > 2) bench.engine().Cancel(cancelled[cancelled.size() - 3]);
    }
  }
  bench.Drain();
  for (size_t i = 0; i < ids.size(); ++i) {
    const EngineRequest& request = requests[i % requests.size()];
    for (int answer = 0; answer < request.answers; ++answer) {
      EXPECT_EQ(bench.Answer(ids[i], answer).tokens, bench.Alone(request, answer)) << i;
    }
  }
  // The states behind drafts may find no room in so little.
  const bool has_states = bench.spec().HasRecurrentLayers();
  EXPECT_GE(bench.engine().Stats().accepted_drafts, has_states ? 0 : 1);
  bench.engine().prefix_tree().Clear();
  EXPECT_EQ(bench.pool().used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, EngineDraftsTest, testing::ValuesIn(EnginePolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

class DraftsTest : public testing::Test {
 protected:
  DraftsTest() : bench_({"full_f32", kTinyFull, "f32", "f32"}) {}
  void Start(uint32_t wrong = 0) {
    bench_.Start(size_t{64} << 20, bench_.FlatCosts());
    bench_.engine().UseDrafter(MakeOracle(bench_, {request_}, wrong));
  }
  GenerationResult Run(const EngineRequest& request) {
    const RequestId id = bench_.Submit(request);
    bench_.Drain();
    return bench_.Answer(id);
  }

  Bench bench_;
  EngineRequest request_ = Request(RandomTokens(40, bench_.model().vocab_size(), 5), 30);
};

TEST_F(DraftsTest, RightDraftsSaveSteps) {
  Start();
  const GenerationResult result = Run(request_);
  EXPECT_EQ(result.tokens, bench_.Alone(request_));
  EXPECT_LT(bench_.engine().Stats().steps, 15);
  EXPECT_GT(result.stats.accepted_drafts, 15);
  EXPECT_EQ(result.stats.generated_tokens, 30);
}

TEST_F(DraftsTest, ARequestMayDoWithout) {
  Start();
  request_.max_drafts = 0;
  EXPECT_EQ(Run(request_).stats.drafted_tokens, 0);
  request_.max_drafts = 2;
  const GenerationResult result = Run(request_);
  EXPECT_GT(result.stats.drafted_tokens, 0);
  EXPECT_EQ(result.tokens, bench_.Alone(request_));
}

// The end token is not in the cache, nor is what was drafted behind it.
TEST_F(DraftsTest, AnEndWithinTheAcceptedDraftsEndsThere) {
  const Tokens whole = bench_.Alone(request_);
  for (size_t end = 1; end < 20; ++end) {
    const Token stop = whole[end];
    if (std::find(whole.begin(), whole.begin() + static_cast<int64_t>(end), stop) !=
        whole.begin() + static_cast<int64_t>(end)) {
      continue;
    }
    Start();
    EngineRequest request = request_;
    request.stop_tokens = {stop};
    const GenerationResult result = Run(request);
    const Tokens said(whole.begin(), whole.begin() + static_cast<int64_t>(end));
    EXPECT_EQ(result.tokens, said);
    EXPECT_EQ(result.finish, FinishReason::kStop);
    // The next turn goes on from exactly what was said.
    EngineRequest next = Request(request.prompt, 5);
    next.prompt.insert(next.prompt.end(), said.begin(), said.end());
    next.prompt.push_back((stop + 1) % 40);
    const GenerationResult answer = Run(next);
    EXPECT_EQ(answer.tokens, bench_.Alone(next));
    EXPECT_GE(answer.stats.cached_tokens, static_cast<int64_t>(next.prompt.size()) - 2);
    EXPECT_LE(answer.stats.known_prefix_tokens, static_cast<int64_t>(next.prompt.size()) - 1);
  }
}

TEST_F(DraftsTest, ScoresAreThoseOfPlainDecoding) {
  request_.top_logprobs = 2;
  bench_.Start();
  const GenerationResult plain = Run(request_);
  Start(10);
  const GenerationResult drafted = Run(request_);
  ASSERT_EQ(plain.scores.size(), drafted.scores.size());
  for (size_t i = 0; i < plain.scores.size(); ++i) {
    EXPECT_EQ(plain.scores[i].token.token, drafted.scores[i].token.token);
    EXPECT_EQ(plain.scores[i].token.logprob, drafted.scores[i].token.logprob);
    ASSERT_EQ(plain.scores[i].top.size(), drafted.scores[i].top.size());
    EXPECT_EQ(plain.scores[i].top[1].logprob, drafted.scores[i].top[1].logprob);
  }
  EXPECT_GT(drafted.stats.accepted_drafts, 0);
}

TEST_F(DraftsTest, TheSameQuestionAgainIsDraftedFromTheFirstAnswer) {
  bench_.Start(size_t{64} << 20, bench_.FlatCosts());
  bench_.engine().UseDrafter(
      std::make_unique<NgramDrafter>(NgramOptions{}, &bench_.engine().prefix_tree()));
  const GenerationResult first = Run(request_);
  const int64_t steps = bench_.engine().Stats().steps;
  const GenerationResult second = Run(request_);
  EXPECT_EQ(second.tokens, first.tokens);
  EXPECT_LT(bench_.engine().Stats().steps - steps, 6);
  EngineRequest stranger = request_;
  stranger.salt = 9;
  EXPECT_EQ(Run(stranger).tokens, first.tokens);
}

TEST_F(DraftsTest, TheModelItselfDraftsWhatItSays) {
  for (const uint64_t seed : {0, 3}) {
    TinyModel draft({.folder = kTinyFull});
    const auto spec =
        std::make_shared<const KvCacheSpec>(draft.model().CacheSpec({KvCodec::Kind::kF32}));
    bench_.Start(size_t{64} << 20, bench_.FlatCosts());
    bench_.engine().UseDrafter(ValueOrDie(
        ModelDrafter::Create({&draft.model(), &draft.pool(), spec, draft.model().vocab_size()})));
    request_ = Request(request_.prompt, 40, seed);
    const GenerationResult result = Run(request_);
    EXPECT_EQ(result.tokens, bench_.Alone(request_));
    EXPECT_EQ(result.stats.accepted_drafts, result.stats.drafted_tokens);
    EXPECT_GT(result.stats.accepted_drafts, 20);
    bench_.Start();  // the drafter goes before its pool
  }
}

}  // namespace
}  // namespace kvasir
