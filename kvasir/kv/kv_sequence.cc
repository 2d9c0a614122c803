#include "kvasir/kv/kv_sequence.h"

#include <algorithm>
#include <string>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/row_codec.h"

namespace kvasir {
namespace {

int64_t BlocksUpTo(Position position) { return (position + kBlockTokens - 1) / kBlockTokens; }

}  // namespace

// What reservations of one or more sequences take from the pool.
struct KvSequence::Needs {
  std::vector<KvPool::Demand> demands;       // one per block size
  std::vector<const KvBlock*> shared_tails;  // would be copied; once per sequence that holds it

  void Add(size_t block_bytes, int64_t count) {
    for (KvPool::Demand& demand : demands) {
      if (demand.block_bytes == block_bytes) {
        demand.count += count;
        return;
      }
    }
    demands.push_back({block_bytes, count});
  }

  // Of the sequences that hold a tail and all write into it, the last finds it unshared: if nobody
  // else references it, one copy less is needed than there are holders.
  void AddCopies() {
    std::sort(shared_tails.begin(), shared_tails.end());
    for (auto first = shared_tails.begin(); first != shared_tails.end();) {
      const auto last = std::upper_bound(first, shared_tails.end(), *first);
      const int64_t holders = last - first;
      const int64_t copies = std::min<int64_t>(holders, int64_t{(*first)->references} - 1);
      Add((*first)->owner->block_bytes(), copies);
      first = last;
    }
  }
};

Result<KvSequence> KvSequence::Create(KvPool* pool, std::shared_ptr<const KvCacheSpec> spec) {
  KVASIR_TRY(auto plan, KvPlan::Make(pool, std::move(spec)));
  KvSequence sequence(std::move(plan), 0);
  sequence.stores_.resize(sequence.plan_->stores().size());
  return sequence;
}

Result<KvSequence> KvSequence::Restore(KvPool* pool, const KvSnapshot& snapshot) {
  if (snapshot.plan_->pool() != pool) {
    return {ErrorCode::kInvalidArgument,
            "KV snapshot: its blocks belong to another pool; restore it there"};
  }
  KVASIR_TRY_OK(snapshot.Restorable());
  KvSequence sequence(snapshot.plan_, snapshot.end_);
  sequence.stores_ = snapshot.stores_;
  sequence.ReleaseUnneeded();
  return sequence;
}

KvSequence::KvSequence(std::shared_ptr<const KvPlan> plan, Position position)
    : plan_(std::move(plan)), position_(position), reserved_end_(position) {}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : plan_(std::move(other.plan_)),
      stores_(std::move(other.stores_)),
      position_(other.position_),
      reserved_end_(other.reserved_end_) {
  KVASIR_CHECK(other.speculation_start_ < 0);
}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  KVASIR_CHECK(speculation_start_ < 0 && other.speculation_start_ < 0);
  plan_ = std::move(other.plan_);
  stores_ = std::move(other.stores_);
  position_ = other.position_;
  reserved_end_ = other.reserved_end_;
  return *this;
}

KvSequence::~KvSequence() { KVASIR_CHECK(speculation_start_ < 0); }

Status KvSequence::Reserve(int64_t tokens) {
  KvSequence* const self = this;
  return ReserveAll({&self, 1}, {&tokens, 1});
}

Status KvSequence::ReserveAll(std::span<KvSequence* const> sequences,
                              std::span<const int64_t> tokens) {
  KVASIR_CHECK(sequences.size() == tokens.size());
  if (sequences.empty()) return {};
  Needs needs;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const KvSequence& sequence = *sequences[i];
    KVASIR_CHECK(sequence.pool() == sequences[0]->pool());
    if (tokens[i] < 0 || tokens[i] > kMaxPosition - sequence.position_) {
      return {ErrorCode::kInvalidArgument,
              "KV cache: " + std::to_string(tokens[i]) + " tokens after position " +
                  std::to_string(sequence.position_) + " cannot be reserved; give 0 to " +
                  std::to_string(kMaxPosition - sequence.position_)};
    }
    sequence.AddNeeds(tokens[i], &needs);
  }
  needs.AddCopies();
  KVASIR_TRY_OK(sequences[0]->pool()->EnsureFree(needs.demands));
  for (size_t i = 0; i < sequences.size(); ++i) sequences[i]->TakeReserved(tokens[i]);
  return {};
}

void KvSequence::AddNeeds(int64_t tokens, Needs* needs) const {
  const Position end = position_ + tokens;
  if (end <= reserved_end_) return;
  for (size_t i = 0; i < stores_.size(); ++i) {
    const int64_t new_blocks = BlocksUpTo(end) - stores_[i].end_block();
    if (new_blocks > 0) needs->Add(plan_->stores()[i].block_bytes, new_blocks);
    // An earlier reservation has made the last block writable already.
    if (reserved_end_ > position_ || position_ % kBlockTokens == 0) continue;
    const BlockRef& tail = stores_[i].block(position_ / kBlockTokens);
    if (tail.shared()) needs->shared_tails.push_back(tail.get());
  }
}

void KvSequence::TakeReserved(int64_t tokens) {
  const Position end = position_ + tokens;
  if (end <= reserved_end_) return;
  for (size_t i = 0; i < stores_.size(); ++i) {
    KvLayer& layer = stores_[i];
    if (reserved_end_ == position_ && position_ % kBlockTokens != 0) {
      const BlockRef& tail = layer.block(position_ / kBlockTokens);
      if (tail.shared()) layer.ReplaceLast(pool()->TakeCopy(tail));
    }
    while (layer.end_block() < BlocksUpTo(end)) {
      layer.Append(pool()->Take(plan_->stores()[i].block_bytes));
    }
  }
  reserved_end_ = end;
}

size_t KvSequence::BytesToReserve(int64_t tokens) const {
  Needs needs;
  AddNeeds(tokens, &needs);
  needs.AddCopies();
  size_t bytes = 0;
  for (const KvPool::Demand& demand : needs.demands) {
    bytes += static_cast<size_t>(demand.count) * demand.block_bytes;
  }
  return bytes;
}

void KvSequence::Unreserve() { SetPosition(position_); }

VisibleRows KvSequence::Visible(int layer, Position query) const {
  return plan_->stores()[plan_->store_of(layer)].retention->Visible(query);
}

void KvSequence::Advance(int64_t tokens) {
  KVASIR_CHECK(tokens >= 0 && tokens <= reserved_end_ - position_);
  position_ += tokens;
  if (speculation_start_ < 0) ReleaseUnneeded();
}

void KvSequence::ReleaseUnneeded() {
  for (size_t i = 0; i < stores_.size(); ++i) {
    stores_[i].DropBefore(plan_->stores()[i].retention->FirstNeeded(position_) / kBlockTokens);
  }
}

Result<int64_t> KvSequence::Trim(int64_t tokens) {
  if (tokens < 0) {
    return {ErrorCode::kInvalidArgument,
            "KV cache: " + std::to_string(tokens) + " tokens cannot be trimmed; give 0 or more"};
  }
  const int64_t trimmed = std::min(tokens, position_);
  const Position target = position_ - trimmed;
  if (target < speculation_start_) {
    return {ErrorCode::kFailedPrecondition,
            "KV cache: an open speculation began at position " +
                std::to_string(speculation_start_) + "; at most " + std::to_string(MaxTrim()) +
                " of " + std::to_string(trimmed) + " tokens can be trimmed before it is closed"};
  }
  for (size_t i = 0; i < stores_.size(); ++i) {
    if (plan_->stores()[i].retention->EarliestState(stores_[i].first_row()) <= target) continue;
    return {ErrorCode::kFailedPrecondition,
            "KV cache: " + plan_->StoreName(i) + " holds the rows from " +
                std::to_string(stores_[i].first_row()) + " on; at most " +
                std::to_string(MaxTrim()) + " of " + std::to_string(trimmed) +
                " tokens can be trimmed at position " + std::to_string(position_)};
  }
  SetPosition(target);
  return trimmed;
}

int64_t KvSequence::MaxTrim() const {
  Position earliest = std::max<Position>(0, speculation_start_);
  for (size_t i = 0; i < stores_.size(); ++i) {
    const Retention& retention = *plan_->stores()[i].retention;
    earliest = std::max(earliest, retention.EarliestState(stores_[i].first_row()));
  }
  return position_ - earliest;
}

void KvSequence::SetPosition(Position position) {
  position_ = position;
  reserved_end_ = position;
  for (KvLayer& layer : stores_) layer.DropFrom(BlocksUpTo(position));
}

KvSequence KvSequence::Fork() const {
  KvSequence fork(plan_, position_);
  fork.stores_.reserve(stores_.size());
  for (const KvLayer& layer : stores_) {
    fork.stores_.push_back(layer.Slice(layer.first_block(), BlocksUpTo(position_)));
  }
  return fork;
}

KvSnapshot KvSequence::Snapshot(Position begin, Position end) const {
  KVASIR_CHECK(begin >= 0 && begin <= end && end <= position_);
  KvSnapshot snapshot(plan_, begin, end);
  snapshot.stores_.reserve(stores_.size());
  for (const KvLayer& layer : stores_) {
    snapshot.stores_.push_back(layer.Slice(begin / kBlockTokens, BlocksUpTo(end)));
  }
  return snapshot;
}

size_t KvSequence::nbytes() const {
  size_t bytes = 0;
  for (size_t i = 0; i < stores_.size(); ++i) {
    bytes += stores_[i].nbytes(plan_->stores()[i].block_bytes);
  }
  return bytes;
}

size_t KvSequence::nbytes_exclusive() const {
  size_t bytes = 0;
  for (size_t i = 0; i < stores_.size(); ++i) {
    bytes += stores_[i].nbytes_exclusive(plan_->stores()[i].block_bytes);
  }
  return bytes;
}

int64_t KvSequence::capacity_tokens() const {
  int64_t capacity = kMaxPosition;
  for (size_t i = 0; i < stores_.size(); ++i) {
    const size_t block_bytes = plan_->stores()[i].block_bytes;
    const auto rivals =
        std::count_if(plan_->stores().begin(), plan_->stores().end(),
                      [&](const KvPlan::Store& store) { return store.block_bytes == block_bytes; });
    const int64_t more_blocks = pool()->FreeBlocks(block_bytes) / rivals;
    capacity = std::min(capacity, stores_[i].capacity_tokens() + more_blocks * kBlockTokens);
  }
  return capacity;
}

void KvSequence::WriteRows(int layer, Position first_row, const KvRows& rows) {
  const KvLayerSpec& layer_spec = spec().layers[static_cast<size_t>(layer)];
  const KvLayout& layout = layer_spec.layout;
  const size_t key_size = static_cast<size_t>(layout.kv_heads) * layout.key_dim;
  const size_t value_size = static_cast<size_t>(layout.kv_heads) * layout.value_dim;
  const auto count = static_cast<int64_t>(rows.keys.size() / key_size);
  KVASIR_CHECK(layer_spec.owns_rows());
  KVASIR_CHECK(rows.keys.size() == count * key_size && rows.values.size() == count * value_size);
  KVASIR_CHECK(first_row >= position_ && first_row + count <= reserved_end_);
  const KvBlocksView blocks = Blocks(layer);
  for (int64_t i = 0; i < count; ++i) {
    const Position row = first_row + i;
    EncodeRow(layout.BlockAt(row / kBlockTokens), blocks.block_of(row), row % kBlockTokens,
              std::span(rows.keys).subspan(i * key_size, key_size),
              std::span(rows.values).subspan(i * value_size, value_size));
  }
}

KvRows KvSequence::ReadRows(int layer, Position begin, Position end) const {
  const KvBlocksView blocks = Blocks(layer);
  const KvLayout& layout = spec().layers[static_cast<size_t>(layer)].layout;
  const size_t key_size = static_cast<size_t>(layout.kv_heads) * layout.key_dim;
  const size_t value_size = static_cast<size_t>(layout.kv_heads) * layout.value_dim;
  KVASIR_CHECK(begin >= blocks.first_row() && begin <= end && end <= reserved_end_);
  KvRows rows;
  rows.keys.resize(static_cast<size_t>(end - begin) * key_size);
  rows.values.resize(static_cast<size_t>(end - begin) * value_size);
  for (Position row = begin; row < end; ++row) {
    const auto i = static_cast<size_t>(row - begin);
    const std::byte* block = blocks.block_of(row);
    DecodeKey(layout.BlockAt(row / kBlockTokens), block, row % kBlockTokens,
              std::span(rows.keys).subspan(i * key_size, key_size));
    DecodeValue(layout.BlockAt(row / kBlockTokens), block, row % kBlockTokens,
                std::span(rows.values).subspan(i * value_size, value_size));
  }
  return rows;
}

std::vector<float> KvSequence::ReadKeys(int layer, Position row) const {
  return ReadRows(layer, row, row + 1).keys;
}

std::vector<float> KvSequence::ReadValues(int layer, Position row) const {
  return ReadRows(layer, row, row + 1).values;
}

}  // namespace kvasir
