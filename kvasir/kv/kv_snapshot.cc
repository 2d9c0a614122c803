#include "kvasir/kv/kv_snapshot.h"

#include <string>

namespace kvasir {

Status KvSnapshot::Restorable() const {
  for (size_t i = 0; i < stores_.size(); ++i) {
    const Position needed = plan_->stores()[i].retention->FirstNeeded(end_);
    const KvLayer& layer = stores_[i];
    if (layer.first_row() <= needed && layer.capacity_tokens() >= end_) continue;
    const std::string held = layer.block_count() == 0
                                 ? "none"
                                 : "those from " + std::to_string(layer.first_row()) + " on";
    return {ErrorCode::kFailedPrecondition,
            "KV snapshot [" + std::to_string(begin_) + ", " + std::to_string(end_) +
                "): " + plan_->StoreName(i) + " needs the rows from " + std::to_string(needed) +
                " on to continue, it holds " + held + "; merge it with what comes before"};
  }
  return {};
}

KvSnapshot KvSnapshot::Part(Position begin, Position end) const {
  KvSnapshot part(plan_, begin, end);
  part.stores_.reserve(stores_.size());
  for (const KvLayer& layer : stores_) {
    part.stores_.push_back(
        layer.Slice(begin / kBlockTokens, (end + kBlockTokens - 1) / kBlockTokens));
  }
  return part;
}

Result<std::pair<KvSnapshot, KvSnapshot>> KvSnapshot::Split(Position at) const {
  if (at < begin_ || at > end_) {
    return {ErrorCode::kInvalidArgument, "KV snapshot [" + std::to_string(begin_) + ", " +
                                             std::to_string(end_) + "): it cannot be split at " +
                                             std::to_string(at) + ", which is outside"};
  }
  return std::pair(Part(begin_, at), Part(at, end_));
}

Result<KvSnapshot> KvSnapshot::Merge(const KvSnapshot& a, const KvSnapshot& b) {
  if (a.end_ != b.begin_) {
    return {ErrorCode::kInvalidArgument,
            "KV snapshots: one that ends at " + std::to_string(a.end_) +
                " cannot be merged with one that begins at " + std::to_string(b.begin_)};
  }
  if (!a.plan_->Compatible(*b.plan_)) {
    return {ErrorCode::kInvalidArgument,
            "KV snapshots: only snapshots of one cache spec and one pool can be merged"};
  }
  KvSnapshot merged(a.plan_, a.begin_, b.end_);
  merged.stores_.reserve(a.stores_.size());
  for (size_t i = 0; i < a.stores_.size(); ++i) {
    merged.stores_.push_back(a.stores_[i].Joined(b.stores_[i]));
  }
  return merged;
}

size_t KvSnapshot::nbytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < stores_.size(); ++i) {
    bytes += stores_[i].nbytes(plan_->stores()[i].block_bytes);
  }
  return bytes;
}

size_t KvSnapshot::nbytes_exclusive() const {
  size_t bytes = 0;
  for (size_t i = 0; i < stores_.size(); ++i) {
    bytes += stores_[i].nbytes_exclusive(plan_->stores()[i].block_bytes);
  }
  return bytes;
}

}  // namespace kvasir
