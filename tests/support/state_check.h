// A drafter that lives on the target's hidden states and holds each against those of the sequence
// alone. Deliberately knows the answers: it is there to be told states, and to draft mostly right.
#ifndef KVASIR_TESTS_SUPPORT_STATE_CHECK_H_
#define KVASIR_TESTS_SUPPORT_STATE_CHECK_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <vector>

#include "kvasir/model/model.h"
#include "kvasir/speculative/drafter.h"
#include "tests/support/tiny_model.h"

namespace kvasir {

// An answer with the state of each of its tokens, the prompt's included.
struct Known {
  std::vector<Token> tokens;
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

  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override {
    std::vector<std::vector<Token>> drafts(requests.size());
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
    const std::vector<Token> tokens = known.Copy(0, known.size());
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

// States of tokens but the last, read by one sequence in one way of many.
inline std::vector<float> StatesOf(const Model& model, const KvCacheSpec& spec,
                                   const std::vector<Token>& tokens) {
  KvPool pool({.budget_bytes = size_t{64} << 20});
  KvSequence sequence =
      ValueOrDie(KvSequence::Create(&pool, std::make_shared<const KvCacheSpec>(spec)));
  Workspace workspace;
  std::vector<float> all;
  while (sequence.position() + 1 < static_cast<int64_t>(tokens.size())) {
    const Position at = sequence.position();
    const int64_t count =
        std::min<int64_t>({13, sequence.RunLimit(), static_cast<int64_t>(tokens.size()) - 1 - at});
    const auto part =
        std::span(tokens).subspan(static_cast<size_t>(at), static_cast<size_t>(count));
    const SequenceRun run = {&sequence, part, 0, count};
    OrDie(model.Forward(std::span(&run, 1), workspace).status());
    const ConstFloatRows states = workspace.HiddenStates();
    all.insert(all.end(), states.row(0), states.row(0) + count * states.cols);
  }
  return all;
}

}  // namespace kvasir

#endif  // KVASIR_TESTS_SUPPORT_STATE_CHECK_H_
