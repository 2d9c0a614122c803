// KvSequence: taking blocks for the next tokens, and evicting rows where a budget is full.
// Deliberately nothing that reads or writes rows: kv_compaction.h and kv_sequence_rows.cc do.
#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/kv_compaction.h"
#include "kvasir/kv/kv_sequence.h"
#include "kvasir/kv/kv_size_class.h"

namespace kvasir {
namespace {

Error MustCommitFirst() {
  return {ErrorCode::kFailedPrecondition,
          "KV cache: a budget's rows must be evicted and a speculation is open; commit or roll "
          "back first"};
}

// Rows at which a budget evicts by itself; 0 if it never does.
int64_t FullAt(const RetentionSpec& budget) {
  return budget.interval == 0 ? 0 : budget.size + budget.interval;
}

}  // namespace

// What reservations of one or more sequences take from the pool.
struct KvSequence::Needs {
  std::vector<KvPool::Demand> demands;
  std::vector<const KvBlock*> shared;  // would be copied; once per sequence that writes into it

  void Add(std::span<const KvPool::Demand> more) {
    for (const KvPool::Demand& demand : more) KvPool::AddDemand(demand, &demands);
  }
  size_t bytes() const {
    size_t bytes = 0;
    for (const KvPool::Demand& demand : demands) {
      bytes += static_cast<size_t>(demand.count) * demand.block_bytes;
    }
    return bytes;
  }

  // Of the sequences that hold a block and all write into it, the last finds it unshared: if nobody
  // else references it, one copy less is needed than there are holders.
  void AddCopies() {
    std::sort(shared.begin(), shared.end());
    for (auto first = shared.begin(); first != shared.end();) {
      const auto last = std::upper_bound(first, shared.end(), *first);
      const int64_t holders = last - first;
      const int64_t copies = std::min<int64_t>(holders, int64_t{(*first)->references} - 1);
      KvPool::AddDemand({(*first)->owner->block_bytes(), copies}, &demands);
      first = last;
    }
  }
};

Status KvSequence::Reserve(int64_t tokens) {
  KvSequence* const self = this;
  return ReserveAll({&self, 1}, {&tokens, 1});
}

Status KvSequence::ReserveAll(std::span<KvSequence* const> sequences,
                              std::span<const int64_t> tokens) {
  KVASIR_CHECK(sequences.size() == tokens.size());
  if (sequences.empty()) return {};
  for (size_t i = 0; i < sequences.size(); ++i) {
    KVASIR_CHECK(sequences[i]->pool() == sequences[0]->pool());
    KVASIR_TRY_OK(sequences[i]->CheckReserve(tokens[i]));
  }
  Needs needs;
  std::vector<std::vector<KvCompaction>> compactions(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (tokens[i] > 0) compactions[i] = sequences[i]->DueCompactions();
    sequences[i]->AddNeeds(tokens[i], compactions[i], &needs);
  }
  needs.AddCopies();
  KVASIR_TRY_OK(sequences[0]->pool()->EnsureFree(needs.demands));
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (const KvCompaction& compaction : compactions[i]) {
      compaction.Apply(&sequences[i]->content_);
    }
    sequences[i]->TakeReserved(tokens[i]);
  }
  return {};
}

Status KvSequence::CheckReserve(int64_t tokens) const {
  const std::string asked = "KV cache: " + std::to_string(tokens) + " tokens after position " +
                            std::to_string(position_) + " cannot be reserved; ";
  const int64_t limit = RunLimit();
  if (tokens >= 0 && tokens <= limit) return {};
  const bool is_last = limit == kMaxPosition - position_;
  if (tokens >= 0 && limit == 0 && !is_last) return MustCommitFirst();
  if (tokens < 0 || is_last) {
    return {ErrorCode::kInvalidArgument, asked + "give 0 to " + std::to_string(limit)};
  }
  return {ErrorCode::kInvalidArgument, asked + "a budget evicts rows at position " +
                                           std::to_string(position_ + limit) +
                                           ", so cut the run there"};
}

int64_t KvSequence::RunLimit() const {
  int64_t limit = kMaxPosition - position_;
  for (size_t i = 0; i < content_.kept.size(); ++i) {
    const RetentionSpec& budget = content_.plan->groups()[i].budget;
    if (FullAt(budget) == 0) continue;
    const int64_t room = FullAt(budget) - kvasir::RowOf(content_.kept[i].get(), position_);
    if (room > 0) {
      limit = std::min(limit, room);
    } else {
      limit = std::min(limit, speculation_start_ >= 0 ? 0 : budget.interval);
    }
  }
  return limit;
}

std::vector<KvCompaction> KvSequence::DueCompactions() const {
  std::vector<KvCompaction> due;
  for (size_t i = 0; i < content_.kept.size(); ++i) {
    const int64_t full = FullAt(content_.plan->groups()[i].budget);
    if (full == 0 || kvasir::RowOf(content_.kept[i].get(), position_) < full) continue;
    due.push_back(KvCompaction::Plan(content_, i, position_));
  }
  return due;
}

Status KvSequence::CompactIfDue() {
  KvSequence* const self = this;
  return CompactAllDue({&self, 1});
}

Status KvSequence::CompactAllDue(std::span<KvSequence* const> sequences) {
  std::vector<std::vector<KvCompaction>> due;
  std::map<KvPool*, Needs> needs;
  for (const KvSequence* sequence : sequences) {
    due.push_back(sequence->DueCompactions());
    if (!due.back().empty() && sequence->speculation_start_ >= 0) return MustCommitFirst();
    for (const KvCompaction& compaction : due.back()) {
      needs[sequence->pool()].Add(compaction.Needs(sequence->content_));
    }
  }
  for (const auto& [pool, of_pool] : needs) KVASIR_TRY_OK(pool->EnsureFree(of_pool.demands));
  for (size_t i = 0; i < sequences.size(); ++i) {
    for (const KvCompaction& compaction : due[i]) compaction.Apply(&sequences[i]->content_);
  }
  return {};
}

Result<bool> KvSequence::Compact(int64_t slack_rows) {
  if (slack_rows < 0) {
    return {ErrorCode::kInvalidArgument,
            "KV cache: slack_rows is " + std::to_string(slack_rows) + ", it must be 0 or more"};
  }
  if (content_.kept.empty()) {
    return {
        ErrorCode::kFailedPrecondition,
        "KV cache: no layer has a budget, so there is nothing to evict; give its retention one"};
  }
  if (speculation_start_ >= 0) return MustCommitFirst();
  std::vector<KvCompaction> compactions;
  for (size_t i = 0; i < content_.kept.size(); ++i) {
    const int64_t rows = kvasir::RowOf(content_.kept[i].get(), position_);
    if (rows - content_.plan->groups()[i].budget.size <= slack_rows) continue;
    compactions.push_back(KvCompaction::Plan(content_, i, position_));
  }
  Needs needs;
  for (const KvCompaction& compaction : compactions) needs.Add(compaction.Needs(content_));
  KVASIR_TRY_OK(pool()->EnsureFree(needs.demands));
  SetPosition(position_);
  for (const KvCompaction& compaction : compactions) compaction.Apply(&content_);
  return !compactions.empty();
}

void KvSequence::AddNeeds(int64_t tokens, std::span<const KvCompaction> first, Needs* needs) const {
  if (position_ + tokens <= reserved_end_) return;
  for (const KvCompaction& compaction : first) needs->Add(compaction.Needs(content_));
  AddStateNeeds(tokens, needs);
  for (size_t i = 0; i < content_.stores.size(); ++i) {
    int64_t rows = content_.RowAt(i, position_);
    int64_t held_end = content_.stores[i].end_block();
    for (const KvCompaction& compaction : first) {
      if (content_.plan->group_of(i) != static_cast<int>(compaction.group())) continue;
      rows = compaction.rows();
      held_end = BlocksUpTo(rows);
    }
    content_.plan->stores()[i].VisitSizes(
        held_end, BlocksUpTo(rows + tokens), [&](int64_t, int64_t count, size_t block_bytes) {
          KvPool::AddDemand({block_bytes, count}, &needs->demands);
        });
    // An earlier reservation has made the last block writable already.
    if (reserved_end_ > position_ || rows % kBlockTokens == 0) continue;
    const BlockRef& tail = content_.stores[i].block(rows / kBlockTokens);
    if (tail.shared()) needs->shared.push_back(tail.get());
  }
}

std::vector<Position> KvSequence::NewInnerPositions(int64_t tokens) const {
  const Position known = inner_states_.empty() ? position_ : inner_states_.back().position;
  std::vector<Position> positions;
  for (const Position position : kept_positions_) {
    if (position > known && position < position_ + tokens) positions.push_back(position);
  }
  return positions;
}

void KvSequence::AddStateNeeds(int64_t tokens, Needs* needs) const {
  const auto inner = static_cast<int64_t>(NewInnerPositions(tokens).size());
  for (const KvPlan::State& state : content_.plan->states()) {
    if (inner > 0) KvPool::AddDemand({state.bytes, inner}, &needs->demands);
  }
  if (reserved_end_ > position_) return;
  for (size_t i = 0; i < content_.plan->states().size(); ++i) {
    if (content_.states.current.empty()) {
      KvPool::AddDemand({content_.plan->states()[i].bytes, 1}, &needs->demands);
    } else if (content_.states.current[i].shared()) {
      needs->shared.push_back(content_.states.current[i].get());
    }
  }
}

void KvSequence::TakeReserved(int64_t tokens) {
  const Position end = position_ + tokens;
  if (end <= reserved_end_) return;
  TakeStates(tokens);
  for (size_t i = 0; i < content_.stores.size(); ++i) {
    KvLayer& layer = content_.stores[i];
    const int64_t rows = content_.RowAt(i, position_);
    if (reserved_end_ == position_ && rows % kBlockTokens != 0) {
      const BlockRef& tail = layer.block(rows / kBlockTokens);
      if (tail.shared()) layer.ReplaceLast(pool()->TakeCopy(tail));
    }
    while (layer.end_block() < BlocksUpTo(rows + tokens)) {
      layer.Append(pool()->Take(content_.plan->stores()[i].BlockBytes(layer.end_block())));
    }
  }
  reserved_end_ = end;
}

void KvSequence::TakeStates(int64_t tokens) {
  for (const Position position : NewInnerPositions(tokens)) {
    inner_states_.push_back({position, {}});
    for (const KvPlan::State& state : content_.plan->states()) {
      inner_states_.back().blocks.push_back(pool()->Take(state.bytes));
    }
  }
  if (reserved_end_ > position_) return;
  std::vector<BlockRef>& current = content_.states.current;
  if (current.empty()) {
    for (const KvPlan::State& state : content_.plan->states()) {
      current.push_back(pool()->TakeZeroed(state.bytes));
    }
    return;
  }
  for (BlockRef& block : current) {
    if (block.shared()) block = pool()->TakeCopy(block);
  }
}

size_t KvSequence::BytesToReserve(int64_t tokens) const {
  Needs needs;
  AddNeeds(tokens, tokens > 0 ? DueCompactions() : std::vector<KvCompaction>(), &needs);
  needs.AddCopies();
  return needs.bytes();
}

}  // namespace kvasir
