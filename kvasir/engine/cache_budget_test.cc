// How memory is divided, and that what an engine takes stays within its part.
#include "kvasir/engine/cache_budget.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "tests/support/engine_bench.h"

namespace kvasir {
namespace {

TEST(CacheBudgetTest, PartsAddUpAndStepsShrinkToFit) {
  const TinyModel tiny({.folder = kTinyFull});
  int64_t before = 0;
  for (const size_t total : {size_t{20} << 20, size_t{64} << 20, size_t{1} << 30}) {
    const CacheBudget budget = ValueOrDie(
        PlanCacheBudget(tiny.model(), {.total_bytes = total, .step_tokens = 4096, .streams = 16}));
    EXPECT_EQ(budget.block_bytes + budget.scratch_bytes + budget.index_bytes, total);
    EXPECT_LE(budget.scratch_bytes, total / 4 + tiny.model().ScratchBytes(1, 0));
    EXPECT_LE(budget.scratch_bytes, total / 2);
    EXPECT_GE(budget.step_tokens, std::max(before, kLeastStepTokens));
    before = budget.step_tokens;
    EXPECT_NE(budget.Describe().find(std::to_string(budget.step_tokens)), std::string::npos);
  }
  EXPECT_EQ(before, 4096);
}

TEST(CacheBudgetTest, WhatADraftModelHasIsNobodyElses) {
  const TinyModel tiny({.folder = kTinyFull});
  constexpr size_t kTotal = size_t{64} << 20;
  constexpr size_t kDrafts = size_t{24} << 20;
  const CacheBudget with =
      ValueOrDie(PlanCacheBudget(tiny.model(), {.total_bytes = kTotal, .draft_bytes = kDrafts}));
  const CacheBudget without =
      ValueOrDie(PlanCacheBudget(tiny.model(), {.total_bytes = kTotal - kDrafts}));
  EXPECT_EQ(with.total_bytes, kTotal);
  EXPECT_EQ(with.block_bytes, without.block_bytes);
  EXPECT_EQ(with.scratch_bytes, without.scratch_bytes);
  EXPECT_EQ(with.index_bytes, without.index_bytes);
  EXPECT_NE(with.Describe().find("24.0 MiB for the draft model"), std::string::npos);
  EXPECT_EQ(without.Describe().find("draft"), std::string::npos);
  for (const size_t all : {kTotal - 1, kTotal, kTotal + 1}) {
    const auto nothing = PlanCacheBudget(tiny.model(), {.total_bytes = kTotal, .draft_bytes = all});
    ASSERT_FALSE(nothing.ok());
    EXPECT_EQ(nothing.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(nothing.error().message.find("beside the draft model's"), std::string::npos);
  }
}

TEST(CacheBudgetTest, TooLittleIsSaid) {
  const TinyModel tiny({.folder = kTinyFull});
  const auto budget = PlanCacheBudget(tiny.model(), {.total_bytes = 1 << 16});
  ASSERT_FALSE(budget.ok());
  EXPECT_EQ(budget.error().code, ErrorCode::kResourceExhausted);
  EXPECT_NE(budget.error().message.find("give at least"), std::string::npos);
}

TEST(CacheBudgetTest, CountsThatCannotBeAreRefused) {
  const TinyModel tiny({.folder = kTinyFull});
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  for (const CacheBudgetRequest& request :
       {CacheBudgetRequest{.step_tokens = -5}, CacheBudgetRequest{.step_tokens = kMost},
        CacheBudgetRequest{.streams = 0}, CacheBudgetRequest{.streams = kMost}}) {
    CacheBudgetRequest asked = request;
    asked.total_bytes = size_t{1} << 30;
    const auto budget = PlanCacheBudget(tiny.model(), asked);
    ASSERT_FALSE(budget.ok());
    EXPECT_EQ(budget.error().code, ErrorCode::kInvalidArgument);
  }
}

// Whatever was asked for, the shortest steps are tried before there is an error.
TEST(CacheBudgetTest, StepsShrinkToTheLeast) {
  const TinyModel tiny({.folder = kTinyFull});
  const std::string message =
      PlanCacheBudget(tiny.model(), {.total_bytes = 1 << 10, .step_tokens = 16}).error().message;
  const std::string before = "give at least ";
  const size_t least = std::stoull(message.substr(message.find(before) + before.size()));
  for (const int64_t asked : {16, 17, 31, 32, 500}) {
    EXPECT_EQ(
        ValueOrDie(PlanCacheBudget(tiny.model(), {.total_bytes = least, .step_tokens = asked}))
            .step_tokens,
        16);
  }
}

// What is said to be enough is, and a byte less is not; also where threads take most of it.
TEST(CacheBudgetTest, TheLeastThatIsNamedIsTheLeast) {
  for (const int threads : {1, 40}) {
    const TinyModel tiny({.folder = kTinyFull, .threads = threads});
    const std::string message =
        PlanCacheBudget(tiny.model(), {.total_bytes = 1 << 10}).error().message;
    const std::string before = "give at least ";
    const size_t least = std::stoull(message.substr(message.find(before) + before.size()));
    EXPECT_TRUE(PlanCacheBudget(tiny.model(), {.total_bytes = least}).ok()) << message;
    EXPECT_FALSE(PlanCacheBudget(tiny.model(), {.total_bytes = least - 1}).ok()) << message;
  }
}

TEST(CacheBudgetTest, TheDefaultIsHalfOfWhatTheWeightsLeave) {
  constexpr size_t kGiB = size_t{1} << 30;
  EXPECT_EQ(DefaultCacheBytes(10 * kGiB, 2 * kGiB), 4 * kGiB);
  EXPECT_EQ(DefaultCacheBytes(0, 2 * kGiB), kGiB);  // the system does not say
  EXPECT_GT(DefaultCacheBytes(kGiB, 2 * kGiB), 0u);
}

TEST(CacheBudgetTest, AWorkspaceAndTheBackendStayWithinTheScratchOfTheirRows) {
  for (const char* folder : {"public_llama_f32", "transformers_qwen3_moe_bf16", "hf_qwen3_gptq",
                             "transformers_gemma4_experts_bf16", "transformers_gpt_oss_mxfp4",
                             "transformers_qwen3_5_bf16", "transformers_qwen3_5_moe_bf16",
                             "transformers_deepseek_v2_lite_bf16", "mlx_glm4_moe_lite_q4g32_bf16",
                             "transformers_glm4_bf16"}) {
    for (const int threads : {1, 3}) {
      for (const KvCodec::Kind kind : {KvCodec::Kind::kF32, KvCodec::Kind::kF16}) {
        TinyModel tiny({.folder = folder, .threads = threads, .codec = {kind}});
        KvSequence sequence = tiny.NewSequence();
        tiny.Feed(sequence, RandomTokens(300, tiny.model().vocab_size(), 1), {63, 64, 65, 1});
        EXPECT_LE(tiny.workspace().bytes() + tiny.backend().scratch_bytes(),
                  tiny.model().ScratchBytes(65, 65))
            << folder << " " << threads;
      }
    }
  }
}

// Everything that takes rows: long prompts, many answers, scores of several prompts at once.
TEST(CacheBudgetTest, AnEngineStaysWithinItsScratch) {
  for (const char* folder : {kTinyFull, kTinyWindows, kTinyQwen, kTinyStates}) {
    Bench bench({"f32", folder, "f32", "f32"});
    const CacheBudget budget = ValueOrDie(PlanCacheBudget(
        bench.model(), {.total_bytes = size_t{64} << 20, .step_tokens = 200, .streams = 8}));
    bench.Start(budget.block_bytes, {.scheduler = {budget.step_tokens, budget.step_tokens},
                                     .max_streams = 8,
                                     .max_index_bytes = budget.index_bytes});
    for (uint64_t i = 0; i < 8; ++i) {
      EngineRequest request = Request(
          RandomTokens(50 + 60 * static_cast<int64_t>(i), bench.model().vocab_size(), i), 10);
      request.scores_prompt = i % 2 == 0;
      if (request.scores_prompt) request.top_logprobs = 2;
      bench.Submit(request);
    }
    bench.Drain();
    EXPECT_GT(bench.engine().Stats().scratch_bytes, 0u);
    EXPECT_GT(bench.engine().Stats().index_bytes, 0u);
    EXPECT_GT(bench.engine().Stats().scratch_bytes, bench.backend().scratch_bytes());
    EXPECT_LE(bench.engine().Stats().scratch_bytes, budget.scratch_bytes) << folder;
    EXPECT_LE(bench.engine().Stats().index_bytes, budget.index_bytes) << folder;
  }
}

}  // namespace
}  // namespace kvasir
