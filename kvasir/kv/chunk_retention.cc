// Retention `chunk`: a query sees the rows of its own chunk up to itself; chunk i is the positions
// [i * size, (i + 1) * size). Llama 4's local layers.
// Deliberately unrelated to prefill chunks, which are a matter of scheduling.
#include <algorithm>

#include "kvasir/kv/retention_kinds.h"

namespace kvasir {
namespace {

class ChunkRetention final : public Retention {
 public:
  explicit ChunkRetention(int64_t size) : size_(size) {}

  VisibleRows Visible(int64_t query) const override { return {0, FirstNeeded(query), query + 1}; }
  int64_t FirstNeeded(int64_t next) const override { return next / size_ * size_; }
  // Until the next run the last one can be taken back, also over a border, and with it the row
  // before one that begins at a border: mlx-lm holds as much.
  int64_t FirstKept(int64_t run_begin, int64_t run_end) const override {
    return FirstNeeded(run_begin < run_end ? std::max<int64_t>(run_begin - 1, 0) : run_end);
  }
  int64_t EarliestState(int64_t first_held) const override {
    return (first_held + size_ - 1) / size_ * size_;
  }

 private:
  int64_t size_;  // tokens, at least 1
};

}  // namespace

std::unique_ptr<const Retention> MakeChunkRetention(const RetentionSpec& spec) {
  return std::make_unique<ChunkRetention>(spec.size);
}

}  // namespace kvasir
