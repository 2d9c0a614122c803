// PaidOracle: drafts that are right as often as one likes, at the price of a real drafter's.
// Deliberately throws the real guesses away: with made-up weights they are never right.
#ifndef KVASIR_BENCH_PAID_ORACLE_H_
#define KVASIR_BENCH_PAID_ORACLE_H_

#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "kvasir/speculative/drafter.h"

namespace kvasir {

class PaidOracle final : public Drafter {
 public:
  PaidOracle(std::unique_ptr<Drafter> oracle, std::unique_ptr<Drafter> paid)
      : oracle_(std::move(oracle)), paid_(std::move(paid)) {}

  std::string_view kind() const override { return "oracle"; }
  std::unique_ptr<DraftState> NewState() override {
    auto state = std::make_unique<State>();
    state->paid = paid_->NewState();
    return state;
  }
  std::unique_ptr<DraftState> ForkState(const DraftState& from) override {
    auto state = std::make_unique<State>();
    state->paid = paid_->ForkState(*static_cast<const State&>(from).paid);
    return state;
  }
  std::optional<int64_t> MissingTokens(const DraftRequest& request) override {
    return paid_->MissingTokens(ForPaid(request));
  }
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override {
    std::vector<DraftRequest> paid;
    for (const DraftRequest& request : requests) paid.push_back(ForPaid(request));
    (void)paid_->Propose(paid);
    return oracle_->Propose(requests);
  }
  void Finish(DraftState& state, KnownTokens known, uint64_t salt) override {
    paid_->Finish(*static_cast<State&>(state).paid, known, salt);
  }
  HiddenWanted hidden_wanted() const override { return paid_->hidden_wanted(); }
  void Report(const DraftReport& report) override {
    DraftReport paid = report;
    paid.state = static_cast<State&>(*report.state).paid.get();
    paid_->Report(paid);
  }

 private:
  struct State final : DraftState {
    std::unique_ptr<DraftState> paid;
  };

  static DraftRequest ForPaid(const DraftRequest& request) {
    DraftRequest paid = request;
    paid.state = static_cast<State&>(*request.state).paid.get();
    return paid;
  }

  const std::unique_ptr<Drafter> oracle_;
  const std::unique_ptr<Drafter> paid_;
};

}  // namespace kvasir

#endif  // KVASIR_BENCH_PAID_ORACLE_H_
