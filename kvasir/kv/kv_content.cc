#include "kvasir/kv/kv_content.h"

#include <algorithm>
#include <utility>

#include "kvasir/base/check.h"
#include "kvasir/kv/kv_size_class.h"

namespace kvasir {
namespace {

// Calls visit(block, how often it is in the list) for each block.
template <typename Visit>
void VisitBlocks(std::vector<const KvBlock*> references, Visit visit) {
  std::sort(references.begin(), references.end());
  for (auto first = references.begin(); first != references.end();) {
    const auto last = std::upper_bound(first, references.end(), *first);
    visit(**first, static_cast<uint32_t>(last - first));
    first = last;
  }
}

}  // namespace

KvContent KvContent::Empty(std::shared_ptr<const KvPlan> plan) {
  KvContent content;
  content.stores.resize(plan->stores().size());
  content.kept.resize(plan->groups().size());
  content.plan = std::move(plan);
  return content;
}

const KvKeptRows* KvContent::KeptOf(size_t store) const {
  const int group = plan->group_of(store);
  return group < 0 ? nullptr : kept[static_cast<size_t>(group)].get();
}

bool KvContent::evicted() const {
  return std::any_of(kept.begin(), kept.end(), [](const auto& rows) { return rows != nullptr; });
}

bool KvContent::Continues(size_t store, Position position) const {
  const KvKeptRows* evicted = KeptOf(store);
  if (position < floor || (evicted != nullptr && position < evicted->until)) return position == 0;
  const KvStore& rules = plan->stores()[store];
  const KvLayer& layer = stores[store];
  const auto held = [&layer](int64_t begin, int64_t end) {
    if (layer.first_block() <= begin && layer.end_block() >= end) return true;
    while (begin < end && layer.Holds(begin)) ++begin;
    return begin >= end;
  };
  const int64_t rows = RowOf(evicted, position);
  const int64_t end = BlocksUpTo(rows);
  return held(0, std::min(rules.head_blocks(), end)) &&
         held(rules.retention().FirstNeeded(rows) / kBlockTokens, end);
}

KvContent KvContent::Slice(Position begin, Position end) const {
  KvContent slice = Empty(plan);
  if (end > 0) slice.kept = kept;
  slice.floor = floor;
  for (size_t i = 0; i < stores.size(); ++i) {
    const KvKeptRows* evicted = KeptOf(i);
    const Position until = evicted == nullptr ? 0 : evicted->until;
    if (end < until) continue;
    const int64_t first = begin < until ? 0 : RowOf(evicted, begin);
    slice.stores[i] = stores[i].Slice(first / kBlockTokens, BlocksUpTo(RowOf(evicted, end)));
  }
  slice.states.checkpoints = states.CheckpointsWithin(begin, end);
  if (const auto* checkpoint = states.CheckpointAt(end)) slice.states.current = checkpoint->blocks;
  return slice;
}

std::vector<const KvBlock*> KvContent::References() const {
  std::vector<const KvBlock*> references;
  const auto add = [&references](const std::vector<BlockRef>& blocks) {
    for (const BlockRef& block : blocks) references.push_back(block.get());
  };
  for (const KvLayer& layer : stores) {
    add(layer.head());
    add(layer.blocks());
  }
  add(states.current);
  for (const auto& checkpoint : states.checkpoints) add(checkpoint.blocks);
  return references;
}

size_t BlockBytes(std::vector<const KvBlock*> references) {
  size_t bytes = 0;
  VisitBlocks(std::move(references),
              [&](const KvBlock& block, uint32_t) { bytes += block.owner->block_bytes(); });
  return bytes;
}

size_t ExclusiveBlockBytes(std::vector<const KvBlock*> references) {
  size_t bytes = 0;
  VisitBlocks(std::move(references), [&](const KvBlock& block, uint32_t held) {
    if (held == block.references) bytes += block.owner->block_bytes();
  });
  return bytes;
}

}  // namespace kvasir
