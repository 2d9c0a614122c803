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

#include "kvasir/base/check.h"
#include "kvasir/speculative/drafter.h"

namespace kvasir {

class PaidOracle final : public Drafter {
 public:
  // `paid` keeps nothing of sequences and needs not catch up, as MtpDrafter.
  PaidOracle(std::unique_ptr<Drafter> oracle, std::unique_ptr<Drafter> paid)
      : oracle_(std::move(oracle)), paid_(std::move(paid)) {
    KVASIR_CHECK(paid_->hidden_wanted() != HiddenWanted::kAll);
  }

  std::string_view kind() const override { return "oracle"; }
  std::unique_ptr<DraftState> NewState() override { return std::make_unique<DraftState>(); }
  std::optional<int64_t> MissingTokens(const DraftRequest& request) override {
    return paid_->MissingTokens(request);
  }
  std::vector<std::vector<Token>> Propose(std::span<const DraftRequest> requests) override {
    (void)paid_->Propose(requests);
    return oracle_->Propose(requests);
  }
  HiddenWanted hidden_wanted() const override { return paid_->hidden_wanted(); }

 private:
  const std::unique_ptr<Drafter> oracle_;
  const std::unique_ptr<Drafter> paid_;
};

}  // namespace kvasir

#endif  // KVASIR_BENCH_PAID_ORACLE_H_
