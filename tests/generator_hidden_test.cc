// Drafters that live on the target's hidden states, in a conversation of one: what reaches them,
// and that answers and what stays in the cache are those of plain decoding.
#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/engine/draft_source.h"
#include "kvasir/engine/generator.h"
#include "kvasir/speculative/pair_drafter.h"
#include "tests/support/state_check.h"
#include "tests/support/synthetic_head.h"
#include "tests/support/tiny_assistant.h"

namespace kvasir {
namespace {

constexpr int64_t kMostDrafts = 8;
constexpr int64_t kChunkTokens = 40;

class GeneratorHiddenTest : public testing::TestWithParam<TinyPolicy> {
 protected:
  GeneratorHiddenTest() {
    BundleOptions options;
    options.backend.attention = GetParam().attention;
    options.kv_budget_bytes = size_t{64} << 20;
    options.kv = GetParam().policy();
    bundle_ = ValueOrDie(ModelBundle::Load(TinyModel::Folder(GetParam().folder), options));
  }
  GenerationRequest Request(float temperature) const {
    GenerationRequest request;
    request.prompt = RandomTokens(150, bundle_->model().vocab_size(), 3);
    request.max_tokens = 90;
    request.ignore_stop_tokens = true;
    request.sampling.temperature = temperature;
    request.sampling.seed = 11;
    return request;
  }
  // What is read from memory is what passes cost, so that drafts are the same in every run.
  void Use(Generator& generator, std::unique_ptr<Drafter> drafter) const {
    generator.UseDrafter(std::move(drafter), kMostDrafts, [this] {
      const auto bytes = static_cast<int64_t>(bundle_->backend().weight_bytes_read());
      return DraftRounds::Clock::time_point(std::chrono::microseconds(bytes));
    });
  }
  // Two turns, the second of which finds the first in the cache.
  std::vector<GenerationResult> Talk(Generator& generator, float temperature,
                                     CachedSequence& sequence) const {
    GenerationRequest request = Request(temperature);
    std::vector<GenerationResult> turns = {ValueOrDie(generator.Generate(request, sequence))};
    request.prompt.insert(request.prompt.end(), turns[0].tokens.begin(), turns[0].tokens.end());
    request.prompt.push_back(7);
    turns.push_back(ValueOrDie(generator.Generate(request, sequence)));
    return turns;
  }
  // Without drafts; fills known_ for a StateCheck.
  std::vector<GenerationResult> Plain(float temperature, CachedSequence& sequence) {
    Generator generator(bundle_.get(), kChunkTokens);
    const auto turns = Talk(generator, temperature, sequence);
    Tokens known = Request(temperature).prompt;
    known_.clear();
    for (const GenerationResult& turn : turns) {
      known.insert(known.end(), turn.tokens.begin(), turn.tokens.end());
      known_.push_back({known, StatesOf(bundle_->model(), *bundle_->cache_spec(), known)});
      known.push_back(7);
    }
    return turns;
  }
  void ExpectPlainAnswers(Generator& generator, float temperature) {
    CachedSequence plain_sequence = ValueOrDie(bundle_->NewSequence());
    CachedSequence sequence = ValueOrDie(bundle_->NewSequence());
    const auto plain = Plain(temperature, plain_sequence);
    const auto turns = Talk(generator, temperature, sequence);
    for (size_t i = 0; i < turns.size(); ++i) {
      EXPECT_EQ(turns[i].tokens, plain[i].tokens) << "turn " << i;
      EXPECT_EQ(turns[i].stats.cached_tokens, plain[i].stats.cached_tokens) << "turn " << i;
      drafted_ += turns[i].stats.drafted_tokens;
      accepted_ += turns[i].stats.accepted_drafts;
    }
    EXPECT_EQ(sequence.tokens(), plain_sequence.tokens());
  }

  using Tokens = std::vector<Token>;
  std::unique_ptr<ModelBundle> bundle_;
  std::vector<Known> known_;  // after each turn
  int64_t drafted_ = 0;
  int64_t accepted_ = 0;
};

TEST_P(GeneratorHiddenTest, StatesAreThoseOfTheSequenceAlone) {
  for (const HiddenWanted wanted : {HiddenWanted::kLast, HiddenWanted::kAll}) {
    for (const float temperature : {0.0f, 1.2f}) {
      auto check = std::make_unique<StateCheck>(&known_, wanted);
      const StateCheck& checked = *check;
      Generator generator(bundle_.get(), kChunkTokens);
      Use(generator, std::move(check));
      ExpectPlainAnswers(generator, temperature);
      EXPECT_GT(checked.checked(), wanted == HiddenWanted::kAll ? 300 : 20);
    }
  }
  EXPECT_GT(accepted_, 0);
  EXPECT_LT(accepted_, drafted_);
}

TEST_P(GeneratorHiddenTest, AHeadWithPairsOfItsOwnChangesNoAnswer) {
  const SyntheticHead head(bundle_->model().vocab_size(), bundle_->model().hidden_size());
  KvPool pool({.budget_bytes = size_t{4} << 20});
  Generator generator(bundle_.get(), kChunkTokens);
  generator.UseDrafter(ValueOrDie(PairDrafter::Create(
                           {&head, &pool, SyntheticHead::Spec(), bundle_->model().vocab_size()})),
                       kMostDrafts);
  for (const float temperature : {0.0f, 1.2f}) ExpectPlainAnswers(generator, temperature);
  EXPECT_GT(drafted_, 0);
  EXPECT_GT(head.pairs, 150);
}

TEST_P(GeneratorHiddenTest, AnAssistantChangesNoAnswer) {
  for (const char* name : kTinyAssistants) {
    if (TinyAssistant::TargetOf(name) != GetParam().folder) continue;
    const auto source = ValueOrDie(DraftSource::Load(
        {DraftKind::kMtp, TinyAssistant::Folder(name), {.kv_budget_bytes = size_t{1} << 20}},
        *bundle_));
    Generator generator(bundle_.get(), kChunkTokens);
    Use(generator, source->NewDrafter(nullptr));
    for (const float temperature : {0.0f, 1.2f}) ExpectPlainAnswers(generator, temperature);
  }
  EXPECT_GT(drafted_, 0);
}

INSTANTIATE_TEST_SUITE_P(Policies, GeneratorHiddenTest, testing::ValuesIn(AssistantPolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

// A drafter's wish for states reaches prompts whose scores are asked for, read token by token.
TEST(GeneratorScoresTest, PromptsWithScoresAreDraftedForAsWell) {
  BundleOptions options;
  options.kv_budget_bytes = size_t{16} << 20;
  const auto bundle = ValueOrDie(ModelBundle::Load(TinyModel::Folder(kTinyShared), options));
  GenerationRequest request;
  request.prompt = RandomTokens(20, bundle->model().vocab_size(), 5);
  request.max_tokens = 60;
  request.ignore_stop_tokens = true;
  request.top_logprobs = 1;
  request.scores_prompt = true;
  CachedSequence sequence = ValueOrDie(bundle->NewSequence());
  Generator plain(bundle.get());
  const GenerationResult wanted = ValueOrDie(plain.Generate(request, sequence));
  const auto source = ValueOrDie(DraftSource::Load(
      {DraftKind::kMtp, TinyAssistant::Folder(kTinyAssistants[0]), options}, *bundle));
  Generator generator(bundle.get());
  generator.UseDrafter(source->NewDrafter(nullptr), kMostDrafts);
  const GenerationResult result = ValueOrDie(generator.Generate(request, sequence));
  EXPECT_EQ(result.tokens, wanted.tokens);
  EXPECT_GT(result.stats.drafted_tokens, 0);
  ASSERT_EQ(result.prompt_scores.size(), wanted.prompt_scores.size());
  for (size_t i = 0; i < wanted.scores.size(); ++i) {
    EXPECT_EQ(result.scores[i].token.logprob, wanted.scores[i].token.logprob) << i;
  }
}

}  // namespace
}  // namespace kvasir
