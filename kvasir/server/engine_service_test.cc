// The engine behind the routes: what a request's fields become, and how one is ended from outside.
#include "kvasir/server/engine_service.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "kvasir/server/test_model.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

// What became of one request.
struct Outcome {
  std::vector<GenerationResult> results;  // as they ended
  std::vector<size_t> choices;            // of them
  PromptProgress progress;
  Status status;
};

class RecordingSink final : public CompletionSink {
 public:
  RecordingSink(std::promise<Outcome> outcome, std::promise<void>* begun)
      : outcome_(std::move(outcome)), begun_(begun) {}

  bool is_cancelled() const override { return false; }
  bool is_paused() const override { return false; }
  void OnPrompt(size_t, const PromptProgress& progress) override { seen_.progress = progress; }
  void OnToken(size_t, const TokenScores*) override {
    if (begun_ != nullptr) std::exchange(begun_, nullptr)->set_value();
  }
  void OnText(size_t, std::string_view) override {}
  void OnChoiceEnd(size_t choice, GenerationResult result) override {
    seen_.choices.push_back(choice);
    seen_.results.push_back(std::move(result));
  }
  void OnChoiceFailure(size_t, const GenerationStats&) override {}
  void OnEnd(const Status& status) override {
    if (!status.ok()) seen_.status = status.error();
    outcome_.set_value(std::move(seen_));
  }

 private:
  std::promise<Outcome> outcome_;
  std::promise<void>* begun_;
  Outcome seen_;
};

class EngineServiceTest : public testing::Test {
 protected:
  EngineServiceTest()
      : bundle_(ValueOrDie(LoadTestModel())),
        service_(ValueOrDie(EngineService::Start(bundle_.get(), {.engine = {.max_streams = 1}}))) {}

  static CompletionRequest Request(int64_t prompt_tokens, int64_t max_tokens) {
    CompletionRequest request;
    request.prompts.resize(1);
    request.prompts[0] = RandomTokens(prompt_tokens, 256, 1);
    request.generation.max_tokens = max_tokens;
    request.generation.ignore_stop_tokens = true;
    return request;
  }
  std::future<Outcome> Submit(CompletionRequest request, CompletionId* id = nullptr,
                              std::promise<void>* begun = nullptr) {
    std::promise<Outcome> outcome;
    auto future = outcome.get_future();
    request.sink = std::make_unique<RecordingSink>(std::move(outcome), begun);
    const CompletionId submitted = service_->Submit(std::move(request));
    if (id != nullptr) *id = submitted;
    return future;
  }

  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<EngineService> service_;
};

TEST_F(EngineServiceTest, SaysWhereThePromptPartedFromTheCache) {
  Submit(Request(100, 1)).get();
  CompletionRequest second = Request(120, 1);
  second.prompts[0][70] ^= 1;
  const Outcome outcome = Submit(std::move(second)).get();
  ASSERT_EQ(outcome.results.size(), 1u);
  EXPECT_EQ(outcome.progress.known_prefix_tokens, 70);
  EXPECT_EQ(outcome.results[0].stats.known_prefix_tokens, 70);
  EXPECT_EQ(outcome.results[0].stats.cached_tokens, 70);
  EXPECT_EQ(outcome.progress.done_tokens, 50);
}

// It fits by its bytes, but for what its last block takes for a moment: nobody need try again.
TEST_F(EngineServiceTest, APromptThatOutgrowsTheCacheAloneIsTheClientsMatter) {
  BundleOptions options;
  options.kv.key_codec = options.kv.value_codec = KvCodec::Affine(4, 64);
  options.kv.dense_recent = 128;
  options.kv.dense_layers = KvPolicy::DenseLayers::kNone;
  const std::string demo = std::string(KVASIR_SOURCE_DIR) + "/models/kvasir-demo";
  options.kv_budget_bytes = size_t{64} << 20;
  options.kv_budget_bytes =
      ValueOrDie(ModelBundle::Load(demo, options))->cache_spec()->BytesAt(5 * kBlockTokens);
  service_.reset();
  bundle_ = ValueOrDie(ModelBundle::Load(demo, options));
  service_ = ValueOrDie(EngineService::Start(bundle_.get(), {}));
  const Outcome outcome = Submit(Request(5 * kBlockTokens, 1)).get();
  ASSERT_FALSE(outcome.status.ok());
  EXPECT_EQ(outcome.status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(outcome.status.error().message.find("does not fit into the cache even alone"),
            std::string::npos);
  EXPECT_EQ(Submit(Request(3 * kBlockTokens, 1)).get().results.size(), 1u);
}

TEST_F(EngineServiceTest, SaltsShareNothing) {
  Submit(Request(100, 1)).get();
  CompletionRequest other = Request(100, 1);
  other.salt = 9;
  const Outcome outcome = Submit(std::move(other)).get();
  EXPECT_EQ(outcome.results.at(0).stats.cached_tokens, 0);
  EXPECT_EQ(outcome.results.at(0).stats.known_prefix_tokens, 0);
}

TEST_F(EngineServiceTest, CancelsWhatRunsAndWhatWaits) {
  std::promise<void> begun;
  CompletionId running = 0, waiting = 0;
  auto first = Submit(Request(10, 4000), &running, &begun);
  auto second = Submit(Request(10, 4000), &waiting);  // there is one stream
  begun.get_future().wait();
  EXPECT_TRUE(service_->Cancel(waiting));
  const Outcome waited = second.get();
  EXPECT_EQ(waited.results.at(0).finish, FinishReason::kCancelled);
  EXPECT_TRUE(waited.results[0].tokens.empty());
  EXPECT_TRUE(service_->Cancel(running));
  EXPECT_EQ(first.get().results.at(0).finish, FinishReason::kCancelled);
  EXPECT_FALSE(service_->Cancel(running));
  EXPECT_FALSE(service_->Cancel(12345));
}

// As the queue, whose limit is one of requests.
TEST_F(EngineServiceTest, WaitingRequestsCountOnce) {
  std::promise<void> begun;
  CompletionId running = 0, waiting = 0;
  auto first = Submit(Request(10, 4000), &running, &begun);
  begun.get_future().wait();
  EXPECT_EQ(service_->status().waiting, 0);
  CompletionRequest many = Request(10, 1);
  many.answers = 5;
  auto second = Submit(std::move(many), &waiting);
  EXPECT_EQ(service_->status().waiting, 1);
  EXPECT_TRUE(service_->Cancel(running));
  EXPECT_EQ(first.get().results.size(), 1u);
  EXPECT_EQ(second.get().results.size(), 5u);
  EXPECT_EQ(service_->status().waiting, 0);
}

// There is one stream: of a request's prompts the engine has one, until that ends the next.
TEST_F(EngineServiceTest, PromptsFollowEachOther) {
  CompletionRequest request = Request(10, 4);
  request.answers = 2;
  request.generation.sampling.temperature = 1;
  request.generation.sampling.seed = 5;
  for (int i = 1; i < 5; ++i) request.prompts.push_back(RandomTokens(10, 256, 1 + i));
  const std::vector<std::vector<Token>> prompts = request.prompts;
  const GenerationRequest generation = request.generation;
  const Outcome outcome = Submit(std::move(request)).get();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error().message;
  ASSERT_EQ(outcome.results.size(), 10u);
  EXPECT_EQ(std::set(outcome.choices.begin(), outcome.choices.end()).size(), 10u);
  for (size_t i = 0; i < outcome.results.size(); ++i) {
    const size_t choice = outcome.choices[i];
    CompletionRequest alone = Request(10, 4);
    alone.prompts[0] = prompts[choice / 2];
    alone.generation = generation;
    alone.generation.sampling.seed += choice % 2;
    EXPECT_EQ(outcome.results[i].tokens, Submit(std::move(alone)).get().results.at(0).tokens);
  }
}

TEST_F(EngineServiceTest, OneImpossiblePromptIsAllThatIsSaid) {
  CompletionRequest request = Request(10, 4);
  request.prompts.push_back({});
  request.prompts.push_back(RandomTokens(10, 256, 2));
  const Outcome outcome = Submit(std::move(request)).get();
  ASSERT_FALSE(outcome.status.ok());
  EXPECT_EQ(outcome.status.error().code, ErrorCode::kInvalidArgument);
  EXPECT_TRUE(outcome.results.empty());
}

TEST_F(EngineServiceTest, PromptsThatHaveNotBegunEndWithTheirRequest) {
  for (const bool is_cancelled : {true, false}) {
    service_ = ValueOrDie(EngineService::Start(bundle_.get(), {.engine = {.max_streams = 1}}));
    std::promise<void> begun;
    CompletionId id = 0;
    CompletionRequest request = Request(10, 4000);
    request.prompts.resize(4, request.prompts[0]);
    auto future = Submit(std::move(request), &id, &begun);
    begun.get_future().wait();
    if (is_cancelled) {
      EXPECT_TRUE(service_->Cancel(id));
    } else {
      service_->Stop(std::chrono::milliseconds(0));
    }
    const Outcome outcome = future.get();
    EXPECT_EQ(outcome.status.ok(), is_cancelled);
    EXPECT_EQ(outcome.results.size(), is_cancelled ? 4u : 0u);
    for (const GenerationResult& result : outcome.results) {
      EXPECT_EQ(result.finish, FinishReason::kCancelled);
    }
  }
}

// What was accepted ends within the grace, all of it.
TEST_F(EngineServiceTest, AcceptedPromptsEndWithinTheGrace) {
  std::promise<void> begun;
  CompletionRequest request = Request(10, 50);
  request.prompts.resize(4, request.prompts[0]);
  auto future = Submit(std::move(request), nullptr, &begun);
  begun.get_future().wait();
  service_->Stop(std::chrono::minutes(5));
  const Outcome outcome = future.get();
  ASSERT_TRUE(outcome.status.ok()) << outcome.status.error().message;
  ASSERT_EQ(outcome.results.size(), 4u);
  for (const GenerationResult& result : outcome.results) EXPECT_EQ(result.tokens.size(), 50u);
}

TEST_F(EngineServiceTest, DeadlinesEndRequests) {
  CompletionRequest request = Request(10, 4000);
  request.deadline = std::chrono::steady_clock::now();
  const Outcome outcome = Submit(std::move(request)).get();
  ASSERT_FALSE(outcome.status.ok());
  EXPECT_EQ(outcome.status.error().code, ErrorCode::kCancelled);
}

}  // namespace
}  // namespace kvasir
