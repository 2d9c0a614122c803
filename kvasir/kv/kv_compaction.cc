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
  return compaction;
}

int64_t KvCompaction::WholeSource(const KvStore& store, int64_t block) const {
  const auto begin = source_.begin() + block * kBlockTokens;
  const auto end = begin + std::min<int64_t>(kBlockTokens, source_.end() - begin);
  if (*begin % kBlockTokens != 0) return -1;
  for (auto row = begin; row + 1 < end; ++row) {
    if (row[1] != row[0] + 1) return -1;
  }
  const int64_t old_block = *begin / kBlockTokens;
  return store.BlockAt(old_block) == store.BlockAt(block) ? old_block : -1;
}

std::vector<KvPool::Demand> KvCompaction::Needs(const KvContent& content) const {
  std::vector<KvPool::Demand> needs;
  for (const size_t index : content.plan->groups()[group_].stores) {
    const KvStore& store = content.plan->stores()[index];
    for (int64_t block = FirstBlock(store, rows()); block < BlocksUpTo(rows()); ++block) {
      if (WholeSource(store, block) < 0) KvPool::AddDemand({store.BlockBytes(block), 1}, &needs);
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
    const int64_t whole = WholeSource(rules, block);
    if (whole >= 0) {
      layer.Append(old_layer.block(whole));
      continue;
    }
    BlockRef gathered = content.plan->pool()->Take(rules.BlockBytes(block));
    const int64_t begin = block * kBlockTokens;
    for (int64_t row = begin; row < std::min(begin + kBlockTokens, rows()); ++row) {
      const int64_t from = source_[static_cast<size_t>(row)];
      CopyRow(rules.BlockAt(from / kBlockTokens), old_layer.view().block_of(from),
              from % kBlockTokens, rules.BlockAt(block), gathered.data(), row - begin);
    }
    layer.Append(std::move(gathered));
  }
  return layer;
}

}  // namespace kvasir
