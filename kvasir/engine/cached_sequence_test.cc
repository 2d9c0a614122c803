#include "kvasir/engine/cached_sequence.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

class CachedSequenceTest : public testing::TestWithParam<std::string> {
 protected:
  CachedSequenceTest() : tiny_({.folder = GetParam()}) {}

  CachedSequence New() {
    return ValueOrDie(CachedSequence::Create(&tiny_.model(), &tiny_.pool(), Spec()));
  }
  std::shared_ptr<const KvCacheSpec> Spec() {
    const KvCodec f32 = {KvCodec::Kind::kF32};
    return std::make_shared<const KvCacheSpec>(tiny_.model().CacheSpec(f32));
  }
  std::vector<float> Evaluate(CachedSequence& sequence, std::span<const Token> tokens) {
    const auto logits = ValueOrDie(sequence.Evaluate(tokens, tiny_.workspace()));
    return {logits.begin(), logits.end()};
  }
  std::vector<float> Fresh(const std::vector<Token>& prompt) {
    CachedSequence sequence = New();
    return Evaluate(sequence, prompt);
  }

  TinyModel tiny_;
};

TEST_P(CachedSequenceTest, HitsGiveTheBitsOfMisses) {
  CachedSequence sequence = New();
  auto prompt = RandomTokens(200, 256, 1);
  Evaluate(sequence, prompt);
  sequence.AddRestorePoint();
  Evaluate(sequence, RandomTokens(100, 256, 2));
  // The next turn's prompt shares the first 200 tokens and then differs.
  const auto turn = RandomTokens(30, 256, 3);
  prompt.insert(prompt.end(), turn.begin(), turn.end());
  EXPECT_EQ(sequence.Rewind(prompt), 200);
  const auto logits = Evaluate(sequence, std::span(prompt).subspan(200));
  EXPECT_EQ(logits, Fresh(prompt));
  EXPECT_EQ(sequence.tokens(), prompt);
}

TEST_P(CachedSequenceTest, IdenticalPromptEvaluatesOneToken) {
  CachedSequence sequence = New();
  const auto prompt = RandomTokens(150, 256, 4);
  const auto wanted = Evaluate(sequence, prompt);
  ASSERT_EQ(sequence.Rewind(prompt), 149);
  EXPECT_EQ(Evaluate(sequence, std::span(prompt).subspan(149)), wanted);
}

TEST_P(CachedSequenceTest, AskingAgainAfterALongAnswerEvaluatesOneToken) {
  CachedSequence sequence = New();
  const auto prompt = RandomTokens(150, 256, 4);
  const auto wanted = Evaluate(sequence, prompt);
  sequence.AddRestorePoint();
  Evaluate(sequence, RandomTokens(200, 256, 5));  // far past every window
  ASSERT_EQ(sequence.Rewind(prompt), 149);
  EXPECT_EQ(Evaluate(sequence, std::span(prompt).subspan(149)), wanted);
}

TEST_P(CachedSequenceTest, DivergenceWithoutARestorePointIsStillRight) {
  CachedSequence sequence = New();
  auto prompt = RandomTokens(300, 256, 5);
  Evaluate(sequence, prompt);
  prompt[90] = (prompt[90] + 1) % 256;
  const int64_t kept = sequence.Rewind(prompt);
  EXPECT_LE(kept, 90);
  EXPECT_EQ(Evaluate(sequence, std::span(prompt).subspan(static_cast<size_t>(kept))),
            Fresh(prompt));
}

TEST_P(CachedSequenceTest, ForksGoTheirOwnWays) {
  CachedSequence sequence = New();
  const auto prompt = RandomTokens(100, 256, 6);
  Evaluate(sequence, prompt);
  CachedSequence fork = sequence.Fork();
  const auto left = RandomTokens(20, 256, 7);
  const auto right = RandomTokens(20, 256, 8);
  Evaluate(sequence, left);
  auto whole = prompt;
  whole.insert(whole.end(), right.begin(), right.end());
  EXPECT_EQ(Evaluate(fork, right), Fresh(whole));
}

TEST_P(CachedSequenceTest, CancellationKeepsWholeChunks) {
  CachedSequence sequence = New();
  const auto prompt = RandomTokens(100, 256, 9);
  int chunks = 0;
  EvaluateOptions options;
  options.chunk_tokens = 16;
  options.is_cancelled = [&] { return chunks++ == 3; };
  const auto result = sequence.Evaluate(prompt, tiny_.workspace(), options);
  ASSERT_FALSE(result.ok());
  EXPECT_EQ(result.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(sequence.position(), 48);
  ASSERT_EQ(sequence.Rewind(prompt), 48);
  EXPECT_EQ(Evaluate(sequence, std::span(prompt).subspan(48)), Fresh(prompt));
}

INSTANTIATE_TEST_SUITE_P(Models, CachedSequenceTest,
                         testing::Values("public_qwen3_f32", "public_gemma3_f32",
                                         "transformers_qwen3_5_bf16"),
                         [](const auto& info) { return info.param; });

TEST(CachedSequenceBudgetTest, RestorePointsGiveWayBeforeAFailure) {
  TinyModelOptions options;
  options.folder = "public_qwen3_f32";
  TinyModel measure(options);
  KvSequence probe = measure.NewSequence();
  const size_t block_bytes = probe.spec().layers[0].layout.BlockBytes(0);
  // Room for 6 blocks of each of the 4 layers.
  options.budget_bytes = block_bytes * 4 * 6;
  TinyModel tiny(options);
  const KvCodec f32 = {KvCodec::Kind::kF32};
  const auto spec = std::make_shared<const KvCacheSpec>(tiny.model().CacheSpec(f32));
  auto sequence = ValueOrDie(CachedSequence::Create(&tiny.model(), &tiny.pool(), spec));
  const auto prompt = RandomTokens(120, 256, 1);
  ValueOrDie(sequence.Evaluate(prompt, tiny.workspace()));
  sequence.AddRestorePoint();
  sequence.RewindTo(0);
  // Only the restore point holds the first rows now; 380 tokens fit only without it.
  const auto other = RandomTokens(380, 256, 2);
  EXPECT_TRUE(sequence.Evaluate(other, tiny.workspace()).ok());
  const auto too_much = sequence.Evaluate(other, tiny.workspace());
  ASSERT_FALSE(too_much.ok());
  EXPECT_EQ(too_much.error().code, ErrorCode::kResourceExhausted);
  EXPECT_EQ(sequence.position(), 380);
}

}  // namespace
}  // namespace kvasir
