// Drafts of a model are what the model itself would say, from any state of its cache.
#include "kvasir/speculative/model_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/tiny_model.h"

namespace kvasir {
namespace {

using Tokens = std::vector<Token>;

class ModelDrafterTest : public testing::Test {
 protected:
  explicit ModelDrafterTest(size_t budget_bytes = size_t{64} << 20)
      : tiny_({.folder = "public_qwen3_f32", .budget_bytes = budget_bytes}),
        spec_(std::make_shared<const KvCacheSpec>(tiny_.model().CacheSpec({KvCodec::Kind::kF32}))) {
  }

  std::unique_ptr<ModelDrafter> NewDrafter(int64_t step_tokens = 256) {
    return ValueOrDie(ModelDrafter::Create(
        {&tiny_.model(), &tiny_.pool(), spec_, tiny_.model().vocab_size()},
        {.step_tokens = step_tokens,
         .log = [this](LogLevel, std::string_view line) { logged_.emplace_back(line); }}));
  }
  DraftRequest Request(DraftState* state, const Tokens& prompt, const Tokens& answer,
                       int64_t most) const {
    return {.state = state, .known = {prompt, answer}, .max_drafts = most, .sampling = &sampling_};
  }
  static Tokens Ask(ModelDrafter& drafter, const DraftRequest& request) {
    const auto requests = std::span(&request, 1);
    drafter.Follow(requests);
    return drafter.Propose(requests)[0];
  }
  // What the model says after `known` on its own.
  Tokens Says(const Tokens& known, int64_t count) {
    Sampler sampler;
    Tokens said;
    KvSequence sequence = tiny_.NewSequence();
    Tokens next = known;
    while (static_cast<int64_t>(said.size()) < count) {
      const std::vector<float> logits = tiny_.Feed(sequence, next);
      const auto vocab = static_cast<size_t>(tiny_.model().vocab_size());
      said.push_back(sampler.Sample(std::span(logits).last(vocab), sampling_,
                                    static_cast<Position>(known.size() + said.size()),
                                    {known, said}));
      next = {said.back()};
    }
    return said;
  }

  TinyModel tiny_;
  std::shared_ptr<const KvCacheSpec> spec_;
  SamplingOptions sampling_ = {};
  std::vector<std::string> logged_;
};

Tokens Concat(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST_F(ModelDrafterTest, SaysWhatTheModelSays) {
  for (const float temperature : {0.0f, 0.9f}) {
    sampling_.temperature = temperature;
    sampling_.seed = 11;
    const Tokens prompt = RandomTokens(70, tiny_.model().vocab_size(), 1);
    const auto drafter = NewDrafter();
    const auto state = drafter->NewState();
    EXPECT_EQ(Ask(*drafter, Request(state.get(), prompt, {}, 5)), Says(prompt, 5));
  }
}

TEST_F(ModelDrafterTest, GoesOnAfterAnyNumberOfAcceptedDrafts) {
  const Tokens prompt = RandomTokens(66, tiny_.model().vocab_size(), 2);
  for (size_t accepted = 0; accepted <= 4; ++accepted) {
    const auto drafter = NewDrafter();
    const auto state = drafter->NewState();
    const Tokens drafts = Ask(*drafter, Request(state.get(), prompt, {}, 4));
    ASSERT_EQ(drafts.size(), 4u);
    Tokens answer(drafts.begin(), drafts.begin() + static_cast<int64_t>(accepted));
    answer.push_back(accepted < 4 ? (drafts[accepted] + 1) % 7 : 3);
    EXPECT_EQ(Ask(*drafter, Request(state.get(), prompt, answer, 3)),
              Says(Concat(prompt, answer), 3))
        << accepted;
  }
}

TEST_F(ModelDrafterTest, CatchesUpInSmallParts) {
  const Tokens prompt = RandomTokens(100, tiny_.model().vocab_size(), 3);
  const auto drafter = NewDrafter(/*step_tokens=*/30);
  const auto state = drafter->NewState();
  const DraftRequest request = Request(state.get(), prompt, {}, 4);
  EXPECT_EQ(drafter->MissingTokens(request), 99);
  for (int call = 0; call < 3; ++call) EXPECT_TRUE(Ask(*drafter, request).empty()) << call;
  EXPECT_EQ(drafter->MissingTokens(request), 9);
  EXPECT_EQ(Ask(*drafter, request), Says(prompt, 4));
  EXPECT_EQ(drafter->MissingTokens(request), 0);
}

// A few tokens that were said meanwhile are read with the guess.
TEST_F(ModelDrafterTest, WhatIsMissingIsReadOnTheWay) {
  const Tokens prompt = RandomTokens(60, tiny_.model().vocab_size(), 8);
  const Tokens said = RandomTokens(9, tiny_.model().vocab_size(), 9);
  const auto drafter = NewDrafter();
  const auto state = drafter->NewState();
  EXPECT_EQ(Ask(*drafter, Request(state.get(), prompt, {}, 1)).size(), 1u);
  const DraftRequest later = Request(state.get(), prompt, said, 3);
  EXPECT_EQ(drafter->MissingTokens(later), 0);
  EXPECT_EQ(drafter->Propose({&later, 1})[0], Says(Concat(prompt, said), 3));
}

TEST_F(ModelDrafterTest, SequencesDoNotMatterToEachOther) {
  const int64_t vocab = tiny_.model().vocab_size();
  const std::vector<Tokens> prompts = {RandomTokens(5, vocab, 4), RandomTokens(90, vocab, 5),
                                       RandomTokens(64, vocab, 6)};
  const auto drafter = NewDrafter();
  std::vector<std::unique_ptr<DraftState>> states;
  std::vector<DraftRequest> requests;
  for (size_t i = 0; i < prompts.size(); ++i) {
    states.push_back(drafter->NewState());
    requests.push_back(Request(states[i].get(), prompts[i], {}, 2 + static_cast<int64_t>(i)));
  }
  drafter->Follow(requests);
  const auto drafts = drafter->Propose(requests);
  for (size_t i = 0; i < prompts.size(); ++i) {
    EXPECT_EQ(drafts[i], Says(prompts[i], 2 + static_cast<int64_t>(i))) << i;
  }
}

// A pass reads no more than it may; who finds no place finds it when others need less.
TEST_F(ModelDrafterTest, APassTakesOnAsManyAsItMayRead) {
  const int64_t vocab = tiny_.model().vocab_size();
  const auto drafter = NewDrafter(/*step_tokens=*/10);
  std::vector<Tokens> prompts;
  std::vector<std::unique_ptr<DraftState>> states;
  std::vector<DraftRequest> requests;
  for (uint64_t i = 0; i < 3; ++i) prompts.push_back(RandomTokens(4, vocab, 40 + i));
  for (const Tokens& prompt : prompts) {
    states.push_back(drafter->NewState());
    requests.push_back(Request(states.back().get(), prompt, {}, 2));
    EXPECT_EQ(drafter->MissingTokens(requests.back()), 0);
  }
  const auto drafts = drafter->Propose(requests);
  EXPECT_EQ(drafts[0], Says(prompts[0], 2));
  EXPECT_EQ(drafts[1], Says(prompts[1], 2));
  EXPECT_TRUE(drafts[2].empty());
  EXPECT_EQ(drafter->Propose(requests)[2], Says(prompts[2], 2));
}

TEST_F(ModelDrafterTest, WhatNoPassHoldsIsReadBeforeTheGuess) {
  const Tokens prompt = RandomTokens(8, tiny_.model().vocab_size(), 50);
  const auto drafter = NewDrafter(/*step_tokens=*/4);
  const auto state = drafter->NewState();
  const DraftRequest request = Request(state.get(), prompt, {}, 2);
  EXPECT_EQ(drafter->MissingTokens(request), 7);
  EXPECT_EQ(Ask(*drafter, request), Says(prompt, 2));
}

// Only who does not fit into the draft's context goes without.
TEST_F(ModelDrafterTest, ANeighbourThatIsTooLongCostsNobodyElse) {
  const int64_t vocab = tiny_.model().vocab_size();
  const int64_t context = tiny_.model().context_tokens();
  const Tokens small = RandomTokens(20, vocab, 8);
  const Tokens wanted = Says(small, 3);
  for (const int64_t length : {context - 2, context - 1, context, context + 1, context + 100}) {
    const Tokens large = RandomTokens(length, vocab, 9);
    const auto drafter = NewDrafter(/*step_tokens=*/2 * context);
    const auto first = drafter->NewState(), second = drafter->NewState();
    const std::vector<DraftRequest> requests = {Request(second.get(), small, {}, 3),
                                                Request(first.get(), large, {}, 3)};
    drafter->Follow(requests);
    const auto drafts = drafter->Propose(requests);
    EXPECT_EQ(drafts[0], wanted) << length;
    // As many as there is room for, and the one that would come behind a full context.
    const int64_t most = length > context ? 0 : std::clamp<int64_t>(context - length, 1, 3);
    EXPECT_EQ(static_cast<int64_t>(drafts[1].size()), most) << length;
  }
  EXPECT_TRUE(logged_.empty());
}

TEST_F(ModelDrafterTest, WhatHasEndedIsNotReadAgain) {
  const Tokens prompt = RandomTokens(90, tiny_.model().vocab_size(), 7);
  const auto drafter = NewDrafter(/*step_tokens=*/100);
  auto state = drafter->NewState();
  const Tokens drafts = Ask(*drafter, Request(state.get(), prompt, {}, 2));
  drafter->Finish(*state, {prompt, {}}, 0);
  state.reset();
  // One token per call of Follow: without the tree this would take 89 calls.
  const auto other = drafter->NewState();
  EXPECT_EQ(drafter->Propose(std::vector{Request(other.get(), prompt, {}, 2)})[0], drafts);
}

class SmallModelDrafterTest : public ModelDrafterTest {
 protected:
  SmallModelDrafterTest() : ModelDrafterTest(size_t{192} << 10) {}
};

TEST_F(SmallModelDrafterTest, AFullPoolCostsDraftsOnly) {
  const auto drafter = NewDrafter(/*step_tokens=*/4096);
  const int64_t vocab = tiny_.model().vocab_size();
  std::vector<Tokens> prompts;
  std::vector<std::unique_ptr<DraftState>> states;
  size_t with_drafts = 0;
  for (uint64_t i = 0; i < 40; ++i) {
    prompts.push_back(RandomTokens(120, vocab, 100 + i));
    states.push_back(drafter->NewState());
    with_drafts += !Ask(*drafter, Request(states.back().get(), prompts.back(), {}, 2)).empty();
  }
  EXPECT_GT(with_drafts, 0u);
  EXPECT_LT(with_drafts, 40u);
  ASSERT_EQ(logged_.size(), 1u);  // however many go without
  EXPECT_NE(logged_[0].find("cache of 196608 bytes is full"), std::string::npos);
  states.clear();
  EXPECT_EQ(tiny_.pool().used_bytes(), 0u);
  const auto state = drafter->NewState();
  EXPECT_EQ(Ask(*drafter, Request(state.get(), prompts[0], {}, 2)).size(), 2u);
}

TEST_F(ModelDrafterTest, ImpossiblePartsAreRefused) {
  EXPECT_FALSE(
      ModelDrafter::Create({&tiny_.model(), &tiny_.pool(), spec_, tiny_.model().vocab_size() + 1})
          .ok());
  EXPECT_FALSE(
      ModelDrafter::Create({&tiny_.model(), &tiny_.pool(), spec_, 5}, {.step_tokens = 0}).ok());
}

}  // namespace
}  // namespace kvasir
