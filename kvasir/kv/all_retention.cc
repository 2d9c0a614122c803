// Retention `all`: full causal attention, nothing is ever released.
// Deliberately its own file like every retention: the list is retention.cc.
#include "kvasir/kv/retention_kinds.h"

namespace kvasir {
namespace {

class AllRetention final : public Retention {
 public:
  VisibleRows Visible(Position query) const override { return {0, 0, query + 1}; }
  Position FirstNeeded(Position) const override { return 0; }
  // Once a row is gone no state is whole again, so only a layer that holds everything goes back.
  Position EarliestState(Position first_held) const override {
    return first_held == 0 ? 0 : kMaxRetentionTokens;
  }
};

}  // namespace

std::unique_ptr<const Retention> MakeAllRetention(int64_t) {
  return std::make_unique<AllRetention>();
}

}  // namespace kvasir
