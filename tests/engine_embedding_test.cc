// Embeddings: whatever else runs, is cached or is preempted, a text's embedding has the bits of its
// hidden states evaluated alone, one token at a time.
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <vector>

#include "kvasir/engine/engine.h"
#include "tests/support/tiny_model.h"
#include "tests/support/tiny_policies.h"

namespace kvasir {
namespace {

struct EmbeddingCase {
  const char* folder;
  Pooling pooling;
};

class EngineEmbeddingTest : public testing::TestWithParam<EmbeddingCase> {
 protected:
  EngineEmbeddingTest()
      : tiny_({.folder = GetParam().folder}),
        spec_(std::make_shared<const KvCacheSpec>(tiny_.model().CacheSpec({}))) {}

  void Start(size_t budget_bytes, SchedulerOptions scheduler = {64, 32}) {
    engine_.reset();
    results_.clear();
    pool_ = std::make_unique<KvPool>(
        KvPoolOptions{.budget_bytes = budget_bytes, .max_slab_bytes = size_t{4} << 10});
    engine_ =
        ValueOrDie(Engine::Create({.model = &tiny_.model(),
                                   .pool = pool_.get(),
                                   .spec = spec_,
                                   .vocabulary = {.sampleable_tokens = tiny_.model().vocab_size()}},
                                  {.scheduler = scheduler}));
  }
  size_t Submit(EngineRequest request) {
    const size_t index = submitted_++;
    EngineCallbacks callbacks;
    callbacks.on_finish = [this, index](EngineResult result) {
      EXPECT_TRUE(result.status.ok()) << result.status.error().message;
      results_[index] = std::move(result.answers.at(0));
    };
    ValueOrDie(engine_->Submit(std::move(request), std::move(callbacks)));
    return index;
  }
  EngineRequest Embedding(std::vector<Token> prompt) {
    EngineRequest request;
    request.prompt = std::move(prompt);
    request.pooling = GetParam().pooling;
    return request;
  }
  EngineRequest Answer(std::vector<Token> prompt) {
    EngineRequest request;
    request.prompt = std::move(prompt);
    request.max_tokens = 40;
    return request;
  }
  void Drain() {
    for (int steps = 0; engine_->Step(); ++steps) ASSERT_LT(steps, 100'000);
  }
  std::vector<Token> Text(int64_t count, uint64_t seed) {
    return RandomTokens(count, tiny_.model().vocab_size(), seed);
  }
  std::vector<float> Alone(const std::vector<Token>& prompt) {
    KvPool pool({.budget_bytes = size_t{64} << 20});
    KvSequence own = ValueOrDie(KvSequence::Create(&pool, spec_));
    HiddenPool states(GetParam().pooling);
    for (size_t i = 0; i < prompt.size(); ++i) {
      const SequenceRun run = {&own, std::span(prompt).subspan(i, 1), 0, 1};
      ValueOrDie(tiny_.model().Forward(std::span(&run, 1), tiny_.workspace()));
      states.Add(static_cast<Position>(i), tiny_.workspace().HiddenStates());
    }
    return states.Embedding();
  }

  TinyModel tiny_;
  std::shared_ptr<const KvCacheSpec> spec_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<Engine> engine_;
  std::map<size_t, GenerationResult> results_;
  size_t submitted_ = 0;
};

TEST_P(EngineEmbeddingTest, AnyBatchEqualsAlone) {
  Start(size_t{64} << 20);
  std::map<size_t, std::vector<Token>> texts;
  for (uint64_t i = 0; i < 6; ++i) {
    const auto text = Text(1 + 47 * static_cast<int64_t>(i), i);
    texts[Submit(Embedding(text))] = text;
    Submit(Answer(Text(30 + 20 * static_cast<int64_t>(i), 100 + i)));
    engine_->Step();
  }
  Drain();
  for (const auto& [index, text] : texts) {
    const GenerationResult& result = results_.at(index);
    EXPECT_EQ(result.embedding, Alone(text)) << text.size() << " tokens";
    EXPECT_EQ(result.stats.prompt_tokens, static_cast<int64_t>(text.size()));
    EXPECT_EQ(result.stats.generated_tokens, 0);
    EXPECT_TRUE(result.tokens.empty());
  }
}

TEST_P(EngineEmbeddingTest, CachedPrefixesServeTheLastTokenOnly) {
  Start(size_t{64} << 20);
  const auto text = Text(300, 1);
  const size_t answer = Submit(Answer(text));
  Drain();
  const size_t embedding = Submit(Embedding(text));
  Drain();
  EXPECT_EQ(results_.at(embedding).embedding, Alone(text));
  const bool is_mean = GetParam().pooling == Pooling::kMean;
  EXPECT_EQ(results_.at(embedding).stats.cached_tokens == 0, is_mean);
  // And the answer is the same with what the embedding may have left behind.
  const size_t again = Submit(Answer(text));
  Drain();
  EXPECT_EQ(results_.at(again).tokens, results_.at(answer).tokens);
}

TEST_P(EngineEmbeddingTest, PreemptedEqualsAlone) {
  // The text is read slowly beside an answer that goes first and grows: both fit when they are
  // admitted (a block more than they know) and not when the answer has grown by more.
  Start(spec_->BytesAt(100 + 64) + spec_->BytesAt(300 + 64), {16, 2});
  EngineRequest answer = Answer(Text(100, 50));
  answer.max_tokens = 250;
  answer.priority = 1;
  Submit(answer);
  const auto text = Text(300, 1);
  const size_t embedding = Submit(Embedding(text));
  Drain();
  // Windows do not grow.
  if (GetParam().folder == kTinyFull) {
    EXPECT_GT(engine_->Stats().preemptions, 0);
  }
  EXPECT_EQ(results_.at(embedding).embedding, Alone(text));
}

TEST_P(EngineEmbeddingTest, SeveralAnswersAreRefused) {
  Start(size_t{64} << 20);
  EngineRequest request = Embedding(Text(3, 1));
  request.answers = 2;
  EXPECT_EQ(engine_->Submit(request, {}).error().code, ErrorCode::kInvalidArgument);
}

INSTANTIATE_TEST_SUITE_P(Models, EngineEmbeddingTest,
                         testing::Values(EmbeddingCase{kTinyFull, Pooling::kMean},
                                         EmbeddingCase{kTinyFull, Pooling::kLast},
                                         EmbeddingCase{kTinyWindows, Pooling::kMean},
                                         EmbeddingCase{kTinyWindows, Pooling::kLast},
                                         EmbeddingCase{kTinyStates, Pooling::kMean},
                                         EmbeddingCase{kTinyStates, Pooling::kLast}),
                         [](const auto& info) {
                           return std::string(info.param.folder) +
                                  (info.param.pooling == Pooling::kMean ? "_mean" : "_last");
                         });

}  // namespace
}  // namespace kvasir
