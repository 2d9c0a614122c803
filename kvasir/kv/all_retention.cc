// Retention `all`: full causal attention, nothing is ever released. Also that of the rows that a
// budget has left.
// Deliberately its own file like every retention: the list is retention.cc.
#include "kvasir/kv/retention_kinds.h"

namespace kvasir {
namespace {

class AllRetention final : public Retention {
 public:
  VisibleRows Visible(int64_t query) const override { return {0, 0, query + 1}; }
  int64_t FirstNeeded(int64_t) const override { return 0; }
  // Once a row is gone no state is whole again, so only a layer that holds everything goes back.
  int64_t EarliestState(int64_t first_held) const override {
    return first_held == 0 ? 0 : kMaxRetentionTokens;
  }
};

}  // namespace

std::unique_ptr<const Retention> MakeAllRetention(const RetentionSpec&) {
  return std::make_unique<AllRetention>();
}

}  // namespace kvasir
