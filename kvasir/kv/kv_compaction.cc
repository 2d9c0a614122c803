#include "kvasir/kv/kv_compaction.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <utility>

#include "kvasir/kv/eviction.h"
#include "kvasir/kv/row_codec.h"
#include "kvasir/kv/row_scores.h"
#include "kvasir/kv/select_rows.h"

namespace kvasir {
namespace {

// First block that a store holds when `rows` rows are stored and nothing else was kept.
int64_t FirstBlock(const KvStore& store, int64_t rows) {
  return store.retention().FirstNeeded(rows) / kBlockTokens;
}

}  // namespace

std::vector<Position> PositionsOf(const KvKeptRows* kept, Position next) {
  std::vector<Position> positions;
  if (kept != nullptr) positions = kept->positions;
  const Position first_new = kept == nullptr ? 0 : kept->until;
  const size_t old_rows = positions.size();
  positions.resize(old_rows + static_cast<size_t>(next - first_new));
  std::iota(positions.begin() + static_cast<int64_t>(old_rows), positions.end(), first_new);
  return positions;
}

KvCompaction KvCompaction::Plan(const KvContent& content, size_t group, Position next) {
  const KvPlan::Group& members = content.plan->groups()[group];
  const std::vector<Position> positions = PositionsOf(content.kept[group].get(), next);
  std::vector<float> scores(positions.size());
  RowArrangement arrangement = {.recent = members.budget.recent};
  for (const int layer : members.layers) {
    const KvLayerSpec& spec = content.plan->spec().layers[static_cast<size_t>(layer)];
    const KvBlocksView blocks = content.stores[content.plan->store_of(layer)].view();
    const uint64_t salt = members.budget.per_layer ? static_cast<uint64_t>(layer) : 0;
    AddRowScores(members.budget.score, {&spec, blocks, positions, next, salt}, scores);
    arrangement.dense_blocks =
        std::max(arrangement.dense_blocks, spec.layout.dense_start / kBlockTokens);
  }
  KvCompaction compaction;
  compaction.group_ = group;
  compaction.source_ = ArrangeRows(SelectRows(scores, positions, members.budget), arrangement);
  auto kept = std::make_shared<KvKeptRows>();
  kept->until = next;
  for (const int64_t row : compaction.source_) {
    kept->positions.push_back(positions[static_cast<size_t>(row)]);
  }
  compaction.kept_ = std::move(kept);
  compaction.FindBases();
  return compaction;
}

int64_t KvCompaction::RowsIn(int64_t block) const {
  return std::min<int64_t>(kBlockTokens, rows() - block * kBlockTokens);
}

void KvCompaction::FindBases() {
  if (source_.empty()) return;
  const int64_t last = *std::max_element(source_.begin(), source_.end());
  std::vector<int64_t> kept_rows(static_cast<size_t>(last / kBlockTokens + 1));  // per old block
  for (const int64_t row : source_) ++kept_rows[static_cast<size_t>(row / kBlockTokens)];
  for (int64_t block = 0; block < BlocksUpTo(rows()); ++block) {
    NewBlock made;
    std::vector<int64_t> stays(kept_rows.size());
    for (int64_t row = block * kBlockTokens; row < block * kBlockTokens + RowsIn(block); ++row) {
      const int64_t from = source_[static_cast<size_t>(row)];
      if (from % kBlockTokens != row % kBlockTokens) continue;
      const int64_t count = ++stays[static_cast<size_t>(from / kBlockTokens)];
      if (2 * count > RowsIn(block)) made.base = from / kBlockTokens;
    }
    if (made.base >= 0) {
      made.stays = stays[static_cast<size_t>(made.base)];
      made.alone = made.stays == kept_rows[static_cast<size_t>(made.base)];
    }
    blocks_.push_back(made);
  }
}

KvCompaction::Way KvCompaction::WayOf(const KvStore& store, const KvLayer& old_layer,
                                      int64_t block) const {
  const NewBlock& made = blocks_[static_cast<size_t>(block)];
  if (made.base < 0 || store.BlockAt(made.base) != store.BlockAt(block)) return Way::kGather;
  if (made.stays == RowsIn(block)) return Way::kShare;
  // The slots of evicted rows can be written as long as nobody else reads them.
  const bool mine = made.alone && !old_layer.block(made.base).shared();
  return mine ? Way::kPatch : Way::kCopyAndPatch;
}

std::vector<KvPool::Demand> KvCompaction::Needs(const KvContent& content) const {
  std::vector<KvPool::Demand> needs;
  for (const size_t index : content.plan->groups()[group_].stores) {
    const KvStore& store = content.plan->stores()[index];
    for (int64_t block = FirstBlock(store, rows()); block < BlocksUpTo(rows()); ++block) {
      const Way way = WayOf(store, content.stores[index], block);
      if (way == Way::kShare || way == Way::kPatch) continue;
      KvPool::AddDemand({store.BlockBytes(block), 1}, &needs);
    }
  }
  return needs;
}

void KvCompaction::Apply(KvContent* content) const {
  for (const size_t store : content->plan->groups()[group_].stores) {
    content->stores[store] = Rearranged(*content, store);
  }
  content->kept[group_] = kept_;
}

KvLayer KvCompaction::Rearranged(const KvContent& content, size_t store) const {
  const KvStore& rules = content.plan->stores()[store];
  const KvLayer& old_layer = content.stores[store];
  KvLayer layer(FirstBlock(rules, rows()));
  for (int64_t block = layer.first_block(); block < BlocksUpTo(rows()); ++block) {
    const Way way = WayOf(rules, old_layer, block);
    const int64_t base = way == Way::kGather ? -1 : blocks_[static_cast<size_t>(block)].base;
    BlockRef filled = way == Way::kGather ? content.plan->pool()->Take(rules.BlockBytes(block))
                      : way == Way::kCopyAndPatch
                          ? content.plan->pool()->TakeCopy(old_layer.block(base))
                          : old_layer.block(base);
    const int64_t begin = block * kBlockTokens;
    for (int64_t row = begin; row < begin + RowsIn(block); ++row) {
      const int64_t from = source_[static_cast<size_t>(row)];
      if (from == base * kBlockTokens + (row - begin)) continue;
      CopyRow(rules.BlockAt(from / kBlockTokens), old_layer.view().block_of(from),
              from % kBlockTokens, rules.BlockAt(block), filled.data(), row - begin);
    }
    layer.Append(std::move(filled));
  }
  return layer;
}

}  // namespace kvasir
