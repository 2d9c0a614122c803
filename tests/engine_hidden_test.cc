// Drafters that live on the target's hidden states: what reaches them are the states that the
// sequence alone would have had, bit for bit, whatever happened to it; and answers stay the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "kvasir/speculative/mtp_drafter.h"
#include "kvasir/speculative/pair_drafter.h"
#include "tests/support/engine_bench.h"
#include "tests/support/state_check.h"
#include "tests/support/synthetic_head.h"
#include "tests/support/tiny_assistant.h"

namespace kvasir {
namespace {

class HiddenBench : public testing::TestWithParam<TinyPolicy> {
 protected:
  HiddenBench() : bench_(GetParam()), requests_(Mixed(bench_.model().vocab_size())) {
    requests_[2].answers = 3;
    for (const EngineRequest& request : requests_) {
      for (int i = 0; i < request.answers; ++i) known_.push_back(Read(request, i));
    }
  }
  // What one sequence alone says, and its states.
  Known Read(const EngineRequest& request, int answer) {
    Known known = {request.prompt, {}};
    const Tokens said = bench_.Alone(request, answer);
    known.tokens.insert(known.tokens.end(), said.begin(), said.end());
    known.states = StatesOf(bench_.model(), bench_.spec(), known.tokens);
    return known;
  }
  void Start(size_t budget_bytes, std::unique_ptr<Drafter> drafter) {
    bench_.Start(budget_bytes, bench_.FlatCosts());
    bench_.engine().UseDrafter(std::move(drafter));
  }
  void RunAll(int rounds) {
    std::vector<RequestId> ids;
    for (int round = 0; round < rounds; ++round) {
      for (const EngineRequest& request : requests_) {
        ids.push_back(bench_.Submit(request));
        bench_.engine().Step();
      }
    }
    bench_.Drain();
    size_t at = 0;
    for (int round = 0; round < rounds; ++round) {
      for (size_t i = 0, whole = 0; i < requests_.size(); ++i, ++at) {
        for (int answer = 0; answer < requests_[i].answers; ++answer, ++whole) {
          const Tokens& said = bench_.Answer(ids[at], answer).tokens;
          const Tokens& tokens = known_[whole].tokens;
          EXPECT_TRUE(std::equal(said.rbegin(), said.rend(), tokens.rbegin())) << i;
          EXPECT_EQ(said.size() + requests_[i].prompt.size(), tokens.size());
        }
      }
    }
  }
  size_t TightBytes() const {
    size_t largest = 0;
    for (const EngineRequest& request : requests_) {
      const auto end = static_cast<Position>(request.prompt.size()) + 64;
      largest = std::max(largest, bench_.spec().BytesAt(end));
    }
    return 3 * largest;
  }

  Bench bench_;
  std::vector<EngineRequest> requests_;
  std::vector<Known> known_;  // of every answer, in order
};

TEST_P(HiddenBench, StatesAreThoseOfTheSequenceAlone) {
  for (const HiddenWanted wanted : {HiddenWanted::kLast, HiddenWanted::kAll}) {
    auto check = std::make_unique<StateCheck>(&known_, wanted);
    const StateCheck& checked = *check;
    Start(size_t{64} << 20, std::move(check));
    RunAll(2);
    EXPECT_GT(checked.checked(), 50);
    EXPECT_GT(bench_.engine().Stats().accepted_drafts, 30);
  }
}

TEST_P(HiddenBench, AlsoWhereEvictionAndPreemptionNeverStop) {
  for (const HiddenWanted wanted : {HiddenWanted::kLast, HiddenWanted::kAll}) {
    Start(TightBytes(), std::make_unique<StateCheck>(&known_, wanted));
    RunAll(2);
    // The states behind drafts may find no room in so little.
    const bool has_states = bench_.spec().HasRecurrentLayers();
    EXPECT_GE(bench_.engine().Stats().accepted_drafts, has_states ? 0 : 1);
    bench_.engine().prefix_tree().Clear();
    EXPECT_EQ(bench_.pool().used_bytes(), 0u);
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, HiddenBench, testing::ValuesIn(EnginePolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

// A head with a cache of its own, fed by reports.
TEST_P(HiddenBench, AHeadWithPairsOfItsOwnChangesNoAnswer) {
  const SyntheticHead head(bench_.model().vocab_size(), bench_.model().hidden_size());
  for (const size_t draft_bytes : {size_t{64} << 20, size_t{32} << 10}) {
    KvPool pool({.budget_bytes = draft_bytes});
    for (const size_t bytes : {size_t{64} << 20, TightBytes()}) {
      Start(bytes, ValueOrDie(PairDrafter::Create(
                       {&head, &pool, SyntheticHead::Spec(), bench_.model().vocab_size()})));
      RunAll(1);
      const bool has_room = bytes != TightBytes() || !bench_.spec().HasRecurrentLayers();
      EXPECT_GE(bench_.engine().Stats().drafted_tokens, has_room ? 1 : 0);
      bench_.Start();  // the drafter goes before its pool
      EXPECT_EQ(pool.used_bytes(), 0u);
    }
  }
  EXPECT_GT(head.pairs, 1000);
}

class AssistantEngineTest : public HiddenBench {
 protected:
  AssistantEngineTest() {
    for (const char* name : kTinyAssistants) {
      if (TinyAssistant::TargetOf(name) != GetParam().folder) continue;
      assistant_ =
          ValueOrDie(LoadAssistant(TinyAssistant::Folder(name), bench_.config(), bench_.backend()));
    }
  }
  std::unique_ptr<Drafter> NewDrafter() const {
    return std::make_unique<MtpDrafter>(
        MtpDrafterParts{assistant_.model.get(), &bench_.model(), bench_.model().vocab_size()});
  }
  LoadedAssistant assistant_;
};

TEST_P(AssistantEngineTest, EveryAnswerIsThatOfTheRequestAlone) {
  Start(size_t{64} << 20, NewDrafter());
  RunAll(1);
  EXPECT_GT(bench_.engine().Stats().drafted_tokens, 20);
}

TEST_P(AssistantEngineTest, AlsoWhereEvictionAndPreemptionNeverStop) {
  Start(TightBytes(), NewDrafter());
  RunAll(2);
  EXPECT_GT(bench_.engine().Stats().drafted_tokens, 20);
  bench_.engine().prefix_tree().Clear();
  EXPECT_EQ(bench_.pool().used_bytes(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Policies, AssistantEngineTest, testing::ValuesIn(AssistantPolicies()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace kvasir
