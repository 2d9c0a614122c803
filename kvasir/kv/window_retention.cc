// Retention `window`: a query sees the last `size` rows, its own included; of these the first
// `keep` of the sequence stay in view, however far it goes (attention sinks). The "rotating cache"
// of other engines, without a ring: blocks that left the window are dropped. Deliberately one rule
// for every query, whatever the chunk it came in: mlx-lm lets the kept rows fall out of view inside
// a chunk.
#include <algorithm>

#include "kvasir/kv/retention_kinds.h"

namespace kvasir {
namespace {

class WindowRetention final : public Retention {
 public:
  WindowRetention(int64_t size, int64_t keep) : keep_(keep), tail_(size - keep) {}

  VisibleRows Visible(int64_t query) const override {
    const int64_t first = FirstNeeded(query);
    if (first <= keep_) return {0, 0, query + 1};
    return {keep_, first, query + 1};
  }
  int64_t FirstNeeded(int64_t next) const override {
    const int64_t first = std::max<int64_t>(0, next - tail_ + 1);
    return first <= keep_ ? 0 : first;
  }
  int64_t EarliestState(int64_t first_held) const override {
    return first_held == 0 ? 0 : std::max(first_held, keep_ + 1) + tail_ - 1;
  }
  int64_t head_rows() const override { return keep_; }

 private:
  int64_t keep_;  // rows
  int64_t tail_;  // rows, at least 1
};

}  // namespace

std::unique_ptr<const Retention> MakeWindowRetention(const RetentionSpec& spec) {
  return std::make_unique<WindowRetention>(spec.size, spec.keep);
}

}  // namespace kvasir
