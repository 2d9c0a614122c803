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
#include "tests/support/synthetic_head.h"
#include "tests/support/tiny_assistant.h"

namespace kvasir {
namespace {

// An answer with the state of each of its tokens, the prompt's included.
struct Known {
  Tokens tokens;
  std::vector<float> states;  // [tokens - 1, hidden_size]
};

// Holds every state it is given against the known ones. Guesses right but for every fifth token.
class StateCheck final : public Drafter {
 public:
  struct State final : DraftState {
    Position reported = 0;
  };
  StateCheck(const std::vector<Known>* known, HiddenWanted wanted)
      : known_(known), wanted_(wanted) {}

  std::string_view kind() const override { return "check"; }
  HiddenWanted hidden_wanted() const override { return wanted_; }
  std::unique_ptr<DraftState> NewState() override { return std::make_unique<State>(); }
  std::unique_ptr<DraftState> ForkState(const DraftState& state) override {
    return std::make_unique<State>(static_cast<const State&>(state));
  }

  std::vector<Tokens> Propose(std::span<const DraftRequest> requests) override {
    std::vector<Tokens> drafts(requests.size());
    for (size_t i = 0; i < requests.size(); ++i) {
      const KnownTokens& known = requests[i].known;
      const Known* const whole = Find(known);
      if (whole == nullptr) continue;
      const int64_t last = known.size() - 1;
      EXPECT_FALSE(requests[i].hidden.empty()) << "at " << last;
      if (!requests[i].hidden.empty()) Expect(*whole, last - 1, requests[i].hidden);
      if (wanted_ == HiddenWanted::kAll) {
        EXPECT_EQ(static_cast<State*>(requests[i].state)->reported, last);
      }
      for (int64_t at = last + 1; at < static_cast<int64_t>(whole->tokens.size()); ++at) {
        if (at - last > requests[i].max_drafts) break;
        const Token right = whole->tokens[static_cast<size_t>(at)];
        drafts[i].push_back(at % 5 == 0 ? (right + 1) % 40 : right);
      }
    }
    return drafts;
  }

  void Report(const DraftReport& report) override {
    auto& state = *static_cast<State*>(report.state);
    const Known* const whole = Find(report.known);
    // Told of at first, a sequence may have a prefix that others had read.
    EXPECT_TRUE(state.reported == 0 || report.begin <= state.reported);
    state.reported = report.begin + report.hidden.rows;
    EXPECT_LE(state.reported, report.known.size());
    for (int64_t i = 0; whole != nullptr && i < report.hidden.rows; ++i) {
      Expect(*whole, report.begin + i,
             {report.hidden.row(i), static_cast<size_t>(report.hidden.cols)});
    }
  }

  int64_t checked() const { return checked_; }

 private:
  const Known* Find(const KnownTokens& known) const {
    const Tokens tokens = known.Copy(0, known.size());
    for (const Known& whole : *known_) {
      if (tokens.size() <= whole.tokens.size() &&
          std::equal(tokens.begin(), tokens.end(), whole.tokens.begin())) {
        return &whole;
      }
    }
    return nullptr;
  }
  void Expect(const Known& whole, Position position, std::span<const float> state) {
    const size_t begin = static_cast<size_t>(position) * state.size();
    if (begin + state.size() > whole.states.size()) return;  // behind the answer's end
    ++checked_;
    EXPECT_TRUE(
        std::equal(state.begin(), state.end(), whole.states.begin() + static_cast<int64_t>(begin)))
        << "state at " << position;
  }

  const std::vector<Known>* const known_;
  const HiddenWanted wanted_;
  int64_t checked_ = 0;
};

class HiddenBench : public testing::TestWithParam<TinyPolicy> {
 protected:
  HiddenBench() : bench_(GetParam()), requests_(Mixed(bench_.model().vocab_size())) {
    requests_[2].answers = 3;
    for (const EngineRequest& request : requests_) {
      for (int i = 0; i < request.answers; ++i) known_.push_back(Read(request, i));
    }
  }
  // What one sequence alone says, and its states, read in one way of many.
  Known Read(const EngineRequest& request, int answer) {
    Known known = {request.prompt, {}};
    const Tokens said = bench_.Alone(request, answer);
    known.tokens.insert(known.tokens.end(), said.begin(), said.end());
    KvPool pool({.budget_bytes = size_t{64} << 20});
    KvSequence sequence =
        ValueOrDie(KvSequence::Create(&pool, std::make_shared<const KvCacheSpec>(bench_.spec())));
    Workspace workspace;
    while (sequence.position() + 1 < static_cast<int64_t>(known.tokens.size())) {
      const Position at = sequence.position();
      const int64_t count = std::min<int64_t>(
          {13, sequence.RunLimit(), static_cast<int64_t>(known.tokens.size()) - 1 - at});
      const auto tokens =
          std::span(known.tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(count));
      const SequenceRun run = {&sequence, tokens, 0, count};
      OrDie(bench_.model().Forward(std::span(&run, 1), workspace).status());
      const ConstFloatRows states = workspace.HiddenStates();
      known.states.insert(known.states.end(), states.row(0), states.row(0) + count * states.cols);
    }
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
    EXPECT_GT(bench_.engine().Stats().accepted_drafts, 0);
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
      EXPECT_GT(bench_.engine().Stats().drafted_tokens, 0);
      bench_.Start();  // the drafter goes before its pool
      EXPECT_EQ(pool.used_bytes(), 0u);
    }
  }
  EXPECT_GT(head.pairs, 1000);
}

constexpr const char* kTinyShared = "transformers_gemma4_shared_bf16";

// Ways to store what an assistant reads.
std::vector<TinyPolicy> AssistantPolicies() {
  constexpr const char* kBudget = "budget:128,keep=4,recent=64,interval=64,score=knorm";
  return {
      {"shared_f32", kTinyShared, "f32", "f32"},
      {"shared_f16", kTinyShared, "f16", "f16"},
      {"shared_turbo", kTinyShared, "turbo3", "turbo4"},
      {"shared_turbo_recent", kTinyShared, "turbo4", "turbo4", "", 64, 64},
      {"shared_knorm", kTinyShared, "turbo4", "turbo4", kBudget, 0, 64},
      {"from_value_f32", kTinyFromValue, "f32", "f32"},
      {"from_value_turbo", kTinyFromValue, "turbo4", "turbo4"},
      {"from_value_knorm", kTinyFromValue, "f16", "f16", kBudget},
  };
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
