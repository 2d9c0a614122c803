#include "kvasir/kv/kv_sequence.h"

#include <algorithm>
#include <functional>
#include <string>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/kv_compaction.h"

namespace kvasir {

Result<KvSequence> KvSequence::Create(KvPool* pool, std::shared_ptr<const KvCacheSpec> spec) {
  KVASIR_TRY(auto plan, KvPlan::Make(pool, std::move(spec)));
  return KvSequence(KvContent::Empty(std::move(plan)), 0);
}

Result<KvSequence> KvSequence::Restore(KvPool* pool, const KvSnapshot& snapshot) {
  if (snapshot.content_.plan->pool() != pool) {
    return {ErrorCode::kInvalidArgument,
            "KV snapshot: its blocks belong to another pool; restore it there"};
  }
  KVASIR_TRY_OK(snapshot.Restorable());
  KvSequence sequence(snapshot.content_, snapshot.end_);
  sequence.SetPosition(snapshot.end_);
  sequence.ReleaseUnneeded(0);  // what it held for going back is held again
  return sequence;
}

KvSequence::KvSequence(KvContent content, Position position)
    : content_(std::move(content)), position_(position), reserved_end_(position) {}

KvSequence::KvSequence(KvSequence&& other) noexcept
    : content_(std::move(other.content_)),
      position_(other.position_),
      reserved_end_(other.reserved_end_),
      kept_positions_(std::move(other.kept_positions_)),
      inner_states_(std::move(other.inner_states_)) {
  KVASIR_CHECK(other.speculation_start_ < 0);
}

KvSequence& KvSequence::operator=(KvSequence&& other) noexcept {
  KVASIR_CHECK(speculation_start_ < 0 && other.speculation_start_ < 0);
  content_ = std::move(other.content_);
  position_ = other.position_;
  reserved_end_ = other.reserved_end_;
  kept_positions_ = std::move(other.kept_positions_);
  inner_states_ = std::move(other.inner_states_);
  return *this;
}

KvSequence::~KvSequence() { KVASIR_CHECK(speculation_start_ < 0); }

void KvSequence::Unreserve() { SetPosition(position_); }

int64_t KvSequence::RowOf(int layer, Position position) const {
  const size_t store = content_.plan->store_of(layer);
  const KvKeptRows* kept = content_.KeptOf(store);
  KVASIR_CHECK(kept == nullptr || position >= kept->until);
  return content_.RowAt(store, position);
}

std::vector<Position> KvSequence::RowPositions(int layer) const {
  return PositionsOf(content_.KeptOf(content_.plan->store_of(layer)), position_);
}

KvBlocksView KvSequence::RecentBlocks(int layer) const {
  if (spec().layers[static_cast<size_t>(layer)].layout.dense_recent == 0) return {};
  return content_.stores[content_.plan->recent_store_of(layer)].view();
}

VisibleRows KvSequence::Visible(int layer, Position query) const {
  const KvStore& store = content_.plan->stores()[content_.plan->store_of(layer)];
  return store.retention().Visible(RowOf(layer, query));
}

const std::byte* KvSequence::State(int layer) const {
  const size_t state = content_.plan->state_of(layer);
  return content_.states.current.empty() ? nullptr : content_.states.current[state].data();
}

std::byte* KvSequence::MutableState(int layer) const {
  KVASIR_CHECK(reserved_end_ > position_);
  return content_.states.current[content_.plan->state_of(layer)].data();
}

void KvSequence::KeepStatesAt(std::vector<Position> positions) {
  KVASIR_CHECK(reserved_end_ == position_);
  std::erase_if(positions, [this](Position position) { return position <= position_; });
  KVASIR_CHECK(std::ranges::adjacent_find(positions, std::ranges::greater_equal()) ==
               positions.end());
  if (!content_.plan->states().empty()) kept_positions_ = std::move(positions);
}

std::vector<KvSequence::InnerState> KvSequence::InnerStates(int layer) const {
  const size_t state = content_.plan->state_of(layer);
  std::vector<InnerState> inner;
  for (const RecurrentStates::Checkpoint& checkpoint : inner_states_) {
    inner.push_back({checkpoint.position, checkpoint.blocks[state].data()});
  }
  return inner;
}

Status KvSequence::Checkpoint() {
  RecurrentStates& states = content_.states;
  if (content_.plan->states().empty() || position_ == 0) return {};
  if (states.CheckpointAt(position_) != nullptr) return {};
  if (reserved_end_ > position_) {
    return {ErrorCode::kFailedPrecondition,
            "KV cache: rows after position " + std::to_string(position_) +
                " are reserved, so recurrent states may be half written; take the checkpoint "
                "before Reserve or after Advance"};
  }
  states.checkpoints.push_back({position_, states.current});
  return {};
}

std::vector<Position> KvSequence::Checkpoints() const {
  std::vector<Position> positions;
  for (const auto& checkpoint : content_.states.checkpoints) {
    positions.push_back(checkpoint.position);
  }
  return positions;
}

void KvSequence::DropCheckpoints(Position position) {
  // An open speculation goes back to its own.
  std::erase_if(content_.states.checkpoints, [&](const auto& checkpoint) {
    return checkpoint.position < position && checkpoint.position != speculation_start_;
  });
}

void KvSequence::Advance(int64_t tokens) {
  KVASIR_CHECK(tokens >= 0 && tokens <= reserved_end_ - position_);
  const Position begin = position_;
  position_ += tokens;
  std::vector<RecurrentStates::Checkpoint>& checkpoints = content_.states.checkpoints;
  while (!inner_states_.empty() && inner_states_.front().position <= position_) {
    const bool is_end = inner_states_.front().position == position_;  // of a shorter run
    if (!is_end) checkpoints.push_back(std::move(inner_states_.front()));
    inner_states_.erase(inner_states_.begin());
  }
  if (std::ranges::binary_search(kept_positions_, position_)) {
    checkpoints.push_back({position_, content_.states.current});
  }
  std::erase_if(kept_positions_, [this](Position kept) { return kept <= position_; });
  if (tokens > 0 && speculation_start_ < 0) ReleaseUnneeded(begin);
}

void KvSequence::ReleaseUnneeded(Position run_begin) {
  for (size_t i = 0; i < content_.stores.size(); ++i) {
    const KvStore& store = content_.plan->stores()[i];
    const KvKeptRows* const evicted = content_.KeptOf(i);
    const Position begin = evicted == nullptr ? run_begin : std::max(run_begin, evicted->until);
    const int64_t first =
        store.retention().FirstKept(content_.RowAt(i, begin), content_.RowAt(i, position_));
    content_.stores[i].DropBefore(first / kBlockTokens, store.head_blocks());
  }
}

bool KvSequence::StatesReach(Position position) const {
  return content_.plan->states().empty() || position == 0 || position == position_ ||
         content_.states.CheckpointAt(position) != nullptr;
}

Result<int64_t> KvSequence::Trim(int64_t tokens) {
  if (tokens < 0) {
    return {ErrorCode::kInvalidArgument,
            "KV cache: " + std::to_string(tokens) + " tokens cannot be trimmed; give 0 or more"};
  }
  const int64_t trimmed = std::min(tokens, position_);
  const Position target = position_ - trimmed;
  const auto refused = [&](const std::string& why) {
    return Error{ErrorCode::kFailedPrecondition,
                 "KV cache: " + why + "; up to " + std::to_string(MaxTrim()) + " tokens, not " +
                     std::to_string(trimmed) + ", can be trimmed at position " +
                     std::to_string(position_)};
  };
  if (target < speculation_start_) {
    return refused("an open speculation began at position " + std::to_string(speculation_start_));
  }
  if (!StatesReach(target)) {
    return refused("its recurrent layers go back to a checkpoint or to 0 only, and " +
                   std::to_string(target) + " is none (" + content_.states.Names() + ")");
  }
  for (size_t i = 0; i < content_.stores.size() && target > 0; ++i) {
    if (content_.Continues(i, target)) continue;
    if (target < content_.floor) {
      return refused("it was loaded without the rows of states before position " +
                     std::to_string(content_.floor));
    }
    const KvKeptRows* kept = content_.KeptOf(i);
    const std::string name = content_.plan->StoreName(i);
    if (kept != nullptr && target < kept->until) {
      return refused(name + " has evicted rows at position " + std::to_string(kept->until));
    }
    return refused(name + " holds the rows from " + std::to_string(content_.stores[i].first_row()) +
                   " on");
  }
  SetPosition(target);
  kept_positions_.clear();
  return trimmed;
}

int64_t KvSequence::MaxTrim() const {
  Position earliest = std::max(content_.floor, speculation_start_);
  for (size_t i = 0; i < content_.stores.size(); ++i) {
    const KvKeptRows* kept = content_.KeptOf(i);
    const int64_t row =
        content_.plan->stores()[i].retention().EarliestState(content_.stores[i].first_row());
    earliest = std::max(earliest, PositionOfRow(kept, row));
  }
  int64_t trim = 0;
  if (content_.plan->states().empty()) return position_ - earliest;
  while (position_ - trim > earliest && StatesReach(position_ - trim - 1)) ++trim;
  return trim;
}

void KvSequence::SetPosition(Position position) {
  RecurrentStates& states = content_.states;
  if (position == 0) {
    content_.floor = 0;
    content_.kept.assign(content_.kept.size(), nullptr);
    states = {};
  } else if (const auto* checkpoint = states.CheckpointAt(position)) {
    states.current = checkpoint->blocks;
  }
  std::erase_if(states.checkpoints,
                [&](const auto& checkpoint) { return checkpoint.position > position; });
  position_ = position;
  reserved_end_ = position;
  inner_states_.clear();
  for (size_t i = 0; i < content_.stores.size(); ++i) {
    content_.stores[i].DropFrom(BlocksUpTo(content_.RowAt(i, position)));
  }
}

KvSequence KvSequence::Fork() const {
  KvContent content = content_.Slice(0, position_);
  KVASIR_CHECK(content_.plan->states().empty() || reserved_end_ == position_ ||
               content_.states.CheckpointAt(position_) != nullptr);
  if (reserved_end_ == position_) content.states.current = content_.states.current;
  return KvSequence(std::move(content), position_);
}

KvSnapshot KvSequence::Snapshot(Position begin, Position end) const {
  KVASIR_CHECK(begin >= 0 && begin <= end && end <= position_);
  KvSnapshot snapshot(content_.Slice(begin, end), begin, end);
  if (end == position_ && reserved_end_ == position_) {
    snapshot.content_.states.current = content_.states.current;
  }
  return snapshot;
}

std::vector<const KvBlock*> KvSequence::BlockReferences() const {
  std::vector<const KvBlock*> references = content_.References();
  for (const RecurrentStates::Checkpoint& inner : inner_states_) {
    for (const BlockRef& block : inner.blocks) references.push_back(block.get());
  }
  return references;
}

size_t KvSequence::nbytes() const { return BlockBytes(BlockReferences()); }

size_t KvSequence::nbytes_exclusive() const { return ExclusiveBlockBytes(BlockReferences()); }

int64_t KvSequence::capacity_tokens() const {
  const auto& rules = content_.plan->stores();
  const auto next_bytes = [&](size_t store) {
    return rules[store].BlockBytes(content_.stores[store].end_block());
  };
  int64_t capacity = kMaxPosition;
  for (size_t i = 0; i < rules.size(); ++i) {
    int64_t rivals = 0;
    for (size_t other = 0; other < rules.size(); ++other) {
      if (next_bytes(other) == next_bytes(i)) ++rivals;
    }
    const int64_t end = content_.stores[i].end_block();
    const int64_t more = pool()->FreeBlocks(next_bytes(i)) / rivals;
    // Blocks of another size may follow: count those of this size only.
    int64_t alike = 0;
    rules[i].VisitSizes(end, end + more, [&](int64_t first, int64_t count, size_t) {
      if (first == end) alike = count;
    });
    const int64_t rows = (end + alike) * kBlockTokens;
    capacity = std::min(capacity, PositionOfRow(content_.KeptOf(i), rows));
  }
  return capacity;
}

}  // namespace kvasir
