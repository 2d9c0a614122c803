#include "kvasir/kv/kv_snapshot.h"

#include <algorithm>
#include <string>

namespace kvasir {
namespace {

Error Unmergeable(const std::string& what) {
  return {ErrorCode::kInvalidArgument, "KV snapshots: " + what};
}

// The checkpoints of both, each position once.
std::vector<RecurrentStates::Checkpoint> Joined(const RecurrentStates& a,
                                                const RecurrentStates& b) {
  std::vector<RecurrentStates::Checkpoint> joined = a.checkpoints;
  for (const auto& checkpoint : b.checkpoints) {
    if (a.CheckpointAt(checkpoint.position) == nullptr) joined.push_back(checkpoint);
  }
  return joined;
}

}  // namespace

std::string KvSnapshot::Name() const {
  return "KV snapshot [" + std::to_string(begin_) + ", " + std::to_string(end_) + "): ";
}

Status KvSnapshot::Restorable() const {
  const KvPlan& plan = *content_.plan;
  if (!plan.states().empty() && end_ > 0 && content_.states.current.empty()) {
    return {ErrorCode::kFailedPrecondition,
            Name() + "layer " + std::to_string(plan.states()[0].layer) +
                " (recurrent) has no state at its end (" + content_.states.Names() +
                "); end it at a checkpoint or where the sequence stands"};
  }
  for (size_t i = 0; i < content_.stores.size(); ++i) {
    if (content_.Continues(i, end_)) continue;
    if (end_ < content_.floor) {
      return {ErrorCode::kFailedPrecondition,
              Name() + "it was loaded without the rows of states before position " +
                  std::to_string(content_.floor) + "; end it there or later"};
    }
    const KvKeptRows* kept = content_.KeptOf(i);
    if (kept != nullptr && end_ < kept->until) {
      return {ErrorCode::kFailedPrecondition, Name() + plan.StoreName(i) +
                                                  " had evicted rows at position " +
                                                  std::to_string(kept->until) +
                                                  "; only snapshots that end there or later can be "
                                                  "restored"};
    }
    const KvLayer& layer = content_.stores[i];
    const KvStore& store = plan.stores()[i];
    const int64_t needed = store.retention().FirstNeeded(content_.RowAt(i, end_));
    const std::string head =
        store.head_blocks() == 0
            ? ""
            : "the first " + std::to_string(store.retention().head_rows()) + " rows and ";
    const std::string held = layer.block_count() == 0
                                 ? "none"
                                 : "those from " + std::to_string(layer.first_row()) + " on";
    return {ErrorCode::kFailedPrecondition, Name() + plan.StoreName(i) + " needs " + head +
                                                "the rows from " + std::to_string(needed) +
                                                " on to continue, it holds " + held +
                                                "; merge it with what comes before"};
  }
  return {};
}

Result<std::pair<KvSnapshot, KvSnapshot>> KvSnapshot::Split(Position at) const {
  if (at < begin_ || at > end_) {
    return {ErrorCode::kInvalidArgument,
            Name() + "it cannot be split at " + std::to_string(at) + ", which is outside"};
  }
  for (const KvKeptRowsRef& kept : content_.kept) {
    if (kept == nullptr || at == begin_ || at >= kept->until) continue;
    return {ErrorCode::kInvalidArgument, Name() + "it cannot be split at " + std::to_string(at) +
                                             ": rows were evicted at position " +
                                             std::to_string(kept->until) +
                                             "; split it there or later"};
  }
  KvSnapshot left(content_.Slice(begin_, at), begin_, at);
  KvSnapshot right(content_.Slice(at, end_), at, end_);
  right.content_.states.current = content_.states.current;
  if (at == end_) left.content_.states.current = content_.states.current;
  return std::pair(std::move(left), std::move(right));
}

Result<KvSnapshot> KvSnapshot::Merge(const KvSnapshot& a, const KvSnapshot& b) {
  if (a.end_ != b.begin_) {
    return Unmergeable("one that ends at " + std::to_string(a.end_) +
                       " cannot be merged with one that begins at " + std::to_string(b.begin_));
  }
  const KvPlan& plan = *a.content_.plan;
  if (!plan.Compatible(*b.content_.plan)) {
    return Unmergeable("only snapshots of one cache spec and one pool can be merged");
  }
  KvContent merged = b.content_;
  merged.floor = std::max(a.content_.floor, b.content_.floor);
  for (size_t i = 0; i < merged.stores.size(); ++i) {
    const KvKeptRows* kept = b.content_.KeptOf(i);
    if (kept != nullptr && b.begin_ < kept->until) continue;  // b holds all that is left
    if (!SameRows(a.content_.KeptOf(i), kept)) {
      return Unmergeable(plan.StoreName(i) +
                         " has evicted other rows in the first than in the second; merge snapshots "
                         "that were taken after the same eviction");
    }
    merged.stores[i] =
        a.content_.stores[i].Joined(b.content_.stores[i], plan.stores()[i].head_blocks());
  }
  merged.states.checkpoints = Joined(a.content_.states, b.content_.states);
  if (b.begin_ == b.end_ && merged.states.current.empty()) {
    merged.states.current = a.content_.states.current;
  }
  return KvSnapshot(std::move(merged), a.begin_, b.end_);
}

size_t KvSnapshot::nbytes() const { return BlockBytes(BlockReferences()); }

size_t KvSnapshot::nbytes_exclusive() const { return ExclusiveBlockBytes(BlockReferences()); }

}  // namespace kvasir
