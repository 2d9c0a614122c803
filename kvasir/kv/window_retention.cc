// Retention `window`: a query sees the last `size` rows, its own included. The "rotating cache" of
// other engines, without a ring: blocks that left the window are dropped.
// Deliberately keeps no first rows in view (attention sinks): that is another retention.
#include <algorithm>

#include "kvasir/kv/retention_kinds.h"

namespace kvasir {
namespace {

class WindowRetention final : public Retention {
 public:
  explicit WindowRetention(int64_t size) : size_(size) {}

  VisibleRows Visible(Position query) const override { return {0, FirstNeeded(query), query + 1}; }
  Position FirstNeeded(Position next) const override {
    return std::max<Position>(0, next - size_ + 1);
  }
  Position EarliestState(Position first_held) const override {
    return first_held == 0 ? 0 : first_held + size_ - 1;
  }

 private:
  int64_t size_;  // tokens, at least 1
};

}  // namespace

std::unique_ptr<const Retention> MakeWindowRetention(int64_t size_tokens) {
  return std::make_unique<WindowRetention>(size_tokens);
}

}  // namespace kvasir
