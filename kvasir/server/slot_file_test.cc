// Slots in files while the engine goes on: what others hear meanwhile, and what is left when one is
// not finished. What happens between two blocks is made to happen where the service asks whether
// anybody still wants the file.
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <barrier>
#include <csignal>
#include <filesystem>
#include <functional>
#include <future>
#include <iterator>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "kvasir/server/engine_service.h"
#include "kvasir/server/test_model.h"
#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

class PromiseSink final : public CompletionSink {
 public:
  explicit PromiseSink(std::promise<GenerationResult> result) : result_(std::move(result)) {}

  bool is_cancelled() const override { return false; }
  bool is_paused() const override { return false; }
  void OnPrompt(size_t, const PromptProgress&) override {}
  void OnToken(size_t, const TokenScores*) override {}
  void OnText(size_t, std::string_view) override {}
  void OnChoiceEnd(size_t, GenerationResult result) override { last_ = std::move(result); }
  void OnChoiceFailure(size_t, const GenerationStats&) override {}
  void OnEnd(const Status& status) override {
    EXPECT_TRUE(status.ok()) << status.error().message;
    result_.set_value(std::move(last_));
  }

 private:
  std::promise<GenerationResult> result_;
  GenerationResult last_;
};

class SlotFileTest : public testing::Test {
 protected:
  static constexpr int64_t kPrompt = 300;

  SlotFileTest() {
    std::filesystem::create_directory(model_);
    std::filesystem::create_directory(files_);
    EXPECT_TRUE(WriteTestModel(model_).ok());
    Start(size_t{64} << 20);
  }
  ~SlotFileTest() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  void Start(size_t budget_bytes) {
    service_.reset();
    BundleOptions options;
    options.backend.threads = 1;
    options.kv_budget_bytes = budget_bytes;
    bundle_ = ValueOrDie(ModelBundle::Load(model_, options));
    service_ = ValueOrDie(EngineService::Start(bundle_.get(), {.engine = {.max_streams = 4}}));
  }
  GenerationResult Answer(uint64_t seed, int64_t slot, int64_t prompt_tokens = kPrompt) {
    return AnswerTo(RandomTokens(prompt_tokens, 256, seed), slot);
  }
  GenerationResult AnswerTo(std::vector<Token> prompt, int64_t slot) {
    CompletionRequest request;
    request.prompts = {std::move(prompt)};
    request.generation.max_tokens = 8;
    request.generation.ignore_stop_tokens = true;
    request.slot = slot;
    std::promise<GenerationResult> promise;
    auto result = promise.get_future();
    request.sink = std::make_unique<PromiseSink>(std::move(promise));
    service_->Submit(std::move(request));
    return result.get();
  }
  // Calls `between` once, between the first two blocks.
  SlotFile File(std::function<void()> between = {}) const {
    return {path_, [between, calls = 0]() mutable {
              if (++calls == 2 && between) between();
              return false;
            }};
  }
  ErrorCode CodeOf(const Result<PrefixCacheFileStats>& result) const {
    EXPECT_FALSE(result.ok());
    return result.ok() ? ErrorCode::kInvalidArgument : result.error().code;
  }
  // What another process finds in the file, of the conversation that began with this seed.
  void ExpectFileHas(uint64_t seed) {
    const GenerationResult cold = Answer(seed, 3);
    Start(size_t{64} << 20);
    const auto loaded = service_->LoadSlot({.number = 0}, File());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->tokens, kPrompt + 7);
    const GenerationResult warm = Answer(seed, 1);
    EXPECT_EQ(warm.stats.cached_tokens, kPrompt - 1);
    EXPECT_EQ(warm.tokens, cold.tokens);
  }
  // Another model's weights, of 256 tokens, for the next start.
  void UseWeightsOf(const std::string& name) {
    std::filesystem::remove(model_ + "/model.safetensors");
    for (const auto& file : std::filesystem::directory_iterator(TinyModel::Folder(name))) {
      const std::string file_name = file.path().filename().string();
      if (file_name != "config.json" && file_name.find(".safetensors") == std::string::npos)
        continue;
      std::filesystem::copy(file.path(), model_ + "/" + file_name,
                            std::filesystem::copy_options::overwrite_existing);
    }
  }
  int64_t FilesLeft() const {
    return std::distance(std::filesystem::directory_iterator(files_), {});
  }

  static std::string NewFolder() {
    std::string folder = testing::TempDir() + "kvasir-slots-XXXXXX";
    EXPECT_NE(mkdtemp(folder.data()), nullptr);
    return folder;
  }

  const std::string folder_ = NewFolder();
  const std::string model_ = folder_ + "/model";  // for all starts: files name what they belong to
  const std::string files_ = folder_ + "/files";
  const std::string path_ = files_ + "/talk.kv";
  std::unique_ptr<ModelBundle> bundle_;
  std::unique_ptr<EngineService> service_;
};

TEST_F(SlotFileTest, OthersAreAnsweredMeanwhile) {
  (void)Answer(1, 0);
  bool is_answered = false;
  // Also one that goes on with what is being written.
  const auto between = [&] {
    EXPECT_EQ(Answer(1, 2).stats.cached_tokens, kPrompt - 1);
    EXPECT_EQ(Answer(2, 2).stats.cached_tokens, 0);
    is_answered = true;
  };
  ASSERT_TRUE(service_->SaveSlot({.number = 0}, File(between)).ok());
  EXPECT_TRUE(std::exchange(is_answered, false));
  ExpectFileHas(1);

  Start(size_t{64} << 20);
  // What is not complete is not found.
  const auto between_loads = [&] {
    EXPECT_EQ(Answer(1, 2).stats.cached_tokens, 0);
    is_answered = true;
  };
  ASSERT_TRUE(service_->LoadSlot({.number = 0}, File(between_loads)).ok());
  EXPECT_TRUE(is_answered);
}

// The next turn of a template that leaves thoughts out parts from the conversation before its end.
TEST_F(SlotFileTest, AConversationIsGoneOnWithFromBeforeItsEnd) {
  for (const char* name : {"transformers_qwen3_5_bf16", "transformers_gemma3_sharded_bf16"}) {
    SCOPED_TRACE(name);
    UseWeightsOf(name);
    Start(size_t{64} << 20);
    Answer(1, 0);
    ASSERT_TRUE(service_->SaveSlot({.number = 0}, File()).ok());
    const auto answers = [&] {
      std::vector<GenerationResult> results;
      for (const size_t parts_at : {299, 290}) {
        std::vector<Token> prompt = RandomTokens(kPrompt, 256, 1);
        prompt.resize(parts_at);
        const std::vector<Token> more = RandomTokens(40, 256, parts_at);
        prompt.insert(prompt.end(), more.begin(), more.end());
        results.push_back(AnswerTo(std::move(prompt), 1));
      }
      return results;
    };
    const std::vector<GenerationResult> before = answers();
    Start(size_t{64} << 20);
    const auto loaded = service_->LoadSlot({.number = 0}, File());
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(loaded->tokens, kPrompt + 7);
    const std::vector<GenerationResult> after = answers();
    for (size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(after[i].tokens, before[i].tokens) << i;
      EXPECT_GT(after[i].stats.cached_tokens, 0) << i;
      EXPECT_EQ(after[i].stats.cached_tokens, before[i].stats.cached_tokens) << i;
    }
  }
}

TEST_F(SlotFileTest, TwoSavesOfOneFileLeaveOneOfThem) {
  (void)Answer(1, 0);
  (void)Answer(2, 1);
  std::barrier both_are_under_way(2);
  const auto meet = [&] { both_are_under_way.arrive_and_wait(); };
  std::vector<std::thread> threads;
  for (const int64_t slot : {0, 1}) {
    threads.emplace_back([&, slot] {
      const auto saved = service_->SaveSlot({.number = slot}, File(meet));
      EXPECT_TRUE(saved.ok()) << saved.error().message;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(FilesLeft(), 1);
  Start(size_t{64} << 20);
  ASSERT_TRUE(service_->LoadSlot({.number = 0}, File()).ok());
  const bool has_first = Answer(1, 1).stats.cached_tokens == kPrompt - 1;
  const bool has_second = Answer(2, 1).stats.cached_tokens == kPrompt - 1;
  EXPECT_NE(has_first, has_second);
}

TEST_F(SlotFileTest, WhoHasGoneLeavesNothing) {
  (void)Answer(1, 0);
  int calls = 0;
  const SlotFile gone = {path_, [&] { return ++calls == 3; }};
  EXPECT_EQ(CodeOf(service_->SaveSlot({.number = 0}, gone)), ErrorCode::kCancelled);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(FilesLeft(), 0);
  ASSERT_TRUE(service_->SaveSlot({.number = 0}, File()).ok());

  Start(size_t{64} << 20);
  calls = 0;
  EXPECT_EQ(CodeOf(service_->LoadSlot({.number = 0}, gone)), ErrorCode::kCancelled);
  EXPECT_EQ(calls, 3);
  EXPECT_EQ(bundle_->pool().used_bytes(), 0u);
  EXPECT_EQ(CodeOf(service_->SaveSlot({.number = 0}, File())), ErrorCode::kFailedPrecondition);
  EXPECT_EQ(Answer(1, 0).stats.cached_tokens, 0);
}

// A write that fails in the middle, as on a full disk. The file that was there stays.
TEST_F(SlotFileTest, AFullDiskLeavesTheOldFile) {
  (void)Answer(1, 0);
  ASSERT_TRUE(service_->SaveSlot({.number = 0}, File()).ok());
  (void)Answer(2, 1);
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto handler = std::signal(SIGXFSZ, SIG_IGN);
  const rlimit small = {10'000, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &small), 0);
  const auto saved = service_->SaveSlot({.number = 1}, File());
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_EQ(CodeOf(saved), ErrorCode::kIo);
  EXPECT_EQ(FilesLeft(), 1);
  ExpectFileHas(1);
}

TEST_F(SlotFileTest, FilesEndWithTheService) {
  (void)Answer(1, 0);
  // Within the grace they may be finished.
  const auto saved =
      service_->SaveSlot({.number = 0}, File([&] { service_->Stop(std::chrono::hours(1)); }));
  EXPECT_TRUE(saved.ok());
  EXPECT_EQ(FilesLeft(), 1);
  EXPECT_EQ(CodeOf(service_->SaveSlot({.number = 0}, File())), ErrorCode::kCancelled);

  const auto stop_now = [&] { service_->Stop(std::chrono::milliseconds(0)); };
  Start(size_t{64} << 20);
  EXPECT_EQ(CodeOf(service_->LoadSlot({.number = 0}, File(stop_now))), ErrorCode::kCancelled);
  Start(size_t{64} << 20);
  (void)Answer(1, 0);
  std::filesystem::remove(path_);
  EXPECT_EQ(CodeOf(service_->SaveSlot({.number = 0}, File(stop_now))), ErrorCode::kCancelled);
  EXPECT_EQ(FilesLeft(), 0);
}

// Answers come first: what is being written or read is given up for one that needs its memory.
TEST_F(SlotFileTest, AnswersThatNeedTheMemoryGetIt) {
  (void)Answer(1, 0);
  ASSERT_TRUE(service_->SaveSlot({.number = 0}, File()).ok());
  const int64_t large = 900;
  const size_t room = bundle_->cache_spec()->BytesAt(large + 64);
  const std::vector<Token> wanted = Answer(2, 1, large).tokens;

  Start(room);
  (void)Answer(1, 0);
  std::vector<Token> answer;
  const auto need_all = [&] { answer = Answer(2, 1, large).tokens; };
  EXPECT_EQ(CodeOf(service_->SaveSlot({.number = 0}, File(need_all))),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(answer, wanted);
  EXPECT_EQ(FilesLeft(), 1);

  Start(room);
  answer.clear();
  EXPECT_EQ(CodeOf(service_->LoadSlot({.number = 0}, File(need_all))),
            ErrorCode::kResourceExhausted);
  EXPECT_EQ(answer, wanted);
  // And a file is read into the room of what is only cached.
  const auto loaded = service_->LoadSlot({.number = 0}, File());
  ASSERT_TRUE(loaded.ok()) << loaded.error().message;
  EXPECT_EQ(Answer(1, 0).stats.cached_tokens, kPrompt - 1);
}

}  // namespace
}  // namespace kvasir
