// Retention of the recent copies (KvLayout::dense_recent): every query reads the rows from
// KvLayout::RecentBegin of its own row on.
// Deliberately no RetentionSpec: it follows from a layout, and says nothing about what is visible.
#include <algorithm>

#include "kvasir/kv/retention_kinds.h"
#include "kvasir/tensor/kv_layout.h"

namespace kvasir {
namespace {

class RecentRetention final : public Retention {
 public:
  explicit RecentRetention(int64_t rows) : rows_(rows) { layout_.dense_recent = rows; }

  VisibleRows Visible(int64_t query) const override {
    return {0, layout_.RecentBegin(query), query + 1};
  }
  // One row more than the next query reads, so that a budget that evicts to a multiple of 64 rows
  // finds the last `rows` of them here wherever it does so.
  int64_t FirstNeeded(int64_t next) const override {
    return layout_.RecentBegin(std::max<int64_t>(next, 1) - 1);
  }
  int64_t EarliestState(int64_t first_held) const override {
    const int64_t block = BlocksUpTo(first_held);
    return block == 0 ? 0 : block * kBlockTokens + rows_;
  }

 private:
  int64_t rows_;
  KvLayout layout_;
};

}  // namespace

std::unique_ptr<const Retention> MakeRecentRetention(int64_t dense_recent) {
  return std::make_unique<RecentRetention>(dense_recent);
}

}  // namespace kvasir
